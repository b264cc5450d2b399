"""Recurrent encoders, and the bridge from their last state to the first one of a decoder.

Shapes: B rows (sources), S source tokens, D width of token vectors, H width of the decoder's state, E width of the
encoder's outputs, L layers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.nn.recurrent import Recurrent
from unmask.nn.recurrent_state import RecurrentState


class Bridge(nn.Module):
    """Computes the first state of a decoder from the last states of a bidirectional encoder.

    h = tanh(W [forward; backward]), like the first state of Bahdanau et al. 2014 (appendix A.2.2), with one W for all
    layers. The cell of an LSTM, which is not bounded by tanh, goes through another linear map.

    width  H, the sum of the widths of the two directions
    cell   whether the states have a cell (LSTM)
    """

    def __init__(self, width: int, *, cell: bool):
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.cell = nn.Linear(width, width) if cell else None

    def forward(self, state: RecurrentState) -> RecurrentState:
        """[2 L, B, H / 2] -> [L, B, H]."""
        both = state.map(lambda x: torch.cat([x[0::2], x[1::2]], -1))
        cell = None if self.cell is None else self.cell(both.cell)
        return RecurrentState(self.hidden(both.hidden).tanh(), cell)


class RecurrentEncoder(nn.Module):
    """Encodes the source: an output for every token, and the first state of the decoder.

    network  the recurrent layers
    bridge   from their last state to the first state of the decoder
    """

    def __init__(self, network: Recurrent, bridge: nn.Module):
        super().__init__()
        self.network, self.bridge = network, bridge

    def forward(self, x_BSD: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, RecurrentState]:
        """Outputs [B, S, E], zero at padding, and the decoder's first state [L, B, H]."""
        outputs_BSE, last = self.network(x_BSD, None, lengths_B)
        return outputs_BSE, self.bridge(last)


class ReversedEncoder(RecurrentEncoder):
    """Reads each source from its last token to its first; each output is at the place of its token."""

    def forward(self, x_BSD: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, RecurrentState]:
        outputs_BSE, first = super().forward(backwards(x_BSD, lengths_B), lengths_B)
        return backwards(outputs_BSE, lengths_B), first


def backwards(x_BSD: Tensor, lengths_B: Tensor | None) -> Tensor:
    """Reverse the tokens of each row; the padding stays at the end."""
    if lengths_B is None:
        return x_BSD.flip(1)
    places_S = torch.arange(x_BSD.shape[1], device=x_BSD.device)
    last_B1 = lengths_B.to(x_BSD.device)[:, None] - 1
    places_BS = torch.where(places_S <= last_B1, last_B1 - places_S, places_S)
    return x_BSD.gather(1, places_BS[..., None].expand_as(x_BSD))

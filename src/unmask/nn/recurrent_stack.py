"""RecurrentStack: recurrent layers, each followed by dropout, with optional truncated back-propagation through time.

Shapes: N sequences (or hypotheses), S tokens of the longest, D width of the input, H width of a state, E width of the
outputs (H, or 2 H in two directions), L layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.nn.recurrent import Recurrent
from unmask.nn.recurrent_state import RecurrentState


class RecurrentLayer(nn.Module):
    """dropout(network(x)). Gradients go back at most `tbptt` tokens; None: through the whole sequence."""

    def __init__(self, network: Recurrent, dropout: float = 0.0, tbptt: int | None = None):
        super().__init__()
        self.network, self.tbptt = network, tbptt
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x_NSD: Tensor, state: RecurrentState | None = None, lengths_N: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Outputs [N, S, E] and the state [1 or 2, N, H] after the last token of each sequence.

        lengths_N  descending, as in `Sequences`
        """
        if self.tbptt is None or x_NSD.shape[1] <= self.tbptt:
            outputs_NSE, last = self.network(x_NSD, state, lengths_N)
        else:
            outputs_NSE, last = self._truncated(x_NSD, state, lengths_N, self.tbptt)
        return self.dropout(outputs_NSE), last

    def step(self, x_ND: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one token of each row. Returns the output [N, H] and the state after the token."""
        output_NH, after = self.network.step(x_ND, state)
        return self.dropout(output_NH), after

    def _truncated(
        self, x_NSD: Tensor, state: RecurrentState | None, lengths_N: Tensor | None, window: int
    ) -> tuple[Tensor, RecurrentState]:
        """Read one window after the other. Each starts from the detached state at the end of the previous one.

        Sequences are sorted by length, so those that have ended are the last ones: they are left out of further
        windows, and keep their states.
        """
        N, S = x_NSD.shape[:2]
        lengths_N = torch.full((N,), S) if lengths_N is None else lengths_N.cpu()
        last = self.network.start(x_NSD) if state is None else state
        outputs = []
        for begin in range(0, S, window):
            on = int((lengths_N > begin).sum())
            x_nwD = x_NSD[:on, begin : begin + window]
            left_n = (lengths_N[:on] - begin).clamp(max=window)
            outputs_nwE, after = self.network(x_nwD, _first(last, on).detach(), left_n)
            outputs.append(F.pad(outputs_nwE, (0, 0, 0, 0, 0, N - on)))
            last = after if on == N else _joined(after, last, on)
        return torch.cat(outputs, 1), last


def _first(state: RecurrentState, on: int) -> RecurrentState:
    """The first `on` rows."""
    return state.map(lambda x: x[:, :on])


def _joined(first: RecurrentState, second: RecurrentState, on: int) -> RecurrentState:
    """The rows of `first`, followed by those of `second` from index `on`."""
    cell = None
    if first.cell is not None and second.cell is not None:
        cell = torch.cat([first.cell, second.cell[:, on:]], 1)
    return RecurrentState(torch.cat([first.hidden, second.hidden[:, on:]], 1), cell)


class RecurrentStack(nn.Module):
    """Recurrent layers; each reads the outputs of the layer below."""

    def __init__(self, blocks: list[RecurrentLayer]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(
        self, x_NSD: Tensor, state: RecurrentState | None = None, lengths_N: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Outputs [N, S, E] of the last layer, and the states of all layers, [L, N, H], or [2 L, N, H] if the layers
        are bidirectional."""
        after = []
        for i, block in enumerate(self.blocks):
            x_NSD, last = block(x_NSD, None if state is None else self._of(state, i), lengths_N)
            after.append(last)
        return x_NSD, _layers(after)

    def step(self, x_ND: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one token of each row. Returns the output [N, H] of the last layer and the states of all layers."""
        after = []
        for i, block in enumerate(self.blocks):
            assert isinstance(block, RecurrentLayer)
            x_ND, last = block.step(x_ND, self._of(state, i))
            after.append(last)
        return x_ND, _layers(after)

    def _of(self, state: RecurrentState, i: int) -> RecurrentState:
        each = state.hidden.shape[0] // len(self.blocks)
        return state.map(lambda x: x[i * each : (i + 1) * each])


def _layers(states: list[RecurrentState]) -> RecurrentState:
    """The states of the layers, joined into one."""
    cells = [state.cell for state in states if state.cell is not None]
    return RecurrentState(torch.cat([state.hidden for state in states]), torch.cat(cells) if cells else None)

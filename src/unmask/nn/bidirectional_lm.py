"""The recurrent layers of a bidirectional language model, and the task network on top of them (Peters et al. 2018).

Shapes: N sequences, S words of the longest, D width in one direction, R width of the task network in one direction.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unmask.nn.character_cnn import CharacterCNN
from unmask.nn.dropout import Dropout
from unmask.nn.head import ScalarMix

# The warning says that a CPU has no faster kernel for projections. It is filtered at import, because a filter acts on
# the whole process, not on a thread.
warnings.filterwarnings("ignore", message="LSTM with projections")


class BidirectionalLMLayer(nn.Module):
    """Two independent LSTMs: one reads from the left, the other from the right.

    The state of `hidden` cells is projected to D numbers, which the next layer and the next step read (Sak et al.
    2014).
    """

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.forwards, self.backwards = (nn.LSTM(dim, hidden, proj_size=dim, batch_first=True) for _ in range(2))

    def forward(self, left_NSD: Tensor, right_NSD: Tensor, lengths_N: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of the left-to-right and of the right-to-left LSTM, [N, S, D] each. Both read the padding last,
        so it does not change their outputs."""
        dtype = next(self.forwards.parameters()).dtype  # the outputs of the layers below may have another one
        left_NSD, right_NSD = left_NSD.to(dtype), right_NSD.to(dtype)
        return self.forwards(left_NSD)[0], flip(self.backwards(flip(right_NSD, lengths_N))[0], lengths_N)


class BidirectionalLMStack(nn.Module):
    """h_0 = x and h_j = LSTM_j(h_j-1), with a residual + h_j-1 from the second layer (section 3.4), separately in each
    direction."""

    def __init__(self, blocks: Sequence[BidirectionalLMLayer], dropout: float = 0.0):
        super().__init__()
        self.blocks, self.dropout = nn.ModuleList(blocks), Dropout(dropout)

    def forward(self, x_NSD: Tensor, lengths_N: Tensor) -> list[Tensor]:
        """The L + 1 layers, [N, S, 2 D] each: [x ; x], then [left-to-right ; right-to-left] (section 3.2, the set
        R_k)."""
        left = right = x_NSD
        layers = [torch.cat([left, right], -1)]
        for j, block in enumerate(self.blocks):
            more_left, more_right = block(self.dropout(left), self.dropout(right), lengths_N)
            left, right = (more_left + left, more_right + right) if j else (more_left, more_right)
            layers.append(torch.cat([left, right], -1))
        return layers


def flip(x_NSD: Tensor, lengths_N: Tensor) -> Tensor:
    """Reverse each sequence; its padding stays at the end."""
    places_S = torch.arange(x_NSD.shape[1], device=x_NSD.device)
    from_NS = torch.where(places_S < lengths_N[:, None], lengths_N[:, None] - 1 - places_S, places_S)
    return x_NSD.gather(1, from_NS[..., None].expand_as(x_NSD))


class TaskReader(nn.Module):
    """The task network, whose outputs a head reads: a bidirectional LSTM over [w ; ELMo], with word vectors w of its
    own (section 3.3).

    ELMo = scale * sum of softmax(s)_j h_j (equation 1) is `mix`; None if there is no language model.
    """

    def __init__(self, own: CharacterCNN, mixed: int, hidden: int, *, layers: int, dropout: float = 0.0):
        super().__init__()
        self.own, self.dropout = own, Dropout(dropout)
        self.mix = ScalarMix(layers + 1) if layers else None
        self.lstm = nn.LSTM(own.width + (mixed if layers else 0), hidden, batch_first=True, bidirectional=True)

    def forward(self, own_NSD: Tensor, layers: Sequence[Tensor], lengths_N: Tensor) -> Tensor:
        """[N, S, 2 R]: the outputs of the two directions for each word, concatenated."""
        x_NSD = own_NSD if self.mix is None else torch.cat([own_NSD, self.mix(layers)], -1)
        packed = nn.utils.rnn.pack_padded_sequence(self.dropout(x_NSD), lengths_N.cpu(), batch_first=True)
        read, _ = self.lstm(packed)
        read_NSR: Tensor = nn.utils.rnn.pad_packed_sequence(read, batch_first=True, total_length=x_NSD.shape[1])[0]
        return read_NSR

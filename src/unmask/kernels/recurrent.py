"""Recurrent layers with PyTorch's kernels, for whole sequences and for one token at a time. The plain forms are the
equations of the cells, `step` in `unmask.nn.recurrent`, and `Recurrent.unrolled`, which runs them along a sequence.

Shapes: B rows, T tokens, D width of the input, H width of a state, G gates, L layers (two for each bidirectional
layer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

LAYERS: Mapping[str, type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
"""Name of a cell -> the module that holds the weights of its layers and runs them."""

State = tuple[Tensor, Tensor | None]
"""Hidden state, and cell state of an LSTM: [L, B, H] for layers, [B, H] for one cell."""


def layers(
    cell: str, dim: int, hidden: int, layers: int, *, bidirectional: bool = False, dropout: float = 0.0
) -> nn.RNN | nn.LSTM | nn.GRU:
    """Build the layers of a cell, with dropout between them."""
    between = dropout if layers > 1 else 0.0  # torch warns about dropout in a single layer
    return LAYERS[cell](dim, hidden, layers, batch_first=True, dropout=between, bidirectional=bidirectional)


def run(
    module: nn.RNN | nn.LSTM | nn.GRU, x_BTD: Tensor, state: State | None, lengths_B: Tensor | None
) -> tuple[Tensor, State]:
    """Outputs [B, T, H or 2 H] of the last layer, zero at padding, and the state after the last token of each row.

    state      to continue from; None: zero
    lengths_B  on the CPU: number of tokens of each row, at least 1, before padding, which is not computed; None: T
    """
    given: Any = state if state is None or state[1] is not None else state[0]
    if lengths_B is None:
        outputs, last = module(x_BTD, given)
    else:
        packed = pack_padded_sequence(x_BTD, lengths_B, batch_first=True, enforce_sorted=False)
        packed, last = module(packed, given)
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x_BTD.shape[1])
    hidden, cell = last if isinstance(last, tuple) else (last, None)
    if outputs.dtype is torch.float16:  # that of cuDNN under autocast, whose own format may be another one
        outputs, hidden = outputs.to(x_BTD.dtype), hidden.to(x_BTD.dtype)
        cell = None if cell is None else cell.to(x_BTD.dtype)
    return outputs, (hidden, cell)


def step(cell: str, x_BD: Tensor, state: State, weights: tuple[Tensor, Tensor, Tensor, Tensor]) -> State:
    """The state [B, H] of one cell after one token. The output of the cell is the hidden state.

    weights  [G * H, D] for the input, [G * H, H] for the hidden state, and a bias [G * H] for each
    """
    hidden_BH, cell_BH = state
    if cell == "lstm":
        assert cell_BH is not None, "an LSTM's state has a cell"
        hidden_BH, cell_BH = torch.lstm_cell(x_BD, (hidden_BH, cell_BH), *weights)
        return hidden_BH, cell_BH
    kernel = torch.gru_cell if cell == "gru" else torch.rnn_tanh_cell
    return kernel(x_BD, hidden_BH, *weights), None

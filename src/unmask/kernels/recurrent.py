"""Recurrent layers with PyTorch's kernels, for whole sequences and for one token at a time. The plain forms are the
equations of the cells, `step` in `unmask.nn.recurrent`, and `Recurrent.unrolled`, which runs them along a sequence.

Shapes: B rows, T tokens, D width of the input, H width of a state, G gates, L layers (two for each bidirectional
layer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
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


KERNELS: Mapping[str, Any] = {"RNN_TANH": torch.rnn_tanh, "LSTM": torch.lstm, "GRU": torch.gru}
"""Mode of a module -> the kernel of its layers."""


def outputs(module: nn.RNN | nn.LSTM | nn.GRU, x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
    """The outputs of `run` from states of zero, [B, T, H or 2 H].

    lengths_B  on the CPU, descending

    The gradient of packed rows takes a time of T * T on a CPU: each token's has the size of the whole input. Where it
    is needed, rows of similar lengths are padded instead, at most to twice their lengths, and turned around for the
    second direction.
    """
    if lengths_B is None or x_BTD.device.type != "cpu" or module.num_layers > 1 or not torch.is_grad_enabled():
        return run(module, x_BTD, None, lengths_B)[0]
    found, begin, lengths = list[Tensor](), 0, lengths_B.tolist()
    while begin < len(lengths):
        longest = lengths[begin]
        end = next((i for i in range(begin, len(lengths)) if 2 * lengths[i] < longest), len(lengths))
        part = _padded(module, x_BTD[begin:end, :longest], lengths_B[begin:end])
        found.append(F.pad(part, (0, 0, 0, x_BTD.shape[1] - longest)))
        begin = end
    return torch.cat(found)


def _padded(module: nn.RNN | nn.LSTM | nn.GRU, x_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """Outputs of one layer, zero at padding, which is read like text."""
    places_T = torch.arange(x_BTD.shape[1])
    real_BT = places_T < lengths_B[:, None]
    turned_BT1 = torch.where(real_BT, lengths_B[:, None] - 1 - places_T, places_T)[..., None]
    found = list[Tensor]()
    for suffix in ("", "_reverse") if module.bidirectional else ("",):
        weights = [getattr(module, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        zero = x_BTD.new_zeros(1, len(x_BTD), module.hidden_size)
        given: Any = (zero, zero) if module.mode == "LSTM" else zero
        read_BTD = x_BTD.gather(1, turned_BT1.expand_as(x_BTD)) if suffix else x_BTD
        read_BTH = KERNELS[module.mode](read_BTD, given, weights, True, 1, 0.0, module.training, False, True)[0]
        found.append(read_BTH.gather(1, turned_BT1.expand_as(read_BTH)) if suffix else read_BTH)
    return torch.cat(found, -1) * real_BT[..., None]


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

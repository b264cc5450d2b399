"""Recurrent networks: vanilla RNN, LSTM and GRU by their equations, and stacks of them.

Shapes: B rows, T tokens, D width of the input, H width of a state, G gates, L layers (two for each bidirectional
layer).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.kernels import recurrent as kernels
from unmask.kernels.dropout import dropout
from unmask.nn.recurrent_state import RecurrentState


@dataclass(frozen=True, slots=True, eq=False)
class Cell(ABC):
    """One layer in one direction. It borrows its weights, which have H rows for each gate, in torch's order of gates.

    input_weight  [G * H, D]        hidden_weight  [G * H, H]
    input_bias    [G * H]           hidden_bias    [G * H]
    layers        name of torch's layers with weights of these shapes
    fused         whether these layers compute the same equations, as fused kernels
    """

    layers: ClassVar[str]
    fused: ClassVar[bool] = True

    input_weight: Tensor
    hidden_weight: Tensor
    input_bias: Tensor
    hidden_bias: Tensor

    @abstractmethod
    def step(self, x_BD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one token of each row. Returns the output [B, H] and the state after the token."""

    def of_input(self, x_BD: Tensor) -> tuple[Tensor, ...]:
        """W x + b of each gate, [B, H] each."""
        return self._gates(F.linear(x_BD, self.input_weight, self.input_bias))

    def of_hidden(self, h_BH: Tensor) -> tuple[Tensor, ...]:
        """U h + b' of each gate, [B, H] each."""
        return self._gates(F.linear(h_BH, self.hidden_weight, self.hidden_bias))

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The weights in the order that the kernels expect."""
        return self.input_weight, self.hidden_weight, self.input_bias, self.hidden_bias

    def _gates(self, x_BG: Tensor) -> tuple[Tensor, ...]:
        return x_BG.split(self.hidden_weight.shape[1], -1)


class RNNCell(Cell):
    """h' = tanh(W x + U h) (Elman 1990). These equations and those of the other cells leave out the biases."""

    layers = "rnn"

    def step(self, x_BD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        (wx,), (uh,) = self.of_input(x_BD), self.of_hidden(state.hidden)
        h = torch.tanh(wx + uh)
        return h, RecurrentState(h)


class LSTMCell(Cell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997) with a forget gate (Gers et al. 2000).

    i = sigmoid(W_i x + U_i h)    input gate               g = tanh(W_g x + U_g h)    candidate
    f = sigmoid(W_f x + U_f h)    forget gate              o = sigmoid(W_o x + U_o h)    output gate
    c' = f * c + i * g            h' = o * tanh(c')
    """

    layers = "lstm"

    def step(self, x_BD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        assert state.cell is not None, "an LSTM's state has a cell"
        wx_i, wx_f, wx_g, wx_o = self.of_input(x_BD)
        uh_i, uh_f, uh_g, uh_o = self.of_hidden(state.hidden)
        i = torch.sigmoid(wx_i + uh_i)
        f = torch.sigmoid(wx_f + uh_f)
        g = torch.tanh(wx_g + uh_g)
        o = torch.sigmoid(wx_o + uh_o)
        c = f * state.cell + i * g
        h = o * torch.tanh(c)
        return h, RecurrentState(h, c)


class GRUCell(Cell):
    """Gated recurrent unit (Cho et al. 2014), with the reset gate after the matrix product, as in the fused kernels.

    r = sigmoid(W_r x + U_r h)    reset gate: how much of the old state the candidate reads
    z = sigmoid(W_z x + U_z h)    update gate: how much of the old state is kept
    n = tanh(W_n x + r * (U_n h))                 h' = (1 - z) * n + z * h
    """

    layers = "gru"

    def step(self, x_BD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        wx_r, wx_z, wx_n = self.of_input(x_BD)
        uh_r, uh_z, uh_n = self.of_hidden(state.hidden)
        r = torch.sigmoid(wx_r + uh_r)
        z = torch.sigmoid(wx_z + uh_z)
        n = torch.tanh(wx_n + r * uh_n)
        h = (1 - z) * n + z * state.hidden
        return h, RecurrentState(h)


class ChoGRUCell(Cell):
    """The gated recurrent unit as first published, with the reset gate before the matrix product (Cho et al. 2014,
    equations 5 to 8). It has no fused kernel.

    r, z as in GRUCell
    n = tanh(W_n x + U_n (r * h))                 h' = (1 - z) * n + z * h
    """

    layers, fused = "gru", False

    def step(self, x_BD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        z, n = self.gate_and_candidate(x_BD, state.hidden)
        h = (1 - z) * n + z * state.hidden
        return h, RecurrentState(h)

    def gate_and_candidate(self, x_BD: Tensor, h_BH: Tensor) -> tuple[Tensor, Tensor]:
        """z and n, [B, H] each."""
        wx_r, wx_z, wx_n = self.of_input(x_BD)
        U_r, U_z, U_n = self.hidden_weight.chunk(3)
        b_r, b_z, b_n = self.hidden_bias.chunk(3)
        r = torch.sigmoid(wx_r + F.linear(h_BH, U_r, b_r))
        z = torch.sigmoid(wx_z + F.linear(h_BH, U_z, b_z))
        return z, torch.tanh(wx_n + F.linear(r * h_BH, U_n, b_n))


class ChungGRUCell(ChoGRUCell):
    """As ChoGRUCell, with the update gate on the candidate, not on the old state (Chung et al. 2014, section 3.2).

    h' = (1 - z) * h + z * n
    """

    def step(self, x_BD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        z, n = self.gate_and_candidate(x_BD, state.hidden)
        h = (1 - z) * state.hidden + z * n
        return h, RecurrentState(h)


CELLS: dict[str, type[Cell]] = {
    "rnn": RNNCell,
    "lstm": LSTMCell,
    "gru": GRUCell,
    "gru-cho": ChoGRUCell,
    "gru-chung": ChungGRUCell,
}
"""Name -> the equations of the cell."""


class Recurrent(nn.Module):
    """Layers of recurrent cells; each reads the outputs of the layer below, in both directions if it is bidirectional.

    `unrolled` runs the equations of the cells; `forward` and `step` compute the same with the kernels of
    `kernels.recurrent`, on the same parameters (those of `kernel`, named and ordered as in torch.nn.RNN, LSTM and GRU).
    Cells without a fused kernel are always unrolled.

    cell           "rnn", "lstm", "gru", or, many times as slow, "gru-cho" or "gru-chung"
    dim, hidden    D, width of the input, and H, width of the state of a layer in one direction
    bidirectional  a second network reads each layer from the end (Schuster & Paliwal 1997): outputs are 2 H wide
    dropout        rate between the layers and nowhere else (Zaremba et al. 2014), in training

    Raises UnmaskError for an unknown cell.

    >>> network = Recurrent("lstm", 8, 16)
    >>> _, state = network(torch.zeros(1, 5, 8))
    >>> outputs, state = network(torch.zeros(1, 5, 8), state.detach())  # continues; gradients stop in between
    >>> outputs.shape
    torch.Size([1, 5, 16])
    """

    def __init__(
        self, cell: str, dim: int, hidden: int, layers: int = 1, *, bidirectional: bool = False, dropout: float = 0.0
    ):
        super().__init__()
        if cell not in CELLS:
            raise unknown("recurrent cell", cell, CELLS)
        self.equations = CELLS[cell]
        self.kernel = kernels.layers(
            self.equations.layers, dim, hidden, layers, bidirectional=bidirectional, dropout=dropout
        )

    @property
    def hidden(self) -> int:
        """H, width of the state of a layer in one direction."""
        return self.kernel.hidden_size

    @property
    def layers(self) -> int:
        """Number of layers, each counted once."""
        return self.kernel.num_layers

    @property
    def directions(self) -> int:
        """1, or 2 if the network is bidirectional."""
        return 2 if self.kernel.bidirectional else 1

    @property
    def width(self) -> int:
        """Width of the outputs: H, or 2 H if the network is bidirectional."""
        return self.directions * self.hidden

    def start(self, x_BTD: Tensor) -> RecurrentState:
        """The state before the first token: zero."""
        zero = x_BTD.new_zeros(self.layers * self.directions, len(x_BTD), self.hidden)
        return RecurrentState(zero, zero if self.equations is LSTMCell else None)

    def forward(
        self, x_BTD: Tensor, state: RecurrentState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Outputs [B, T, H or 2 H] of the last layer, zero at padding, and the state after the last token of each row.

        state      to continue from, zero by default
        lengths_B  int64: number of tokens of each row before its padding, which is not computed; None: no padding

        Raises UnmaskError for a row without a token.
        """
        if not self.equations.fused:
            return self.unrolled(x_BTD, state, lengths_B)
        given = None if state is None else (state.hidden, state.cell)
        outputs, last = kernels.run(self.kernel, x_BTD, given, _ragged(lengths_B, x_BTD.shape[1]))
        return outputs, RecurrentState(*last)

    def step(self, x_BD: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one token of each row. Returns the output [B, H] of the last layer and the state after the token.

        Raises UnmaskError if the network is bidirectional.
        """
        if self.directions == 2:
            raise UnmaskError("A bidirectional network reads whole sequences; it cannot read token by token.")
        after = []
        for i in range(self.layers):
            after.append(self._step(self.cell(i), self._between(x_BD, i), state.layer(i)))
            x_BD = after[-1].hidden
        return x_BD, RecurrentState.stack(after)

    def _step(self, cell: Cell, x_BD: Tensor, state: RecurrentState) -> RecurrentState:
        if not cell.fused:
            return cell.step(x_BD, state)[1]
        return RecurrentState(*kernels.step(cell.layers, x_BD, (state.hidden, state.cell), cell.weights))

    def cell(self, layer: int, direction: int = 0) -> Cell:
        """The equations of one layer in one direction (1 is from the end), on the kernel's parameters."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        suffix = f"_l{layer}" + ("_reverse" if direction else "")
        return self.equations(*(getattr(self.kernel, name + suffix) for name in names))

    def unrolled(
        self, x_BTD: Tensor, state: RecurrentState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Compute the same as `forward` by the equations of the cells, one token after the other."""
        states = self.trace(x_BTD, state, lengths_B)
        last = [states.layer(i).map(lambda x: x[:, -1]) for i in range(self.layers * self.directions)]
        for i in range(1, len(last), self.directions) if self.directions == 2 else ():
            last[i] = states.layer(i).map(lambda x: x[:, 0])  # backward: the first token was read last
        outputs_BTH = torch.cat(list(states.hidden[-self.directions :]), -1)
        return outputs_BTH * _real(x_BTD, lengths_B), RecurrentState.stack(last)

    def trace(
        self, x_BTD: Tensor, state: RecurrentState | None = None, lengths_B: Tensor | None = None
    ) -> RecurrentState:
        """The states of every layer after each token, [L, B, T, H], to show the values of single units along a text.

        At padding, a row keeps its last state. The kernels do not return these states: this takes as long as
        `unrolled`.
        """
        _ragged(lengths_B, x_BTD.shape[1])
        state = self.start(x_BTD) if state is None else state
        real_BT1 = _real(x_BTD, lengths_B)
        traces: list[RecurrentState] = []
        for layer in range(self.layers):
            x_BTD = self._between(x_BTD, layer)
            for direction in range(self.directions):
                before = state.layer(len(traces))
                traces.append(_trace(self.cell(layer, direction), x_BTD, before, real_BT1, backward=direction == 1))
            x_BTD = torch.cat([trace.hidden for trace in traces[-self.directions :]], -1)
        return RecurrentState.stack(traces)

    def _between(self, x: Tensor, layer: int) -> Tensor:
        """The input of a layer, with dropout on all layers except the first."""
        return dropout(x, self.kernel.dropout, self.training) if layer else x


def _trace(cell: Cell, x_BTD: Tensor, state: RecurrentState, real_BT1: Tensor, *, backward: bool) -> RecurrentState:
    """[B, T, H] states of one layer in one direction; a row keeps its state at padding."""
    places = range(x_BTD.shape[1])
    states = []
    for t in reversed(places) if backward else places:
        _, after = cell.step(x_BTD[:, t], state)
        real_B1 = real_BT1[:, t]
        state = after.where(real_B1, state)
        states.append(state)
    return RecurrentState.stack(states[::-1] if backward else states, 1)


def _real(x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
    """[B, T, 1] bool: false at padding."""
    B, T = x_BTD.shape[:2]
    if lengths_B is None:
        return torch.ones(B, T, 1, dtype=torch.bool, device=x_BTD.device)
    return (torch.arange(T, device=x_BTD.device) < lengths_B.to(x_BTD.device)[:, None])[..., None]


def _ragged(lengths_B: Tensor | None, T: int) -> Tensor | None:
    """The lengths, on the CPU as torch's packing needs them; None if no row is padded.

    Raises UnmaskError for a length below 1 or above T.
    """
    if lengths_B is None:
        return None
    lengths_B = lengths_B.cpu()
    wrong = ((lengths_B < 1) | (lengths_B > T)).nonzero().flatten().tolist()
    if wrong:
        raise UnmaskError(
            f"Row {wrong[0]} of the batch has {int(lengths_B[wrong[0]])} tokens, but a recurrent network needs 1 to "
            f"{T} of them here; leave out empty rows."
        )
    return None if bool((lengths_B == T).all()) else lengths_B

"""RecurrentState: what a recurrent network knows of the tokens it has read, as a value.

Shapes: B rows, H width of a state, L layers (twice as many where every layer reads in both directions), N rows that are
selected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentState:
    """What a recurrent network knows of the tokens it has read, as a value.

    hidden  [L, B, H] of a stack, each layer forward and then backward where it has both; [B, H] of one cell
    cell    the same shape: the LSTM's second memory, which no other layer sees; None for the others
    """

    hidden: Tensor
    cell: Tensor | None = None

    def map(self, f: Callable[[Tensor], Tensor]) -> RecurrentState:
        """f of the tensors that there are."""
        return RecurrentState(f(self.hidden), None if self.cell is None else f(self.cell))

    def detach(self) -> RecurrentState:
        """The same numbers without their history: back-propagation through time ends here (Williams & Peng 1990)."""
        return self.map(Tensor.detach)

    def select(self, rows_N: Tensor) -> RecurrentState:
        """Row n becomes row rows_N[n]; rows may repeat and may be left out."""
        return self.map(lambda x: x.index_select(-2, rows_N))

    def repeat(self, width: int) -> RecurrentState:
        """Every row `width` times, one copy after the other: B * width rows."""
        return self if width == 1 else self.map(lambda x: x.repeat_interleave(width, -2))

    def where(self, chosen: Tensor, other: RecurrentState) -> RecurrentState:
        """This state where `chosen` is true, else the other."""
        cell = None
        if self.cell is not None and other.cell is not None:
            cell = torch.where(chosen, self.cell, other.cell)
        return RecurrentState(torch.where(chosen, self.hidden, other.hidden), cell)

    def layer(self, i: int) -> RecurrentState:
        """[B, H] of layer i."""
        return self.map(lambda x: x[i])

    @classmethod
    def stack(cls, states: Sequence[RecurrentState], dim: int = 0) -> RecurrentState:
        """Several of the same shape as one, along a new dimension."""
        cells = [state.cell for state in states if state.cell is not None]
        return cls(torch.stack([state.hidden for state in states], dim), torch.stack(cells, dim) if cells else None)

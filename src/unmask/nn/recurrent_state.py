"""RecurrentState: the state of a recurrent network, as a value.

Shapes: B rows, H width of a state, L layers (two for each bidirectional layer), N selected rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentState:
    """The state of a recurrent network after some tokens, as a value.

    hidden  [L, B, H] for a stack, in which a bidirectional layer has its forward state first; [B, H] for one cell
    cell    the cell state of an LSTM, of the same shape, which no other layer reads; None for other networks
    """

    hidden: Tensor
    cell: Tensor | None = None

    def map(self, f: Callable[[Tensor], Tensor]) -> RecurrentState:
        """A copy with `f` applied to each tensor."""
        return RecurrentState(f(self.hidden), None if self.cell is None else f(self.cell))

    def detach(self) -> RecurrentState:
        """A copy without the graph: back-propagation through time ends here (Williams & Peng 1990)."""
        return self.map(Tensor.detach)

    def select(self, rows_N: Tensor) -> RecurrentState:
        """A copy whose row n is row rows_N[n]; rows may repeat and may be left out."""
        return self.map(lambda x: x.index_select(-2, rows_N))

    def repeat(self, width: int) -> RecurrentState:
        """A copy with each row `width` times, its copies side by side: B * width rows."""
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
        """Stack several states of one shape along a new dimension."""
        cells = [state.cell for state in states if state.cell is not None]
        return cls(torch.stack([state.hidden for state in states], dim), torch.stack(cells, dim) if cells else None)

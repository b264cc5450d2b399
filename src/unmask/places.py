"""What stands at the places of rows: a kind, a target, raw values; and how it follows when the rows change.

Shapes: B rows, T places of a row, M places that a target or a signal names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from unmask.errors import UnmaskError


class Kind(IntEnum):
    """What stands at a place that holds no entry of a vocabulary: entries have ids from 0 on, kinds lie below.

    PADDING  nothing
    CLS      the summary of a sequence (BERT, ViT)
    DISTILL  a second summary, which learns from a teacher (DeiT)
    MASK     something hidden, which is to be predicted
    SIGNAL   values that `Batch.signal` carries: a patch, a frame, a segment of a recording, a given vector
    """

    PADDING = -1
    CLS = -2
    DISTILL = -3
    MASK = -4
    SIGNAL = -5


@dataclass(frozen=True, slots=True)
class Placed:
    """Values at some places of the rows.

    places   [M] int64, ascending, into the rows flattened to [B * T]
    values   [M, ...]; with `lengths`, sequences laid end to end, [sum of lengths, ...]
    lengths  [M] int64; None where every place has one value
    """

    places: Tensor
    values: Tensor
    lengths: Tensor | None = None

    @classmethod
    def at(cls, places: np.ndarray, values: np.ndarray, lengths: np.ndarray | None = None) -> Self:
        """The same from arrays whose places may come in any order."""
        order = np.argsort(places, kind="stable")
        if lengths is not None:  # the values of a place stand together, wherever it goes
            ends = np.cumsum(lengths)
            values = np.concatenate([values[:0], *(values[ends[i] - lengths[i] : ends[i]] for i in order)])
            return cls(*map(torch.from_numpy, (places[order], values, lengths[order])))
        return cls(torch.from_numpy(places[order]), torch.from_numpy(values[order]))

    def map(self, function: Callable[[Tensor], Any]) -> Self:
        """The same with each tensor replaced by what `function` makes of it."""
        lengths = None if self.lengths is None else function(self.lengths)
        return type(self)(function(self.places), function(self.values), lengths)

    def take(self, rows: np.ndarray, T: int) -> Self:
        """Those in the given rows [B'] of width T, at their places when these rows follow one another."""
        places, values = among(self.places.numpy(), rows, T), self.values.numpy()
        kept = places >= 0
        if self.lengths is None:
            return self.at(places[kept], values[kept])
        lengths = self.lengths.numpy()
        return self.at(places[kept], values[np.repeat(kept, lengths)], lengths[kept])

    def widen(self, T: int, more: int) -> Self:
        """The same in rows that have `more` places added at their end."""
        return replace(self, places=self.places + self.places // T * more)

    @classmethod
    def join(cls, parts: Sequence[Self | None], origins: Sequence[int]) -> Self | None:
        """Those of several batches, whose rows begin at these flat places; None where no batch has any.

        Raises UnmaskError for values of different shapes.
        """
        found = [(part, origin) for part, origin in zip(parts, origins, strict=True) if part is not None]
        if not found:
            return None
        filled = [part for part, _ in found if len(part.values)] or [found[0][0]]
        shapes = {tuple(part.values.shape[1:]) for part in filled}
        if len(shapes) > 1:
            raise UnmaskError(f"The values of a batch must have one shape, not {' and '.join(map(str, shapes))}.")
        lengths = [part.lengths for part, _ in found if part.lengths is not None]
        places = torch.cat([part.places + origin for part, origin in found])
        return cls(places, torch.cat([part.values for part in filled]), torch.cat(lengths) if lengths else None)


class Target(Placed):
    """What is to be predicted, and where: the output layer runs at these places only.

    values  class ids (int64), scores or vectors (float32); with `lengths`, a sequence to predict for each place
    """

    __slots__ = ()


class Signal(Placed):
    """Raw values that ids cannot carry, and where they stand: what the embedding makes vectors of.

    values  a row of numbers for each place (the pixels of a patch, a given vector); with `lengths`, the samples of a
            recording for the place where it begins: its frames are computed from them, and fill the places from there
            on. A place that is hidden may keep its values: its token says MASK.
    """

    __slots__ = ()


def among(places: np.ndarray, rows: np.ndarray, T: int) -> np.ndarray:
    """Flat places [M] as they are when the given rows [B'] follow one another; -1 for a place in another row."""
    if not len(places):
        return places
    now = np.full(max(rows.max(initial=-1), places.max() // T) + 1, -1)
    now[rows] = np.arange(len(rows))
    row = now[places // T]
    return np.where(row < 0, -1, row * T + places % T)

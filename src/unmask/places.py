"""The contents of places in a batch: kinds, targets and raw values, and how they move when the rows change.

Shapes: B rows, T places of a row, M places of a target or a signal.
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
    """The marker at a place without an id of a vocabulary. Ids begin at 0; kinds are negative.

    PADDING  nothing
    CLS      the summary of a sequence (BERT, ViT)
    DISTILL  a second summary, which learns from a teacher (DeiT)
    MASK     a masked input, which the model predicts
    SIGNAL   values in `Batch.signal`: a patch, a frame, a segment of a recording, a given vector
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
    values   [M, ...]; with `lengths`, concatenated sequences, [sum of lengths, ...]
    lengths  [M] int64; None if every place has one value
    """

    places: Tensor
    values: Tensor
    lengths: Tensor | None = None

    @classmethod
    def at(cls, places: np.ndarray, values: np.ndarray, lengths: np.ndarray | None = None) -> Self:
        """Build one from arrays whose places may be in any order."""
        order = np.argsort(places, kind="stable")
        if lengths is not None:  # the values of a place stay together when it is sorted
            ends = np.cumsum(lengths)
            values = np.concatenate([values[:0], *(values[ends[i] - lengths[i] : ends[i]] for i in order)])
            return cls(*map(torch.from_numpy, (places[order], values, lengths[order])))
        return cls(torch.from_numpy(places[order]), torch.from_numpy(values[order]))

    def map(self, function: Callable[[Tensor], Any]) -> Self:
        """A copy with `function` applied to each tensor."""
        lengths = None if self.lengths is None else function(self.lengths)
        return type(self)(function(self.places), function(self.values), lengths)

    def take(self, rows: np.ndarray, T: int) -> Self:
        """The values in the given rows [B'] of width T, with the places that they get when only these rows remain, in
        this order."""
        places, values = among(self.places.numpy(), rows, T), self.values.numpy()
        kept = places >= 0
        if self.lengths is None:
            return self.at(places[kept], values[kept])
        lengths = self.lengths.numpy()
        return self.at(places[kept], values[np.repeat(kept, lengths)], lengths[kept])

    def widen(self, T: int, more: int) -> Self:
        """A copy for rows of width T to which `more` places are added at the end."""
        return replace(self, places=self.places + self.places // T * more)

    @classmethod
    def join(cls, parts: Sequence[Self | None], origins: Sequence[int]) -> Self | None:
        """The values of several batches, whose rows begin at these flat places; None if no batch has any.

        Raises UnmaskError if the values have different shapes.
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
    """The places and the values to predict there: the output layer runs at these places only.

    values  class ids (int64), scores or vectors (float32); with `lengths`, a sequence to predict for each place
    """

    __slots__ = ()


class Signal(Placed):
    """Raw values that ids cannot describe, and their places: the embedding turns them into vectors.

    values  a row of numbers for each place (the pixels of a patch, a given vector); with `lengths`, the samples of a
            recording, at the place where it begins: the model computes frames from them, which fill the places from
            there on. A masked place may keep its values: its token is MASK.
    """

    __slots__ = ()


def among(places: np.ndarray, rows: np.ndarray, T: int) -> np.ndarray:
    """The new flat places of `places` [M] when only the given rows [B'] remain, in this order; -1 for a place in
    another row."""
    if not len(places):
        return places
    now = np.full(max(rows.max(initial=-1), places.max() // T) + 1, -1)
    now[rows] = np.arange(len(rows))
    row = now[places // T]
    return np.where(row < 0, -1, row * T + places % T)

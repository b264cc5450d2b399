"""Timed: parts of recordings, or of records of sensors, as a source: units of some seconds, decoded when they are read.

Shapes: U units, N samples of a unit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from unmask.data.files.damage import Failures, first_sound


@dataclass(frozen=True)
class Timed(ABC):
    """Some items, or parts of them, as a source. A subclass decodes a unit, and counts its samples.

    sources   the item of each unit
    headers   [U, 2]: samples and rate of the whole item
    spans     [U, 2] float64: begin and end of the unit, in seconds; the end is infinite if it is that of the item
    rate      samples a second that are read; items of another rate are resampled
    labels    of each unit, such as its language, "" without one
    failures  the items of the folder that could not be decoded so far; None: the first of them is an error
    names     of each unit, in its data: that of the file and, for a part that begins later, its begin in seconds
    """

    sources: Sequence[Any]
    headers: np.ndarray
    spans: np.ndarray
    rate: int
    labels: Sequence[str] = ()
    failures: Failures | None = None
    names: Sequence[str] = ()

    @abstractmethod
    def counts(self) -> np.ndarray:
        """[U] int64: the samples of each unit at `rate`."""

    @abstractmethod
    def decode(self, unit: int) -> np.ndarray:
        """The samples [N, ...] of a unit. Raises UnmaskError, which names its file, if it cannot be decoded."""

    @cached_property
    def cost(self) -> np.ndarray:
        """[U] int64: the samples of each unit at `rate`."""
        return self.counts()

    def read(self, unit: int) -> np.ndarray:
        """Decode a unit, or the next one that can be decoded: see `first_sound`."""
        return self.located(unit)[1]

    def located(self, unit: int) -> tuple[int, np.ndarray]:
        """As `read`, with the number of the unit that was decoded."""
        return first_sound(lambda number: (number, self.decode(number)), unit, len(self.sources), self.failures)

    def at_rate(self, rate: int) -> Self:
        """A copy that reads another number of samples a second."""
        return replace(self, rate=rate)

    def take(self, units: np.ndarray) -> Self:
        """Some of the units [U'], as a source."""
        chosen = [self.sources[unit] for unit in units.tolist()]
        names = [self.names[unit] for unit in units.tolist()] if self.names else ()
        labels = [self.labels[unit] for unit in units.tolist()] if self.labels else ()
        headers, spans = self.headers[units], self.spans[units]
        return replace(self, sources=chosen, headers=headers, spans=spans, names=names, labels=labels)

    def by_label(self) -> list[Self]:
        """The units of each label, such as a language, in the order of the labels: parts for a mixture."""
        labels = np.array(self.labels if self.labels else [""] * len(self.sources))
        return [self.take(np.flatnonzero(labels == label)) for label in np.unique(labels)]


def cut(seconds: float, longest: float) -> np.ndarray:
    """[P, 2] float64: the begin and end, in seconds, of the fewest equal parts that are not longer than `longest`; the
    end of the last one is infinite."""
    count = max(1, int(np.ceil(seconds / longest)))
    edges = np.arange(count + 1) * (seconds / count)
    edges[-1] = np.inf
    return np.stack([edges[:-1], edges[1:]], 1)


def named(name: str, begin: float) -> str:
    """The name of a unit: that of its file and, unless it is the first part, where it begins, in seconds."""
    return f"{name}#{begin:.3f}" if begin else name

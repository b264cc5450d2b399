"""ForecastExamples: windows of series as examples, each with the values after it as its target.

Shapes: R series, W windows of all, N values of a series, C values of a window, S values of a segment, H values of a
forecast.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.series import SeriesRow, filled
from unmask.errors import UnmaskError
from unmask.types import Example


class ForecastExamples(Sequence[Example]):
    """Windows of series, which end where a forecast begins. A slice is a view of the same windows. Each window is
    scaled to mean 0 and variance 1, and its target by the same numbers, so that no later value is seen.

    name     name of the target, whose place is the last one of a window; its values are [1, H], NaN where there is none
    context  most values of a window; those before them are not read
    step     values from one forecast to the next; None: those of a forecast, so that forecasts follow one another

    Raises UnmaskError, which names the row, for a series that is too short.
    """

    def __init__(
        self, rows: Sequence[SeriesRow], processor: SignalProcessor, name: str, context: int, *, step: int | None = None
    ) -> None:
        self.processor, self.name, self.horizons = processor, name, [row.horizon for row in rows]
        self.values = [row.values for row in rows]
        found = [origins(row, context, processor.segment, step or row.horizon) for row in rows]
        self.origins = np.concatenate([np.empty(0, np.int64), *found])
        self.owners = np.repeat(np.arange(len(rows)), [len(own) for own in found])
        S = processor.segment
        self._lengths = np.minimum(self.origins, context) // S
        self._numbers: Sequence[int] = range(len(self.origins))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def lengths(self) -> np.ndarray:
        """[W] int64: the segments of each window."""
        return np.asarray(self._lengths[list(self._numbers)])

    def __getitem__(self, index: Any) -> Any:
        """An example, or a view of some of the windows for a slice."""
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        number = self._numbers[index]
        row, origin = int(self.owners[number]), int(self.origins[number])
        window_C, centre, scale = self._window(number)
        target_H = np.full(self.horizons[row], np.nan)
        own = self.values[row][origin : origin + len(target_H)]
        target_H[: len(own)] = (own - centre) / scale
        made = self.processor.segmented(((window_C - centre) / scale).astype(np.float32)[:, None])
        last = np.array([len(made.tokens) - 1])
        return replace(made, targets={self.name: (last, target_H[None].astype(np.float32))})

    def take(self, indices: Sequence[int]) -> ForecastExamples:
        """A view of the windows with these indices, in this order."""
        view = copy.copy(self)
        view._numbers = [self._numbers[i] for i in indices]
        return view

    @property
    def starts(self) -> np.ndarray:
        """[W]: the place in its series of the first value of each forecast."""
        return np.asarray(self.origins[list(self._numbers)])

    @property
    def scaling(self) -> np.ndarray:
        """[W, 2]: the mean and the standard deviation of each window."""
        return np.array([self._window(number)[1:] for number in self._numbers]).reshape(-1, 2)

    def _window(self, number: int) -> tuple[np.ndarray, float, float]:
        """The values [C] of a window, their mean, and their standard deviation; of equal values, their size or 1."""
        origin, length = int(self.origins[number]), int(self._lengths[number]) * self.processor.segment
        before = self.values[int(self.owners[number])][:origin]
        window_C = before[origin - length :]
        if not np.isfinite(window_C).all():
            window_C = filled(before)[origin - length :]  # a gap at the end has the last value, not a later one
        centre, scale = float(window_C.mean()), float(window_C.std())
        return window_C, centre, scale if scale > 1e-9 * abs(centre) else abs(centre) or 1.0


def origins(row: SeriesRow, context: int, segment: int, step: int) -> np.ndarray:
    """The places where forecasts of a series begin, `step` from one to the next: from its `begin`, or where that is 0
    from where there are `context` values, to the last one that is in its part. Raises UnmaskError, which names the row,
    for a series without room for a segment and a forecast."""
    beyond = row.begin == row.end
    last = row.end if beyond else row.end - row.horizon
    first = row.begin or min(context, last)
    if first < segment and beyond:
        raise UnmaskError(f"{row.place} has {len(row.values):,} values, but a forecast needs {segment} before it.")
    if first < segment:
        raise UnmaskError(
            f"{row.place} has {len(row.values):,} values, too few: a forecast of {row.horizon} needs {segment} before "
            "it, and training those of the dev and test forecasts besides. Lower --horizon, --origins or --segment, or "
            "leave the series out."
        )
    return np.arange(first, last + 1, step)

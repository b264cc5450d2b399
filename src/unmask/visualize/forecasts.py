"""Forecasts: series with the quantiles of their next values.

Shapes: N values of a series, H values of a forecast, Q quantiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unmask.visualize.numbers import Data

MOST = 12  # series
PAST = 4  # forecasts of values that are shown before one
NOTE = "The line is the quantile that is nearest to the median; the band is from the lowest quantile to the highest."


def forecast(name: str, values_N: np.ndarray, quantiles: Mapping[str, Sequence[float]]) -> Data:
    """A chart of the end of a series, and of what follows it.

    values_N   NaN where there is none
    quantiles  level -> its values [H], by ascending levels
    """
    levels, found_QH = list(quantiles), np.array([*quantiles.values()])
    N, H = len(values_N), found_QH.shape[1]
    past = [[i + 1, float(values_N[i])] for i in range(max(0, N - PAST * H), N) if np.isfinite(values_N[i])]
    middle = min(range(len(levels)), key=lambda i: abs(float(levels[i]) - 0.5))
    ahead = range(N + 1, N + H + 1)
    lines = [
        {"name": "values", "points": past, "index": 0},
        {"name": f"forecast, quantile {levels[middle]}", "points": _points(ahead, found_QH[middle]), "index": 1},
    ]
    band = {"name": f"{levels[0]} to {levels[-1]}", "points": _points(ahead, found_QH[0], found_QH[-1]), "index": 1}
    return {"title": name, "x": "value", "series": lines, "bands": [band] if len(levels) > 1 else []}


def forecasts(charts: Sequence[Data]) -> Data:
    """The view of the first MOST charts."""
    more = "" if len(charts) <= MOST else f"The view shows the first {MOST} of {len(charts):,} series. "
    return {"view": "forecasts", "charts": list(charts[:MOST]), "note": more + NOTE}


def _points(places: range, *values: np.ndarray) -> list[list[float]]:
    found: list[list[float]] = np.stack([np.array(places, np.float64), *values], 1).tolist()
    return found

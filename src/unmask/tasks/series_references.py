"""Plain forecasts, by the last season or the last value of a series.

Shapes: N values before the forecast, H values of a forecast, Q quantiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

LEAST = 0.2  # autocorrelation of a season
CYCLES = 3  # a season has this many times its period of values, at least

Forecast = Callable[[np.ndarray, int, Sequence[float], int], np.ndarray]
"""(values [N], H, quantiles, period) -> [H, Q]."""


def seasonal(before_N: np.ndarray, horizon: int, quantiles: Sequence[float], period: int) -> np.ndarray:
    """The last season, repeated; with a period of 1, or where the series has less than a season, the last value
    (Hyndman & Athanasopoulos 2021, "Forecasting: principles and practice", sections 5.2 and 5.5). The quantiles are
    those of the changes from season to season about their median, times the square root of the seasons ahead."""
    period = period if len(before_N) > period else 1
    steps_H = np.arange(1, horizon + 1)
    seasons_H = -(-steps_H // period)
    point_H = before_N[len(before_N) + steps_H - period * seasons_H - 1]
    return _spread(point_H, before_N[period:] - before_N[:-period], np.sqrt(seasons_H), quantiles)


def drift(before_N: np.ndarray, horizon: int, quantiles: Sequence[float], period: int) -> np.ndarray:
    """The line through the first and the last value, continued; `period` has no effect. The spread grows with
    sqrt(h (1 + h / (N - 1))) (the same, section 5.5)."""
    steps_H, gaps = np.arange(1, horizon + 1), max(1, len(before_N) - 1)
    slope = (before_N[-1] - before_N[0]) / gaps
    growth_H = np.sqrt(steps_H * (1 + steps_H / gaps))
    return _spread(before_N[-1] + slope * steps_H, np.diff(before_N) - slope, growth_H, quantiles)


def last_value(before_N: np.ndarray, horizon: int, quantiles: Sequence[float], period: int) -> np.ndarray:
    """The last value; `period` has no effect."""
    return seasonal(before_N, horizon, quantiles, 1)


def _spread(point_H: np.ndarray, errors: np.ndarray, growth_H: np.ndarray, quantiles: Sequence[float]) -> np.ndarray:
    errors = errors if len(errors) else np.zeros(1)
    return np.asarray(point_H[:, None] + growth_H[:, None] * (np.quantile(errors, quantiles) - np.median(errors)))


REFERENCES: Mapping[str, Forecast] = {"naive": last_value, "drift": drift}


def period_of(series: Sequence[np.ndarray]) -> int:
    """The period of the season of some series, the highest peak of their mean autocorrelation after a line is taken
    off; 1 if no peak is above LEAST."""
    longest = max(map(len, series)) // CYCLES
    total, count = np.zeros(longest + 1), np.zeros(longest + 1)
    for values_N in series:
        lags = len(values_N) // CYCLES
        found = autocorrelation(values_N)[: lags + 1]
        total[: len(found)] += found
        count[: len(found)] += 1
    mean = total / np.maximum(count, 1)
    peaks = [lag for lag in range(2, longest) if mean[lag] > LEAST and mean[lag - 1] < mean[lag] > mean[lag + 1]]
    return max(peaks, key=lambda lag: mean[lag], default=1)


def autocorrelation(values_N: np.ndarray) -> np.ndarray:
    """[N]: of the values about their line of least squares, by a Fourier transform; 1 at lag 0, or 0 if all values are
    on the line."""
    time_N = np.arange(len(values_N))
    rest_N = values_N - np.polyval(np.polyfit(time_N, values_N, 1), time_N) if len(values_N) > 1 else values_N * 0
    spectrum = np.abs(np.fft.rfft(rest_N, 2 * len(rest_N))) ** 2
    found = np.fft.irfft(spectrum)[: len(rest_N)]
    size = float(found[0])
    return found / size if size > 1e-12 * max(1.0, float((values_N**2).sum())) else np.zeros(len(values_N))

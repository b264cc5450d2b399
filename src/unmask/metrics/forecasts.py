"""Scores of forecasts with quantiles.

Shapes: F forecasts, H values of each, Q quantiles, N values before the forecasts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pinball(true: np.ndarray, predicted: np.ndarray, quantiles: Sequence[float]) -> np.ndarray:
    """[..., Q]: max(q (y - f), (q - 1) (y - f)) of true values y [...] and predicted quantiles f [..., Q] (Koenker &
    Bassett 1978); its mean is least where f is the quantile q of y."""
    errors = np.asarray(true)[..., None] - predicted
    levels = np.asarray(quantiles)
    return np.maximum(levels * errors, (levels - 1) * errors)


def seasonal_error(before_N: np.ndarray, period: int) -> float:
    """The mean of |y_t - y_(t - period)|, of a series before its forecasts: the scale of MASE (Hyndman & Koehler 2006).
    NaN if there are no such pairs of values."""
    if len(before_N) <= period:
        return float("nan")
    changes = np.abs(before_N[period:] - before_N[:-period])
    return float(np.nanmean(changes)) if np.isfinite(changes).any() else float("nan")


def median_of(predicted: np.ndarray, quantiles: Sequence[float]) -> np.ndarray:
    """[...]: of predicted quantiles [..., Q], the one that is nearest to the median."""
    return np.asarray(predicted[..., int(np.argmin(np.abs(np.asarray(quantiles) - 0.5)))])


def of_forecasts(
    true_FH: np.ndarray, predicted_FHQ: np.ndarray, quantiles: Sequence[float], scales_F: np.ndarray
) -> dict[str, float]:
    """Scores of forecasts; true values that are NaN do not count.

    scales_F  `seasonal_error` of the series of each forecast

    mase      mean absolute error of the median, over the scale of its series; forecasts with a scale of 0 or NaN do not
              count, and without any other it is 0
    smape     mean of 2 |y - f| / (|y| + |f|), from 0 to 2; 0 where both are 0
    wql       weighted quantile loss, as AutoGluon has it: 2 sum(pinball) / sum(|y|), averaged over the quantiles
    coverage  share of the values from the lowest to the highest quantile
    """
    known_FH = np.isfinite(true_FH)
    found_FH = median_of(predicted_FHQ, quantiles)
    errors_FH = np.abs(true_FH - found_FH)
    sizes_FH = np.abs(true_FH) + np.abs(found_FH)
    relative_FH = np.divide(2 * errors_FH, sizes_FH, out=np.zeros_like(errors_FH), where=known_FH & (sizes_FH > 0))
    scaled_FH = (errors_FH / np.where(scales_F > 0, scales_F, np.nan)[:, None])[known_FH]
    losses_KQ = pinball(true_FH, predicted_FHQ, quantiles)[known_FH]
    total = np.abs(true_FH[known_FH]).sum()
    inside_FH = (true_FH >= predicted_FHQ.min(-1)) & (true_FH <= predicted_FHQ.max(-1))
    return {
        "mase": float(np.nanmean(scaled_FH)) if np.isfinite(scaled_FH).any() else 0.0,
        "smape": float(relative_FH[known_FH].mean()) if known_FH.any() else 0.0,
        "wql": float(2 * losses_KQ.sum(0).mean() / total) if total else 0.0,
        "coverage": float(inside_FH[known_FH].mean()) if known_FH.any() else 0.0,
    }

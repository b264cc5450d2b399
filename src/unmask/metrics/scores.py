"""Scores: correlations and the error of numbers."""

from __future__ import annotations

import numpy as np


def of_scores(predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Pearson's and Spearman's correlation, and the root mean squared error, of scores [N].

    A correlation that does not exist, because one side is constant, is 0.
    """
    from scipy.stats import pearsonr, spearmanr

    varied = len(true) > 1 and np.ptp(predicted) > 0 and np.ptp(true) > 0
    return {
        "pearson": float(pearsonr(predicted, true).statistic) if varied else 0.0,
        "spearman": float(spearmanr(predicted, true).statistic) if varied else 0.0,
        "rmse": float(np.sqrt(np.mean((predicted - true) ** 2))),
    }

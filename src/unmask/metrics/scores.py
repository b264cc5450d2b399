"""Scores: correlations and errors of predicted numbers."""

from __future__ import annotations

import numpy as np


def of_scores(predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Pearson's and Spearman's correlation, and the root mean squared error (in the unit of the scores), of scores [N].

    A correlation is 0 if it is undefined because one side is constant.
    """
    from scipy.stats import pearsonr, spearmanr

    varied = len(true) > 1 and np.ptp(predicted) > 0 and np.ptp(true) > 0
    return {
        "pearson": float(pearsonr(predicted, true).statistic) if varied else 0.0,
        "spearman": float(spearmanr(predicted, true).statistic) if varied else 0.0,
        "rmse": float(np.sqrt(np.mean((predicted - true) ** 2))),
    }

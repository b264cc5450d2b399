"""Scores: correlations and errors of predicted numbers."""

from __future__ import annotations

import numpy as np


def of_scores(predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Of scores [N]: Pearson's and Spearman's correlation, the mean absolute and the root mean squared error (in the
    unit of the scores), and R2, the share of the variance of the true scores that is explained.

    A correlation, or R2, is 0 if it is undefined because one side, or the true scores, are constant.
    """
    from scipy.stats import pearsonr, spearmanr

    varied = len(true) > 1 and np.ptp(predicted) > 0 and np.ptp(true) > 0
    errors = predicted - true
    spread = float(((true - true.mean()) ** 2).sum())
    return {
        "pearson": float(pearsonr(predicted, true).statistic) if varied else 0.0,
        "spearman": float(spearmanr(predicted, true).statistic) if varied else 0.0,
        "mae": float(np.abs(errors).mean()),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "r2": 1 - float((errors**2).sum()) / spread if spread else 0.0,
    }

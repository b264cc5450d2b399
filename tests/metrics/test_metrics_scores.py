"""Correlations and errors of numbers, beside their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from unmask import metrics


def middle_ranks(values):
    """Ranks from 1; equal values share the mean of theirs."""
    return np.array([(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values])


def pearson(a, b):
    a, b = a - a.mean(), b - b.mean()
    return (a @ b) / np.sqrt((a @ a) * (b @ b))


def test_correlations_are_those_of_scipy():
    rng = np.random.default_rng(1)
    for _ in range(1_000):
        true = rng.integers(0, 26, rng.integers(3, 60)) / 5  # as STS-B has them, with ties
        predicted = true * rng.normal() + rng.normal(size=len(true)).round(int(rng.integers(0, 4)))
        if not (np.ptp(true) and np.ptp(predicted)):
            continue
        found = metrics.of_scores(predicted, true)
        assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(predicted, true).statistic, rel=0, abs=1e-9)
        assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(predicted, true).statistic, rel=0, abs=1e-9)


def test_correlations_follow_their_formulas():
    rng = np.random.default_rng(0)
    for _ in range(300):
        true = rng.integers(0, 6, rng.integers(3, 40)).astype(float)
        predicted = true * rng.normal() + rng.normal(size=len(true)).round(1)
        if not (np.ptp(true) and np.ptp(predicted)):
            continue
        wanted = {
            "pearson": pearson(predicted, true),
            "spearman": pearson(middle_ranks(predicted), middle_ranks(true)),
            "mae": sklearn.metrics.mean_absolute_error(true, predicted),
            "rmse": np.linalg.norm(predicted - true) / np.sqrt(len(true)),
            "r2": sklearn.metrics.r2_score(true, predicted),
        }
        assert metrics.of_scores(predicted, true) == pytest.approx(wanted, rel=0, abs=1e-9)


def test_what_has_no_correlation_has_none():
    true = np.array([1.0, 2.0, 3.0, 4.0])
    assert metrics.of_scores(np.ones(4), true)["pearson"] == 0.0
    assert metrics.of_scores(true, np.ones(4))["spearman"] == 0.0
    assert metrics.of_scores(true, np.ones(4))["r2"] == 0.0
    assert metrics.of_scores(np.ones(1), np.ones(1))["spearman"] == 0.0


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=20), st.integers(0, 2**32 - 1))
def test_correlations_are_numbers_within_bounds(values, seed):
    predicted = np.array(values)
    found = metrics.of_scores(predicted, np.random.default_rng(seed).normal(size=len(values)))
    assert -1 <= found["pearson"] <= 1
    assert -1 <= found["spearman"] <= 1

"""Scores of forecasts, beside scikit-learn and their formulas in plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mean_pinball_loss

from unmask import metrics

LEVELS = (0.1, 0.4, 0.9)


def drawn(seed, forecasts=5, horizon=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(forecasts, horizon)), rng.normal(size=(forecasts, horizon, len(LEVELS)))


@given(st.integers(0, 2**32 - 1))
def test_the_pinball_loss_is_that_of_scikit_learn(seed):
    true, found = drawn(seed)
    losses = metrics.pinball(true, found, LEVELS)
    for i, level in enumerate(LEVELS):
        wanted = mean_pinball_loss(true.ravel(), found[..., i].ravel(), alpha=level)
        assert losses[..., i].mean() == pytest.approx(wanted, rel=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_ascending_quantiles_have_no_higher_loss(seed):
    true, found = drawn(seed)
    ordered = metrics.pinball(true, np.sort(found, -1), LEVELS).sum(-1)
    assert (ordered <= metrics.pinball(true, found, LEVELS).sum(-1) + 1e-12).all()


@pytest.mark.parametrize("seed", range(5))
def test_scores_follow_their_formulas(seed):
    true, found = drawn(seed)
    true[1, 2] = true[3, 0] = np.nan
    scales = np.array([0.5, 2.0, 1.0, np.nan, 0.0])
    mase, smape, inside, total, losses = [], [], [], 0.0, [0.0] * 3
    for f, h in np.ndindex(*true.shape):
        y, quantiles = float(true[f, h]), found[f, h].tolist()
        if math.isnan(y):
            continue
        middle = quantiles[1]  # 0.4 is nearest to the median
        if scales[f] > 0:
            mase.append(abs(y - middle) / scales[f])
        smape.append(2 * abs(y - middle) / (abs(y) + abs(middle)))
        inside.append(min(quantiles) <= y <= max(quantiles))
        total += abs(y)
        for i, (level, quantile) in enumerate(zip(LEVELS, quantiles, strict=True)):
            losses[i] += level * (y - quantile) if y >= quantile else (1 - level) * (quantile - y)
    wanted = {"mase": np.mean(mase), "smape": np.mean(smape), "coverage": np.mean(inside)}
    wanted["wql"] = np.mean([2 * loss / total for loss in losses])
    assert metrics.of_forecasts(true, found, LEVELS, scales) == pytest.approx(wanted, rel=1e-12)


def test_the_seasonal_error_is_the_mean_change_of_a_season():
    values = np.array([1.0, 5.0, 2.0, 7.0, np.nan, 4.0])
    assert metrics.seasonal_error(values, 2) == pytest.approx(np.mean([1, 2, 3]))
    assert math.isnan(metrics.seasonal_error(values, 6))


def test_what_has_no_score_is_zero():
    nothing = metrics.of_forecasts(np.full((1, 2), np.nan), np.zeros((1, 2, 3)), LEVELS, np.ones(1))
    assert nothing == dict.fromkeys(("mase", "smape", "wql", "coverage"), 0.0)
    same = metrics.of_forecasts(np.zeros((1, 2)), np.zeros((1, 2, 3)), LEVELS, np.zeros(1))
    assert same == {"mase": 0.0, "smape": 0.0, "wql": 0.0, "coverage": 1.0}

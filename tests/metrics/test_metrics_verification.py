"""Verification of pairs and retrieval of a class, beside scikit-learn's and literal loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from unmask import metrics
from unmask.errors import UnmaskError

FEW = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])  # so that there are ties
EXACT = {"rel": 0, "abs": 1e-9}


@st.composite
def scored(draw):
    """Scores of pairs, at least one pair of each kind."""
    same = [True, False, *draw(st.lists(st.booleans(), max_size=20))]
    scores = draw(st.lists(FEW | st.floats(-1, 1, width=32), min_size=len(same), max_size=len(same)))
    return np.array(scores), np.array(same)


@given(scored())
def test_a_curve_is_that_of_scikit_learn(case):
    scores, same = case
    found = metrics.roc(scores, same)
    far, tar, thresholds = roc_curve(same, scores, drop_intermediate=False)
    np.testing.assert_allclose(found.far, far, atol=1e-12)
    np.testing.assert_allclose(found.tar, tar, atol=1e-12)
    np.testing.assert_array_equal(found.thresholds, thresholds)
    assert found.auc == pytest.approx(roc_auc_score(same, scores), **EXACT)


@given(scored())
def test_numbers_of_a_curve_by_every_threshold(case):
    scores, same = case
    found = metrics.roc(scores, same)
    points = []
    for threshold in [np.inf, *scores.tolist()]:
        accepted = scores >= threshold
        points.append((accepted[~same].mean(), accepted[same].mean()))
    values = metrics.of_verification(found)
    assert list(values) == ["auc", "eer", "accuracy", "tar@far=0.01", "tar@far=0.001"]
    assert values["accuracy"] == pytest.approx(max((tar + 1 - far) / 2 for far, tar in points), **EXACT)
    for far in (1e-2, 1e-3):
        assert values[f"tar@far={far:g}"] == pytest.approx(max(tar for f, tar in points if f <= far), **EXACT)
    points = np.unique(points, axis=0)  # ascending: the curve, with lines between its points
    steps = np.arange(len(points))
    meets = brentq(lambda step: np.interp(step, steps, points.sum(1)) - 1, 0, len(points) - 1, xtol=1e-12)
    assert values["eer"] == pytest.approx(np.interp(meets, steps, points[:, 0]), abs=1e-9)


@given(scored())
def test_the_equal_error_is_at_most_a_half_in_one_direction(case):
    scores, same = case
    one, other = (metrics.roc(sign * scores, same).equal_error[0] for sign in (1, -1))
    assert 0 <= min(one, other) <= 0.5 + 1e-9
    assert one + other == pytest.approx(1, abs=1e-9)


def test_the_threshold_accepts_about_as_much_as_it_should():
    rng = np.random.default_rng(0)
    same = rng.random(4_000) < 0.3
    scores = rng.normal(size=4_000) + 1.5 * same
    rate, threshold = metrics.roc(scores, same).equal_error
    accepted = scores >= threshold
    assert accepted[~same].mean() == pytest.approx(rate, abs=2e-3)
    assert (~accepted[same]).mean() == pytest.approx(rate, abs=2e-3)
    assert rate == pytest.approx(0.2266, abs=0.02)  # of two normal distributions 1.5 deviations apart


def test_scores_that_say_nothing():
    same = np.array([True, False, True, False])
    perfect = metrics.of_verification(metrics.roc(np.array([0.9, 0.1, 0.8, 0.2]), same))
    assert perfect == {"auc": 1.0, "eer": 0.0, "accuracy": 1.0, "tar@far=0.01": 1.0, "tar@far=0.001": 1.0}
    equal = metrics.of_verification(metrics.roc(np.zeros(4), same))
    assert equal == {"auc": 0.5, "eer": 0.5, "accuracy": 0.5, "tar@far=0.01": 0.0, "tar@far=0.001": 0.0}
    assert metrics.roc(np.full(4, np.nan), same).auc == 0.0
    for same in ([True, True], [False, False], []):
        with pytest.raises(UnmaskError, match="pairs of one class and pairs of different classes"):
            metrics.roc(np.zeros(len(same)), np.array(same, bool))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@st.composite
def classed(draw):
    """Vectors of few directions, and so with ties, of classes; one class has two items at least."""
    classes = [0, 0, *draw(st.lists(st.integers(0, 4), max_size=12))]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    vectors = unit(rng.normal(size=(6, 3)))[rng.integers(0, 6, len(classes))]
    return vectors, np.unique(classes, return_inverse=True)[1]


@given(classed())
def test_retrieval_of_a_class_by_a_double_loop(case):
    units, classes = case
    similar = [[float(units[j] @ units[i]) for j in range(len(units))] for i in range(len(units))]
    recalls, precisions = {1: [], 5: [], 10: []}, []
    for i in range(len(units)):
        others = [j for j in range(len(units)) if j != i]
        right = [classes[j] == classes[i] for j in others]
        if not any(right):
            continue
        # Ties count as errors: others of another class come first.
        order = sorted(range(len(others)), key=lambda n: (-round(similar[i][others[n]], 6), right[n]))
        listed = [right[n] for n in order]
        for k, found in recalls.items():
            found.append(any(listed[:k]))
        R = sum(right)
        precisions.append(sum(sum(listed[: r + 1]) / (r + 1) for r in range(R) if listed[r]) / R)
    found = metrics.of_neighbours(np.round(units, 6).astype(np.float64), classes)
    rounded = {f"recall@{k}": np.mean(values) for k, values in recalls.items()} | {"map@r": np.mean(precisions)}
    assert found == pytest.approx(rounded, **EXACT)
    assert found["recall@1"] <= found["recall@5"] <= found["recall@10"]


def test_with_one_other_item_of_each_class_map_at_r_is_recall_at_1_and_bounds_average_precision():
    rng = np.random.default_rng(1)
    units = unit(rng.normal(size=(40, 4)))
    found = metrics.of_neighbours(units, np.arange(40) // 2)
    assert found["map@r"] == found["recall@1"]
    classes = rng.integers(0, 5, 40)
    similar = units @ units.T
    average = []
    for i in range(40):
        others = np.arange(40) != i
        average.append(average_precision_score(classes[others] == classes[i], similar[i, others]))
    found = metrics.of_neighbours(units, classes)
    assert 0 < found["map@r"] < np.mean(average)  # precision beyond rank R counts in the latter alone
    first = metrics.of_neighbours(unit(np.eye(5)[classes] + 0.01 * rng.normal(size=(40, 5))), classes)
    assert set(first.values()) == {1.0}


def test_vectors_that_are_all_the_same_find_nothing():
    for broken in (np.ones((6, 2)) / np.sqrt(2), np.full((6, 2), np.nan)):
        found = metrics.of_neighbours(broken, np.array([0, 0, 1, 1, 2, 2]))
        assert found == {"recall@1": 0.0, "recall@5": 1.0, "recall@10": 1.0, "map@r": 0.0}
    with pytest.raises(UnmaskError, match="No class has two items"):
        metrics.of_neighbours(np.eye(3), np.arange(3))


@pytest.mark.parametrize("sizes", [[40, 1, 1], [3, 5, 2, 1, 30], [9] * 8])
@pytest.mark.parametrize("most", [10_000, 300, 40])
def test_pairs_are_all_pairs_or_a_fair_sample_of_both_kinds(sizes, most):
    rng = np.random.default_rng(0)
    classes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    units = unit(rng.normal(size=(len(classes), 5)))
    scores, same = metrics.pairs_of(units, classes, most)
    first, second = np.triu_indices(len(classes), 1)
    every = {}
    for alike in (True, False):
        chosen = (classes[first] == classes[second]) == alike
        every[alike] = np.unique(np.round((units[first] * units[second]).sum(1)[chosen], 9))
        assert np.isin(np.round(scores[same == alike], 9), every[alike]).all()
    if most == 10_000:
        assert (len(scores), same.sum()) == (len(first), (classes[first] == classes[second]).sum())
        return
    assert (~same).sum() == most // 2
    assert same.sum() == min(most // 2, len(every[True]))
    again, _ = metrics.pairs_of(units, classes, most)
    assert np.array_equal(scores, again)


def test_a_sample_of_pairs_has_the_numbers_of_all_pairs():
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 12, 400)
    units = unit(np.eye(12)[classes] + 0.6 * rng.normal(size=(400, 12)))
    whole, part = (metrics.of_verification(metrics.roc(*metrics.pairs_of(units, classes, n))) for n in (10**6, 12_000))
    for name in ("auc", "eer", "accuracy", "tar@far=0.01"):
        assert part[name] == pytest.approx(whole[name], abs=0.02)


@given(
    same=st.lists(st.booleans(), min_size=2, max_size=30).filter(lambda x: any(x) and not all(x)),
    prior=st.sampled_from([0.01, 0.05, 0.5]),
    seed=st.integers(0, 99),
)
def test_the_cost_of_detection_is_the_least_over_all_thresholds(same, prior, seed):
    same = np.array(same)
    scores = np.random.default_rng(seed).integers(0, 6, len(same)) / 5
    costs = []
    for threshold in [*scores, np.inf]:
        accepted = scores >= threshold
        missed, false = (~accepted[same]).mean(), accepted[~same].mean()
        costs.append(prior * missed + (1 - prior) * false)
    assert metrics.roc(scores, same).detection_cost(prior) == pytest.approx(min(costs) / min(prior, 1 - prior))

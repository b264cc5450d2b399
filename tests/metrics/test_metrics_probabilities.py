"""Areas, F1, calibration and intervals of probabilities, beside scikit-learn, the challenge's rule and loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from unmask import metrics
from unmask.errors import UnmaskError
from unmask.metrics.probabilities import calibration_error, f1_of_classes

EXACT = {"rel": 0, "abs": 1e-9}
LABELS = ("~", "A", "N", "O")


@st.composite
def answered(draw, count=4):
    """Probabilities [N, count], with ties, and true classes."""
    true = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=25))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    amounts = rng.integers(1, 5, size=(len(true), count))
    return amounts / amounts.sum(1, keepdims=True), np.array(true)


def challenge(predicted, true):
    """The rule of the challenge, written out: F1 of a class is 2 Xx / (sum of row x + sum of column x)."""
    confusions = {(t, p): 0 for t in LABELS for p in LABELS}
    for t, p in zip(true, predicted, strict=True):
        confusions[LABELS[t], LABELS[p]] += 1
    found = []
    for name in ("N", "A", "O"):
        both = sum(confusions[name, p] for p in LABELS) + sum(confusions[t, name] for t in LABELS)
        found.append(2 * confusions[name, name] / both if both else 0.0)
    return sum(found) / 3


@given(answered())
def test_scores_are_those_of_scikit_learn_and_of_the_challenge(case):
    probabilities, true = case
    predicted = probabilities.argmax(1)
    found = metrics.of_probabilities(probabilities, true, LABELS)
    expected = f1_score(true, predicted, labels=range(4), average=None, zero_division=0)
    np.testing.assert_allclose(f1_of_classes(predicted, true, 4), expected)
    assert found["macro_f1"] == pytest.approx(expected.mean(), **EXACT)
    assert found["cinc_f1"] == pytest.approx(challenge(predicted, true), **EXACT)
    varied = [c for c in range(4) if 0 < (true == c).sum() < len(true)]
    areas = metrics.areas(probabilities, true)
    assert sorted(areas) == varied
    for c, (roc_auc, pr_auc) in areas.items():
        assert roc_auc == pytest.approx(roc_auc_score(true == c, probabilities[:, c]), **EXACT)
        assert pr_auc == pytest.approx(average_precision_score(true == c, probabilities[:, c]), **EXACT)
    assert ("roc_auc" in found) == bool(varied)
    if varied:
        assert found["pr_auc"] == pytest.approx(np.mean([areas[c][1] for c in varied]), **EXACT)


@given(answered(count=2))
def test_the_areas_of_two_classes_are_those_of_the_second(case):
    probabilities, true = case
    found = metrics.of_probabilities(probabilities, true, ("rest", "A"))
    assert "cinc_f1" not in found
    if 0 < true.sum() < len(true):
        assert found["roc_auc"] == pytest.approx(roc_auc_score(true, probabilities[:, 1]), **EXACT)
        assert found["pr_auc"] == pytest.approx(average_precision_score(true, probabilities[:, 1]), **EXACT)


@given(answered())
def test_the_calibration_error_by_loops(case):
    probabilities, true = case
    expected = 0.0
    for bin in range(15):
        rows = [i for i, p in enumerate(probabilities) if bin / 15 < p.max() <= (bin + 1) / 15]
        if rows:
            right = np.mean([probabilities[i].argmax() == true[i] for i in rows])
            expected += len(rows) / len(true) * abs(right - np.mean([probabilities[i].max() for i in rows]))
    assert calibration_error(probabilities, true) == pytest.approx(expected, **EXACT)


def test_an_interval_of_a_mean_is_that_of_theory():
    values = np.random.default_rng(0).normal(size=400)
    low, high = metrics.intervals(lambda rows: {"mean": values[rows].mean()}, [str(i) for i in range(400)])["mean"]
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.012)


def test_rows_of_one_patient_are_drawn_together():
    values = np.repeat(np.random.default_rng(0).normal(size=40), 10)
    patients = [str(i // 10) for i in range(400)]
    score = lambda rows: {"mean": values[rows].mean()}  # noqa: E731
    (low, high), (narrow, wide) = (
        metrics.intervals(score, groups)["mean"] for groups in (patients, [str(i) for i in range(400)])
    )
    assert 2.5 < (high - low) / (wide - narrow) < 4  # sqrt(10): ten rows of a patient say no more than one
    with pytest.raises(UnmaskError, match="of one"):
        metrics.intervals(score, ["x"] * 400)


def test_the_same_seed_gives_the_same_interval():
    values = np.arange(20.0)
    first, again, other = (
        metrics.intervals(lambda rows: {"mean": values[rows].mean()}, list("abcdefghijklmnopqrst"), seed=seed)
        for seed in (1, 1, 2)
    )
    assert first == again != other

"""Metrics of classes and of sets of labels, beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as reference
from hypothesis import given
from hypothesis import strategies as st

from unmask import metrics

EXACT = {"rel": 0, "abs": 1e-9}
FILES = 100


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_class_metrics_by_hand(pairs):
    predicted, true = np.array(pairs).T
    found = metrics.of_classes(predicted, true, "abc")
    f1s = []
    for c in range(3):
        both, either = ((predicted == c) & (true == c)).sum(), (predicted == c).sum() + (true == c).sum()
        f1s.append(2 * both / either if either else 0.0)
    assert found["macro_f1"] == pytest.approx(np.mean(f1s), **EXACT)
    assert found["accuracy"] == pytest.approx(np.mean(predicted == true), **EXACT)
    assert set(found) == {"accuracy", "macro_f1", "mcc"}


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
def test_two_classes_by_hand(pairs):
    predicted, true = np.array(pairs).T
    found = metrics.of_classes(predicted, true, ["no", "yes"])
    a, b, c, d = (((predicted == p) & (true == t)).sum() for p, t in ((1, 1), (1, 0), (0, 1), (0, 0)))
    under = np.sqrt(float((a + b) * (a + c) * (d + b) * (d + c)))
    assert found["f1"] == pytest.approx(2 * a / (2 * a + b + c) if a else 0.0, **EXACT)
    assert found["mcc"] == pytest.approx((a * d - b * c) / under if under else 0.0, **EXACT)
    report = metrics.per_class(predicted, true, ["no", "yes"])
    assert report["yes"]["f1"] == pytest.approx(found["f1"], **EXACT)
    assert [report[label]["support"] for label in ("no", "yes")] == [b + d, a + c]


def test_label_sets_by_hand():
    predicted = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]], bool)
    true = np.array([[1, 0, 0], [1, 0, 1], [0, 0, 0], [1, 0, 0]], bool)
    found = metrics.of_label_sets(predicted, true)
    assert found == pytest.approx({"accuracy": 0.5, "micro_f1": 4 / 7, "macro_f1": 4 / 5 / 3}, **EXACT)
    report = metrics.per_label(predicted, true, ["a", "b", "c"])
    assert report["a"] == pytest.approx({"precision": 1, "recall": 2 / 3, "f1": 4 / 5, "support": 3}, **EXACT)
    assert report["b"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0.0}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning", "ignore:A single label was found")
def test_classes_are_scored_as_scikit_learn_scores_them():
    """Accuracy, F1, and the Matthews correlation of CoLA."""
    rng = np.random.default_rng(0)
    for _ in range(FILES):
        labels, count = [f"label {c}" for c in range(rng.integers(2, 6))], rng.integers(1, 60)
        true = rng.integers(0, len(labels), count)
        predicted = np.where(rng.random(count) < rng.random(), true, rng.integers(0, len(labels), count))
        found, classes = metrics.of_classes(predicted, true, labels), np.arange(len(labels))
        wanted = {
            "accuracy": reference.accuracy_score(true, predicted),
            "macro_f1": reference.f1_score(true, predicted, labels=classes, average="macro"),
            "mcc": reference.matthews_corrcoef(true, predicted),
        }
        if len(labels) == 2:
            wanted["f1"] = reference.f1_score(true, predicted)
        assert found == pytest.approx(wanted, **EXACT)
        report = metrics.per_class(predicted, true, labels)
        parts = reference.precision_recall_fscore_support(true, predicted, labels=classes)
        for label, *expected in zip(labels, *parts, strict=True):
            names = ("precision", "recall", "f1", "support")
            assert report[label] == pytest.approx(dict(zip(names, expected, strict=True)), **EXACT)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_label_sets_are_scored_as_scikit_learn_scores_them():
    rng = np.random.default_rng(0)
    for _ in range(FILES):
        shape = rng.integers(1, 20), rng.integers(2, 6)
        true = rng.random(shape) < rng.random()
        predicted = np.where(rng.random(shape) < rng.random(), true, rng.random(shape) < rng.random())
        found = metrics.of_label_sets(predicted, true)
        report = metrics.per_label(predicted, true, [str(c) for c in range(shape[1])])
        f1s = {f"{how}_f1": reference.f1_score(true, predicted, average=how) for how in ("micro", "macro")}
        assert found == pytest.approx({"accuracy": reference.accuracy_score(true, predicted), **f1s}, **EXACT)
        columns = reference.precision_recall_fscore_support(true, predicted)
        for c, row in enumerate(report.values()):
            assert list(row.values()) == pytest.approx([column[c] for column in columns], **EXACT)

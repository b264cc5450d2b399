"""Probabilities of classes: curves of each class against the rest, calibration, and intervals by resampling.

Shapes: N rows, C classes, G groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from unmask.errors import UnmaskError
from unmask.metrics.classes import f1_of_classes
from unmask.metrics.verification import Roc, roc

BINS = 15  # of the calibration error
CINC = ("N", "A", "O")  # normal, atrial fibrillation, another rhythm: the classes of the challenge's F1


def average_precision(curve: Roc, share: float) -> float:
    """The area under the curve of precision and recall, as the sum of precision times the step in recall.

    share  of the rows that are of the class
    """
    found, false = curve.tar * share, curve.far * (1 - share)
    precision = found / np.maximum(found + false, 1e-300)  # 0 at the first point, which accepts nothing
    return float((np.diff(curve.tar) * precision[1:]).sum())


def calibration_error(probabilities_NC: np.ndarray, true_N: np.ndarray) -> float:
    """The expected calibration error (Guo et al. 2017, equation 3): the mean distance of the accuracy from the
    probability of the predicted class, in 15 equal intervals of that probability, weighted by their rows."""
    top_N = probabilities_NC.max(1)
    gap_N = (probabilities_NC.argmax(1) == true_N) - top_N
    bin_N = np.clip(np.ceil(top_N * BINS).astype(np.int64) - 1, 0, BINS - 1)
    return float(np.abs(np.bincount(bin_N, gap_N)).sum() / len(true_N))


def areas(probabilities_NC: np.ndarray, true_N: np.ndarray) -> dict[int, tuple[float, float]]:
    """Class -> ROC-AUC and PR-AUC (average precision) of its probability against the rest. Classes without rows, and
    one that all rows have, are left out."""
    shares_C = np.bincount(true_N, minlength=probabilities_NC.shape[1]) / len(true_N)
    found = {}
    for number in np.flatnonzero((shares_C > 0) & (shares_C < 1)).tolist():
        curve = roc(probabilities_NC[:, number], true_N == number)
        found[number] = (curve.auc, average_precision(curve, float(shares_C[number])))
    return found


def of_probabilities(probabilities_NC: np.ndarray, true_N: np.ndarray, labels: Sequence[str]) -> dict[str, float]:
    """accuracy, macro_f1, roc_auc and pr_auc, and the calibration error of probabilities.

    Of two classes, the areas are those of the second; of more, the mean over the classes with rows. Where the labels
    have N, A and O, `cinc_f1` is the mean F1 of these three, also if there are more labels (PhysioNet/CinC Challenge
    2017, Clifford et al. 2017, section 2.3).
    """
    predicted_N = probabilities_NC.argmax(1)
    f1_C = f1_of_classes(predicted_N, true_N, len(labels))
    found = {"accuracy": float((predicted_N == true_N).mean()), "macro_f1": float(f1_C.mean())}
    if set(CINC) <= set(labels):
        found["cinc_f1"] = float(f1_C[[labels.index(name) for name in CINC]].mean())
    of_class = areas(probabilities_NC, true_N)
    if of_class:
        counted = of_class if len(labels) > 2 else {1: of_class[1]}
        found["roc_auc"], found["pr_auc"] = np.mean(list(counted.values()), axis=0).tolist()
    return {**found, "calibration_error": calibration_error(probabilities_NC, true_N)}


def intervals(
    score: Callable[[np.ndarray], Mapping[str, float]],
    groups: Sequence[str],
    *,
    trials: int = 1_000,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Metric -> the ends of its 95 % interval, by drawing whole groups, such as patients, with replacement.

    score   numbers of rows [M], in which a row may be repeated -> metrics of these rows
    groups  [N] the group of each row

    A trial in which a metric is undefined does not count for it. Raises UnmaskError for fewer than two groups, whose
    rows all depend on each other.
    """
    of_row = np.unique(np.asarray(groups), return_inverse=True)[1]
    order, counts = np.argsort(of_row, kind="stable"), np.bincount(of_row)
    if len(counts) < 2:
        raise UnmaskError("An interval needs rows of two or more groups, such as patients; these are all of one.")
    members = np.split(order, np.cumsum(counts)[:-1])
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {}
    for _ in range(trials):
        rows = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        for name, value in score(rows).items():
            drawn.setdefault(name, []).append(value)
    ends = {name: np.quantile(values, (0.025, 0.975)).tolist() for name, values in drawn.items()}
    return {name: (low, high) for name, (low, high) in ends.items()}

"""Classes: accuracy, F1 and Matthews' correlation for one label a row; exact matches and F1 for sets of labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def of_classes(predicted: np.ndarray, true: np.ndarray, labels: Sequence[str]) -> dict[str, float]:
    """accuracy, macro_f1 and mcc (Matthews' correlation) of class ids [N]; for two classes also f1 of the second.

    Macro F1 is the mean over all labels; a label that is neither true nor predicted anywhere counts as 0.
    """
    f1_C = f1_of_classes(predicted, true, len(labels))
    found = {"accuracy": float((predicted == true).mean())}
    if len(labels) == 2:
        found["f1"] = float(f1_C[1])
    return {**found, "macro_f1": float(f1_C.mean()), "mcc": correlation(predicted, true)}


def f1_of_classes(predicted: np.ndarray, true: np.ndarray, count: int) -> np.ndarray:
    """F1 of each of `count` classes [C], 2 n_cc / (row sum + column sum) of the confusions; 0 without rows."""
    right, guessed, support = _counts_of_classes(predicted, true, count)
    return _share(2 * right, guessed + support)


def correlation(predicted: np.ndarray, true: np.ndarray) -> float:
    """Matthews' correlation of class ids [N], that of Gorodkin 2004 for more than two; 0 if one class is true, or
    predicted, in all rows."""
    right, guessed, support = _counts_of_classes(predicted, true, 1 + max(predicted.max(), true.max()))
    N = len(true)
    spread = float(N**2 - guessed @ guessed) * float(N**2 - support @ support)
    return float((N * right.sum() - guessed @ support) / np.sqrt(spread)) if spread else 0.0


def per_class(predicted: np.ndarray, true: np.ndarray, labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Label -> precision, recall, f1, and support: the number of rows with that label."""
    right, guessed, support = _counts_of_classes(predicted, true, len(labels))
    return _report(labels, right, guessed, support)


def confusion(predicted: np.ndarray, true: np.ndarray, labels: Sequence[str]) -> dict[str, dict[str, int]]:
    """Label -> prediction -> number of rows, from class ids [N]; pairs without rows are left out, so that there are at
    most N of them."""
    found: dict[str, dict[str, int]] = {label: {} for label in labels}
    pairs, counts = np.unique(np.stack([true, predicted]).astype(np.int64), axis=1, return_counts=True)
    for label, prediction, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        found[labels[label]][labels[prediction]] = count
    return found


def of_label_sets(predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """accuracy, micro_f1 and macro_f1 of sets of labels, bool [N, C]: whether row n has label c.

    A row is correct if its whole set is correct. Micro F1 gives each (row, label) the same weight; macro F1 is the mean
    over labels. F1 is 0 if nothing is true and nothing is predicted.
    """
    right, guessed, support = _counts(predicted, true)
    return {
        "accuracy": float((predicted == true).all(axis=1).mean()),
        "micro_f1": float(_share(2 * right.sum(), guessed.sum() + support.sum())),
        "macro_f1": float(_share(2 * right, guessed + support).mean()),
    }


def per_label(predicted: np.ndarray, true: np.ndarray, labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Label -> precision, recall, f1 and support, for sets of labels, bool [N, C]."""
    right, guessed, support = _counts(predicted, true)
    return _report(labels, right, guessed, support)


def _counts_of_classes(predicted: np.ndarray, true: np.ndarray, count: int) -> tuple[np.ndarray, ...]:
    """For each of `count` classes [C]: how often it is predicted correctly, predicted, and true."""
    return tuple(np.bincount(ids, minlength=count)[:count] for ids in (true[predicted == true], predicted, true))


def _counts(predicted: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each label [C]: how often it is predicted correctly, predicted, and true."""
    return (predicted & true).sum(axis=0), predicted.sum(axis=0), true.sum(axis=0)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; 0 if the whole is 0."""
    return part / np.maximum(1, whole)


def _report(
    labels: Sequence[str], right: np.ndarray, guessed: np.ndarray, support: np.ndarray
) -> dict[str, dict[str, float]]:
    """Label -> precision, recall, f1 and support, from the counts of each label [C]."""
    columns = {
        "precision": _share(right, guessed),
        "recall": _share(right, support),
        "f1": _share(2 * right, guessed + support),
        "support": support,
    }
    return {label: {name: float(column[i]) for name, column in columns.items()} for i, label in enumerate(labels)}

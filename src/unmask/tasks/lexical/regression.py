"""Regressions of scikit-learn on sparse features: one label, several labels, or a score for each row.

Shapes: N rows, F features, C outputs.

Each function takes the features and the true values of the training rows, and returns a function that answers other
rows with [N, C], as the task of the same kind does. The strength of the L2 penalty is the best of STRENGTHS in
three-fold cross-validation on the training rows alone, or 1 where they are too few for that. Nothing is random.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Answer = Callable[[Any], np.ndarray]
"""Features [N, F] -> answers [N, C]."""

STRENGTHS = (0.01, 0.1, 1.0, 10.0)  # C of scikit-learn, the inverse of the penalty
STEPS = 300  # at most; a regression that has not converged by then is still a baseline
PARTS = 3


def classes(features_NF: Any, true_N: np.ndarray, count: int) -> Answer:
    """Probabilities of `count` classes, by logistic regression; 0 for a class that no training row has."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=STEPS)
    parts = dealt(np.argsort(true_N, kind="stable"))
    model = chosen(model, {"C": STRENGTHS}, features_NF, true_N, parts, "accuracy")
    return lambda features: in_columns(model.predict_proba(features), model.classes_, count)


def label_sets(features_NF: Any, true_NC: np.ndarray) -> Answer:
    """The probability of each label, by one logistic regression for each label; all have the same penalty."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    model = OneVsRestClassifier(LogisticRegression(max_iter=STEPS))
    grid, parts = {"estimator__C": STRENGTHS}, dealt(np.arange(len(true_NC)))
    fitted = chosen(model, grid, features_NF, true_NC, parts, "f1_micro")
    return lambda features: np.asarray(fitted.predict_proba(features))


def scores(features_NF: Any, true_N: np.ndarray) -> Answer:
    """A score [N, 1], by a ridge regression."""
    from sklearn.linear_model import Ridge

    grid = {"alpha": [1 / strength for strength in STRENGTHS]}
    parts = dealt(np.argsort(true_N, kind="stable"))
    model = chosen(Ridge(), grid, features_NF, true_N, parts, "neg_mean_squared_error")
    return lambda features: np.asarray(model.predict(features))[:, None]


def chosen(
    model: Any, grid: Mapping[str, Any], features_NF: Any, true: np.ndarray, parts: Sequence[Any], scoring: str
) -> Any:
    """The model with the best settings of the grid, fitted on all rows; with its own settings where there are no parts,
    or all rows of a training part are equal.

    parts  (training indices, test indices) of each fold of cross-validation
    """
    from sklearn.model_selection import GridSearchCV

    if parts and all(len(np.unique(true[rest], axis=0)) > 1 for rest, _ in parts):
        model = GridSearchCV(model, dict(grid), cv=parts, scoring=scoring)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # too few STEPS; a label that a part or its rest lacks
        return model.fit(features_NF, true)


def dealt(order: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(training indices, test indices) of three folds; rows in this order go to the folds in turn."""
    part = np.empty(len(order), np.int64)
    part[order] = np.arange(len(order)) % PARTS
    return [(np.flatnonzero(part != i), np.flatnonzero(part == i)) for i in range(min(PARTS, len(order)))]


def in_columns(answers: np.ndarray, columns: np.ndarray, count: int) -> np.ndarray:
    """Answers [N, K] put into K of `count` columns; the other columns are 0."""
    found = np.zeros((len(answers), count))
    found[:, columns] = answers
    return found

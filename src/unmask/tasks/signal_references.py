"""Plain references for electrocardiograms: regressions and random forests on the features of beats.

Shapes: N records, or beats of them, F features of all leads, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from unmask.data.files.damage import damaged
from unmask.data.labelled.rows import Row
from unmask.data.signals.beat_features import features, of_each
from unmask.data.signals.reading import SignalRow
from unmask.errors import UnmaskError
from unmask.tasks.lexical import regression

RATE = 300.0  # samples a second that every record is resampled to
TREES, LEAF = 300, 2  # of the forest: trees, and least rows of a leaf

Answer = Callable[[Sequence[Row]], np.ndarray]
"""Records -> probabilities [N, C], or scores [N, 1]."""


def of_record(row: SignalRow) -> np.ndarray:
    """[1, F]: the features of the beats of each lead (`beat_features.features`)."""
    return np.concatenate([features(lead_N, RATE) for lead_N in row.signal(RATE).samples.T])[None]


def of_beats(row: SignalRow) -> np.ndarray:
    """[N, F]: those of each of the N marks of a record, which are beats (`beat_features.of_each`)."""
    places_N = np.array([begin for begin, _ in row.marks]) * RATE
    leads = row.signal(RATE).samples.T
    return np.concatenate([of_each(lead, places_N.round().astype(np.int64), RATE) for lead in leads], axis=1)


class Experts:
    """Features of records, which are computed once for all references.

    of_row  a record -> features [n, F] of what is answered in it
    """

    def __init__(self, of_row: Callable[[SignalRow], np.ndarray] = of_record) -> None:
        self.of_row = of_row
        self._known: dict[Row, np.ndarray] = {}

    def features(self, rows: Sequence[Row]) -> np.ndarray:
        """[N, F]: the features of all records. Raises UnmaskError, after the last record, if some cannot be read: it
        counts them, and names the first."""
        broken = []
        for row in rows:
            assert isinstance(row, SignalRow)
            if row in self._known:
                continue
            try:
                self._known[row] = self.of_row(row)
            except UnmaskError as error:
                broken.append(str(error))
        if broken:
            raise UnmaskError(f"{damaged(broken, len(rows), 'record')} Remove them from the rows.")
        if len({self._known[row].shape[1] for row in rows}) > 1:
            raise UnmaskError(
                "The records have unequal numbers of leads, so that there are no features of all of them."
            )
        return np.concatenate([self._known[row] for row in rows])

    def fitted(self, name: str, train: Sequence[Row], true_N: np.ndarray, count: int) -> Answer:
        """The answers of a reference in MODELS that is fitted on the training records, of classes `true_N`. Raises
        UnmaskError as `features`."""
        answer = MODELS[name](self.features(train), true_N, count)
        return lambda rows: answer(self.features(rows))

    def fitted_scores(self, name: str, train: Sequence[Row], true_N: np.ndarray) -> Answer:
        """The answers of a reference in SCORES that is fitted on the training records, with scores `true_N`. Raises
        UnmaskError as `features`."""
        answer = SCORES[name](self.features(train), true_N)
        return lambda rows: answer(self.features(rows))


def logistic(features_NF: np.ndarray, true_N: np.ndarray, count: int) -> regression.Answer:
    """A logistic regression on standardised features (ExpertLR in Hong et al. 2019, "MINA", section 4)."""
    scaled = standardised(features_NF)
    answer = regression.classes(scaled(features_NF), true_N, count)
    return lambda found_NF: answer(scaled(found_NF))


def ridge(features_NF: np.ndarray, true_N: np.ndarray) -> regression.Answer:
    """A ridge regression on standardised features."""
    scaled = standardised(features_NF)
    answer = regression.scores(scaled(features_NF), true_N)
    return lambda found_NF: answer(scaled(found_NF))


def standardised(features_NF: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function that scales features as these have mean 0 and variance 1."""
    mean_F, deviation_F = features_NF.mean(0), np.maximum(features_NF.std(0), 1e-8)
    return lambda found_NF: (found_NF - mean_F) / deviation_F


def forest(features_NF: np.ndarray, true_N: np.ndarray, count: int) -> regression.Answer:
    """A random forest (Breiman 2001; ExpertRF in Hong et al. 2019), always of the same trees."""
    from sklearn.ensemble import RandomForestClassifier

    model: Any = RandomForestClassifier(TREES, min_samples_leaf=LEAF, class_weight="balanced_subsample", random_state=0)
    model.fit(features_NF, true_N)
    return lambda found_NF: regression.in_columns(model.predict_proba(found_NF), model.classes_, count)


def score_forest(features_NF: np.ndarray, true_N: np.ndarray) -> regression.Answer:
    """As `forest`, for scores."""
    from sklearn.ensemble import RandomForestRegressor

    model: Any = RandomForestRegressor(TREES, min_samples_leaf=LEAF, random_state=0)
    model.fit(features_NF, true_N)
    return lambda found_NF: np.asarray(model.predict(found_NF))[:, None]


MODELS: Mapping[str, Callable[[np.ndarray, np.ndarray, int], regression.Answer]] = {
    "expert-lr": logistic,
    "expert-rf": forest,
}
"""Name of a reference -> (features [N, F], classes [N], C) -> its answers to other features."""

SCORES: Mapping[str, Callable[[np.ndarray, np.ndarray], regression.Answer]] = {
    "expert-ridge": ridge,
    "expert-rf": score_forest,
}
"""Name of a reference -> (features [N, F], scores [N]) -> its answers [N, 1] to other features."""

"""Tags by a logistic regression on lexical features of a word and its neighbours.

Shapes: W words of a sentence, C tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from unmask.data.labelled.rows import Row
from unmask.tasks.lexical.regression import STEPS, chosen, in_columns

EDGE = "<edge>"
FAR = 5


def features(words: Sequence[str], place: int, predicate: int | None = None) -> dict[str, Any]:
    """Features of a word: the word, its shape, its prefix and suffix, and two neighbours on either side. With a
    predicate also that word, and its signed distance, of at most FAR words."""
    word = words[place]
    found: dict[str, Any] = {
        "word": word.lower(),
        "prefix": word[:3].lower(),
        "suffix": word[-3:].lower(),
        "length": min(len(word), 12) / 12,
        "underscore": "_" in word,
        "dot": "." in word[1:-1],
        "digit": any(c.isdigit() for c in word),
        "capital": word[:1].isupper(),
        "capitals within": any(c.isupper() for c in word[1:]),
        "first": place == 0,
        "punctuation": not any(c.isalnum() for c in word),
    }
    for distance in (-2, -1, 1, 2):
        at = place + distance
        neighbour = words[at] if 0 <= at < len(words) else EDGE
        found[f"word {distance:+d}"] = neighbour.lower()
        if abs(distance) == 1:
            found[f"shape {distance:+d}"] = "_" in neighbour or any(c.isupper() for c in neighbour[1:])
    if predicate is not None:
        found["predicate"] = words[predicate].lower()
        found["from predicate"] = f"{max(-FAR, min(FAR, place - predicate)):+d}"
    return found


def tag(train: Sequence[Row], test: Sequence[Row], seed: int = 0) -> list[list[str]]:
    """The most likely tags of the words of `test`."""
    labels = sorted({tag for row in train for tag in row.tags})
    return [[labels[i] for i in shares.argmax(-1)] for shares in tagger(train, labels, seed)(test)]


def tagger(train: Sequence[Row], labels: Sequence[str], seed: int = 0) -> Callable[[Sequence[Row]], list[np.ndarray]]:
    """A function from rows to probabilities of `labels` for each word, [W, C] for each row: a logistic regression
    (scikit-learn) with its C chosen on the training rows alone, or 1 where they are too few for that."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    ids = {label: i for i, label in enumerate(labels)}
    true = np.array([ids[tag] for row in train for tag in row.tags])
    groups = np.array([number for number, row in enumerate(train) for _ in row.tags])
    parts = list(GroupKFold(3).split(true, true, groups)) if len(np.unique(groups)) >= 3 else []
    vectorizer = DictVectorizer()
    vectors = vectorizer.fit_transform(_all(train))
    model = chosen(
        LogisticRegression(max_iter=STEPS, random_state=seed), {"C": [1.0, 10.0]}, vectors, true, parts, "f1_macro"
    )

    def answers(rows: Sequence[Row]) -> list[np.ndarray]:
        shares = in_columns(model.predict_proba(vectorizer.transform(_all(rows))), model.classes_, len(labels))
        return np.split(shares, np.cumsum([len(row.words) for row in rows])[:-1])

    return answers


def _all(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for place in range(len(row.words)):
            yield features(row.words, place, row.predicate)

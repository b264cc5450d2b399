"""The plain reference: a logistic regression on lexical features of a word and its neighbours, no pre-training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unmask.data.rows import Row

EDGE = "<edge>"


def features(words: Sequence[str], place: int) -> dict[str, Any]:
    """What a careful person would look at: the word, its shape, its ends, and two neighbours on either side."""
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
    return found


def tag(train: Sequence[Row], test: Sequence[Row], seed: int = 0) -> list[list[str]]:
    """Tags of the words of `test`, by a logistic regression (scikit-learn, C chosen on the training rows alone)."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, GroupKFold
    from sklearn.pipeline import make_pipeline

    labels = [tag for row in train for tag in row.tags]
    groups = [number for number, row in enumerate(train) for _ in row.tags]
    search = GridSearchCV(
        LogisticRegression(max_iter=300, random_state=seed), {"C": [1.0, 10.0]}, cv=GroupKFold(3), scoring="f1_macro"
    )
    model = make_pipeline(DictVectorizer(), search)
    model[0].fit(_all(train))
    model[1].fit(model[0].transform(_all(train)), labels, groups=groups)
    guessed = iter(model.predict(list(_all(test))))
    return [[str(next(guessed)) for _ in row.words] for row in test]


def _all(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for place in range(len(row.words)):
            yield features(row.words, place)

"""Scores of sentence vectors: how near the texts of rows lie to each other.

Shapes: N vectors, D width; R labelled rows, E texts of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask import metrics
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.tasks.similarity import Kind, score

QUERIES = 1_024  # that are compared with all candidates at a time


def cosines(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """The cosine [N] of each vector and the one beside it; one of length 0 is like none."""
    return _products(units(first_ND), units(second_ND))


def of_similarity(units_ED: Any, rows: Sequence[Row], kind: Kind) -> dict[str, float]:
    """The metrics of the texts of rows as vectors of length 1, one after the other: an array or a sparse one."""
    sizes = np.array([len(row.texts) for row in rows])
    firsts = np.cumsum(sizes) - sizes
    if kind == "texts":
        raise UnmaskError("Rows of one text say nothing of similarity; evaluate on pairs or triplets.")
    if kind == "classes":
        raise UnmaskError(
            f"{rows[0].place or 'A row'} has the class '{rows[0].label}', and vectors have no head for classes: "
            "evaluate on pairs with scores, on pairs that belong together, or on triplets."
        )
    near = _products(units_ED[firsts], units_ED[firsts + 1])
    if kind == "scores":
        found = metrics.of_scores(near.astype(np.float64), np.array([score(row.label) or 0.0 for row in rows]))
        return {name: found[name] for name in ("spearman", "pearson")}
    ranks = _ranks(units_ED, rows, firsts)
    found = {f"recall@{k}": metrics.recall_at(ranks, k) for k in (1, 10)}
    found["mrr"] = metrics.mean_reciprocal_rank(ranks)
    if kind == "triplets":
        found["accuracy"] = float((near > _products(units_ED[firsts], units_ED[firsts + 2])).mean())
    return found


def _ranks(units_ED: Any, rows: Sequence[Row], firsts: np.ndarray) -> np.ndarray:
    """The rank [R], from 1, of each row's second text among all that are not first.

    A text that stands in several rows is one candidate, and other texts that are right for the same first text are
    not counted as wrong.
    """
    numbers: dict[str, int] = {}
    places: list[int] = []
    for first, row in zip(firsts.tolist(), rows, strict=True):
        for offset, text in enumerate(row.texts[1:], 1):
            if text not in numbers:
                numbers[text] = len(places)
                places.append(first + offset)
    true = np.array([numbers[row.pair or ""] for row in rows])
    right: dict[str, set[int]] = {}
    for row, number in zip(rows, true.tolist(), strict=True):
        right.setdefault(row.text, set()).add(number)
    candidates = units_ED[np.array(places)].T
    found = []
    for begin in range(0, len(rows), QUERIES):
        part = slice(begin, begin + QUERIES)
        similar = _dense(units_ED[firsts[part]] @ candidates)
        for i, (row, own) in enumerate(zip(rows[part], true[part].tolist(), strict=True)):
            others = right[row.text] - {own}
            similar[i, list(others)] = -np.inf
        found.append(metrics.ranks(similar, true[part]))
    return np.concatenate(found)


def bags(rows: Sequence[Row], train: Sequence[Row]) -> Any:
    """The texts of rows by TF-IDF [E, words], sparse, of length 1 or 0."""
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]")
    words.fit([text for row in train for text in row.texts])
    return csr_array(words.transform([text for row in rows for text in row.texts]))


def units(vectors_ND: np.ndarray) -> np.ndarray:
    """Scaled to length 1."""
    return vectors_ND / np.maximum(np.linalg.norm(vectors_ND, axis=1, keepdims=True), 1e-12)


def _products(first: Any, second: Any) -> np.ndarray:
    """The product of each vector with the one beside it."""
    return np.asarray((first * second).sum(axis=1))


def _dense(x: Any) -> np.ndarray:
    return x.toarray() if hasattr(x, "toarray") else x

"""Scores of vectors, the similarity of the texts of rows, and answers to rows of one item or several.

Shapes: N vectors, D width; R labelled rows, E texts of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unmask import metrics
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.tasks.similarity import Kind, score

QUERIES = 1_024  # number that is compared with all candidates at a time
NUMBERS = 4  # of a vector that are shown


def cosines(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """The cosine [N] of vectors in the same row; that of a vector of length 0 is 0."""
    return _products(units(first_ND), units(second_ND))


def answer(vectors_ND: np.ndarray) -> dict[str, Any]:
    """{"embedding": [numbers]} for one item; for several, the cosine of the first with the others: {"similarity"} or
    {"similarities"}."""
    if len(vectors_ND) == 1:
        return {"embedding": vectors_ND[0].tolist()}
    similar = cosines(vectors_ND[:1], vectors_ND[1:]).tolist()
    return {"similarity": similar[0]} if len(similar) == 1 else {"similarities": similar}


def render(text: str, answer: Mapping[str, Any]) -> str:
    """The similarities; or of a vector the first numbers, their count, and its norm."""
    if "similarity" in answer:
        return f"similarity {answer['similarity']:.3f}  {text}"
    if "similarities" in answer:
        return f"similarities {' '.join(f'{s:.3f}' for s in answer['similarities'])}  {text}"
    vector = answer["embedding"]
    begin = " ".join(f"{x:+.4f}" for x in vector[:NUMBERS])
    more = " …" if len(vector) > NUMBERS else ""
    return f"[{begin}{more}] {len(vector)} numbers, norm {math.hypot(*vector):.3f}  {text}"


def of_similarity(units_ED: Any, rows: Sequence[Row], kind: Kind) -> dict[str, float]:
    """The metrics of rows by the vectors of their texts.

    units_ED  [E, D] vectors of length 1 of all texts, row by row; an array or a sparse array

    Raises UnmaskError for rows of one text and for pairs with classes.
    """
    sizes = np.array([len(row.texts) for row in rows])
    firsts = np.cumsum(sizes) - sizes
    if kind == "texts":
        raise UnmaskError("Rows of one text have no similarity to score; evaluate on pairs or triplets.")
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
    """The rank [R], from 1, of each row's second text among the second and third texts of all rows.

    A text of several rows is one candidate. Other second texts of the same first text are left out, so that they do
    not count as errors.
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
    """The TF-IDF vectors [E, words] of the texts of rows, sparse, of length 1 or 0; frequencies from `train`."""
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]")
    words.fit([text for row in train for text in row.texts])
    return csr_array(words.transform([text for row in rows for text in row.texts]))


def units(vectors_ND: np.ndarray) -> np.ndarray:
    """The vectors scaled to length 1; a vector of length 0 stays."""
    return vectors_ND / np.maximum(np.linalg.norm(vectors_ND, axis=1, keepdims=True), 1e-12)


def _products(first: Any, second: Any) -> np.ndarray:
    """The dot product [N] of vectors in the same row."""
    return np.asarray((first * second).sum(axis=1))


def _dense(x: Any) -> np.ndarray:
    return x.toarray() if hasattr(x, "toarray") else x

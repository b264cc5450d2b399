"""Ranking: the rank of the correct candidate in retrieval by similarity.

Shapes: N queries, M candidates, D width.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unmask.errors import UnmaskError

AT_ONCE = 256  # queries that are compared with all items at a time


def of_ranks(similarities: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """recall@1, recall@5, recall@10 and mrr of similarities [N, M] between queries and candidates.

    true  [N] integers: index of the correct candidate of each query
    """
    found = ranks(similarities, true)
    return {
        **{f"recall@{k}": recall_at(found, k) for k in (1, 5, 10)},
        "mrr": mean_reciprocal_rank(found),
    }


def ranks(similarities: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The rank [N], from 1, of the correct candidate among similarities [N, M].

    Ties count as errors: all candidates with the same similarity, or with NaN, rank before the correct one. So a model
    that gives all candidates the same similarity has the worst rank, in any order of the candidates.

    Raises UnmaskError if `true` is not the index of a candidate.
    """
    queries, candidates = similarities.shape
    if len(true) and (true.min() < 0 or true.max() >= candidates):
        raise UnmaskError(f"The indices of correct candidates must be from 0 to {candidates - 1}; one of them is not.")
    own = similarities[np.arange(queries), true]
    return candidates - (similarities < own[:, None]).sum(axis=1)


def recall_at(ranks: np.ndarray, k: int) -> float:
    """The share of queries whose correct candidate is among the first k; `ranks` [N] count from 1."""
    return float((ranks <= k).mean())


def mean_reciprocal_rank(ranks: np.ndarray) -> float:
    """The mean of 1 / rank over `ranks` [N], which count from 1 (Voorhees 1999)."""
    return float((1 / ranks).mean())


def of_neighbours(units_ND: np.ndarray, classes_N: np.ndarray) -> dict[str, float]:
    """Retrieval of items of the same class by cosine: each item is a query, and all others are its candidates.

    units_ND   vectors of length 1
    classes_N  the class of each item; the only item of its class is a candidate, but no query

    recall@1, recall@5, recall@10: share of queries with an item of their class among the first k. map@r: mean over the
    queries of 1/R sum over i = 1..R of P(i) rel(i), with R the other items of the class, P(i) the precision at rank i,
    and rel(i) whether item i is of the class (Musgrave et al. 2020, section 3.2). Ties and NaN count as in `ranks`;
    cosines are compared to six decimals, because products of equal vectors may differ in the last bits.

    Raises UnmaskError if no class has two items.
    """
    others_N = np.bincount(classes_N)[classes_N] - 1
    queries = np.flatnonzero(others_N)
    if not len(queries):
        raise UnmaskError("No class has two items, so that there is nothing to find.")
    first, precision = [], []
    for query, similar in _similar(units_ND, queries):
        alike = classes_N == classes_N[query]
        alike[query] = False
        own = -np.sort(-np.where(np.isnan(similar[alike]), -np.inf, similar[alike]))
        other = np.sort(similar[classes_N != classes_N[query]])  # NaN are last, as if they were the largest
        found = np.arange(1, len(own) + 1)
        ranks_R = found + len(other) - np.searchsorted(other, own)
        first.append(ranks_R[0])
        precision.append((found / ranks_R)[ranks_R <= len(own)].sum() / len(own))
    recalls = {f"recall@{k}": recall_at(np.array(first), k) for k in (1, 5, 10)}
    return {**recalls, "map@r": float(np.mean(precision))}


def _similar(units_ND: np.ndarray, queries: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each query, and its cosine [N] with every item."""
    for begin in range(0, len(queries), AT_ONCE):
        some = queries[begin : begin + AT_ONCE]
        yield from zip(some.tolist(), np.round(units_ND[some] @ units_ND.T, 6), strict=True)

"""Ranking: the rank of the correct candidate in retrieval by similarity."""

from __future__ import annotations

import numpy as np

from unmask.errors import UnmaskError


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

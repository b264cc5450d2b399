"""Ranking: how far up the right one stands, in retrieval by similarity."""

from __future__ import annotations

import numpy as np

from unmask.errors import UnmaskError


def of_ranks(similarities: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """recall@1, recall@5, recall@10 and mrr of similarities [N, M] between queries and candidates.

    true  [N] integers: which candidate is the right one of each query
    """
    found = ranks(similarities, true)
    return {
        **{f"recall@{k}": recall_at(found, k) for k in (1, 5, 10)},
        "mrr": mean_reciprocal_rank(found),
    }


def ranks(similarities: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The rank [N], from 1, of the right candidate among similarities [N, M].

    Ties count against us: the right one stands behind all that are as similar, and what is not a number stands
    before it. So a model that calls everything equal finds nothing, in whatever order the candidates come.

    Raises UnmaskError where `true` names no candidate.
    """
    queries, candidates = similarities.shape
    if len(true) and (true.min() < 0 or true.max() >= candidates):
        raise UnmaskError(f"The right candidates must be numbers from 0 to {candidates - 1}; one of them is not.")
    own = similarities[np.arange(queries), true]
    return candidates - (similarities < own[:, None]).sum(axis=1)


def recall_at(ranks: np.ndarray, k: int) -> float:
    """The share of queries whose right candidate is among the first k; `ranks` [N] count from 1."""
    return float((ranks <= k).mean())


def mean_reciprocal_rank(ranks: np.ndarray) -> float:
    """The mean of 1 / rank over `ranks` [N] that count from 1 (Voorhees 1999)."""
    return float((1 / ranks).mean())

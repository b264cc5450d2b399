"""Token vectors from co-occurrence: factorised pointwise mutual information.

Shapes: V vocabulary, K numbers of a vector, T tokens of a piece of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from unmask.data.text.corpus import Split

WINDOW = 4  # tokens on either side; a token at distance d counts 1 / d
SMOOTHING = 0.75  # exponent of the context frequencies, which reduces the weight of rare ones (Levy et al. 2015, 3.2)
MOST_TOKENS = 20_000_000  # tokens to count; of a larger text, evenly spread pieces are counted
PIECE = 1_000_000  # tokens that are counted at once


def token_vectors(splits: Sequence[Split], vocabulary: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [V, K] of the tokens of a text, and whether each [V] occurs in it; K is the smaller of `dim` and V - 1.

    The positive pointwise mutual information of each token with the tokens before it and, in separate columns, with
    those after it, is factorised by a truncated singular value decomposition: U sqrt(S). The result is similar to that
    of word2vec (Levy & Goldberg 2014, "Neural Word Embedding as Implicit Matrix Factorization"; Levy, Goldberg & Dagan
    2015, section 2.2), takes seconds for a vocabulary of a few thousand, and is the same each time. The vectors of
    tokens that occur have mean zero; the others are zero.
    """
    from scipy.sparse import hstack
    from scipy.sparse.linalg import svds

    follows = following(pieces(splits), vocabulary)
    occurs = np.asarray(follows.sum(axis=0) + follows.sum(axis=1)).ravel() > 0
    vectors = np.zeros((vocabulary, min(dim, vocabulary - 1)), np.float32)
    if occurs.any():
        beside = hstack([information(follows), information(follows.T)]).tocsr().astype(np.float32)
        u, s, _ = svds(beside, k=vectors.shape[1], v0=np.ones(vocabulary, np.float32))
        vectors[occurs] = (u * np.sqrt(s))[occurs]
        vectors[occurs] -= vectors[occurs].mean(axis=0)
    return vectors, occurs


def pieces(splits: Sequence[Split]) -> Iterator[np.ndarray]:
    """The tokens [T] of a text in order, in pieces of documents; about MOST_TOKENS tokens of a longer text."""
    every = max(1, -(-sum(split.tokens for split in splits) // MOST_TOKENS))
    for split in splits:
        for unit in split.units(PIECE)[::every].tolist():
            yield np.concatenate(split.read(unit).sentences)


def following(pieces: Iterable[np.ndarray], vocabulary: int) -> Any:
    """[V, V] sparse: how often each token precedes each other one by at most WINDOW tokens within a piece, weighted by
    1 / distance."""
    from scipy.sparse import csr_array

    total = csr_array((vocabulary, vocabulary), dtype=np.float64)
    for text in _joined(pieces):
        for distance in range(1, WINDOW + 1):
            first, second = text[:-distance], text[distance:]
            within = (first >= 0) & (second >= 0)
            weights = np.full(int(within.sum()), 1 / distance)
            total = total + csr_array((weights, (first[within], second[within])), shape=total.shape)
    return total


def _joined(pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Concatenations of about PIECE tokens, in which each piece is followed by WINDOW times -1."""
    edge = np.full(WINDOW, -1, np.int64)
    waiting: list[np.ndarray] = []
    for piece in pieces:
        waiting += [piece.astype(np.int64), edge]
        if sum(map(len, waiting)) >= PIECE:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def information(counts: Any) -> Any:
    """[V, V] sparse: max(0, log p(token, context) / (p(token) p(context))) from counts [V, V], contexts smoothed."""
    from scipy.sparse import csr_array

    pairs = counts.tocoo()
    tokens, contexts = (np.asarray(pairs.sum(axis=axis)).ravel() for axis in (1, 0))
    smoothed = contexts**SMOOTHING / (contexts**SMOOTHING).sum()
    found = np.log(pairs.data / (tokens[pairs.row] * smoothed[pairs.col]))
    kept = found > 0
    return csr_array((found[kept], (pairs.row[kept], pairs.col[kept])), shape=pairs.shape)

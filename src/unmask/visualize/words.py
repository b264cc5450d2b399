"""Word vectors: projections, nearest neighbours, analogies.

Shapes: V words, N points, D width.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, needs, unknown
from unmask.models.model import Model
from unmask.visualize.numbers import Data

METHODS = {
    "pca": "PCA: the two directions of largest variance; large distances can be trusted",
    "tsne": "t-SNE (van der Maaten & Hinton 2008): neighbours stay neighbours; sizes of groups and the distances "
    "between them mean little",
    "umap": "UMAP (McInnes et al. 2018): neighbours stay neighbours; distances between groups mean little",
}
MOST = 2_000  # most points of a projection
CLUSTERS = 8  # most clusters of a projection: the colours of the page
SPELLINGS = 20_000  # number of most frequent words in the search for similar spellings


@dataclass(frozen=True)
class Vectors:
    """Words and a vector for each: the token table of a model, or word vectors.

    words   V different words
    matrix  [V, D] float32
    """

    words: Sequence[str]
    matrix: np.ndarray

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def unit(self) -> np.ndarray:
        """[V, D] scaled to length 1; zero vectors stay zero."""
        return _unit(self.matrix)

    def place(self, word: str) -> int:
        """Row of a word, as written or in lower case. Raises UnmaskError for an unknown word."""
        found = self.index.get(word, self.index.get(word.lower()))
        if found is None:
            near = difflib.get_close_matches(word.lower(), self.words[:SPELLINGS], n=1, cutoff=0.75)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            raise UnmaskError(f"There is no vector for '{word}' among {len(self.words):,} words{hint}")
        return found

    def nearest(self, plus: Sequence[str], minus: Sequence[str] = (), top: int = 10) -> list[Data]:
        """The words nearest to the sum of the unit vectors of `plus` minus those of `minus`, by cosine, without the
        words of the query. king − man + woman is plus=["king", "woman"], minus=["man"] (Mikolov et al. 2013)."""
        if not plus and not minus:
            raise UnmaskError("There is no word in the query: name at least one.")
        added, taken = [self.place(word) for word in plus], [self.place(word) for word in minus]
        query_D = self.unit[added].sum(0) - self.unit[taken].sum(0)
        cosine_V = self.unit @ (query_D / (np.linalg.norm(query_D) or 1))
        cosine_V[added + taken] = -np.inf
        count = min(max(top, 1), len(self.words) - len({*added, *taken}))
        return [{"word": self.words[i], "cosine": float(cosine_V[i])} for i in np.argsort(-cosine_V)[:count].tolist()]

    def some(self, rows: Sequence[int]) -> Vectors:
        """The vectors of some rows, in this order."""
        return Vectors([self.words[i] for i in rows], self.matrix[list(rows)])


def of_model(model: Model, tokenizer: Tokenizer) -> Vectors:
    """The embeddings of the whole words in the vocabulary of a model, in its order, which is roughly by frequency.
    Pieces that continue a word, special tokens and unused entries are left out. For an encoder–decoder, the embeddings
    of the source side.

    Raises UnmaskError for a model without a token table, and for one whose tokens are single characters.
    """
    table = model.token_table
    if table is None:
        raise UnmaskError("This model has no embedding table: it reads words by their characters, or reads vectors.")
    begin = [i for i in np.flatnonzero(~tokenizer.continuation).tolist() if i not in tokenizer.specials]
    pieces = dict(zip(begin, tokenizer.pieces(begin), strict=True))
    rows = [i for i, piece in pieces.items() if any(c.isalpha() for c in piece) and not piece.startswith("[")]
    if not rows:
        raise UnmaskError("This model has no word vectors: its tokens are single characters.")
    with torch.no_grad():
        matrix = table(torch.tensor(rows, device=model.device)).float().cpu().numpy()
    words: dict[str, int] = {}
    for row, i in enumerate(rows):
        words.setdefault(pieces[i].removeprefix("Ġ").removeprefix("▁"), row)
    return Vectors(list(words), matrix[list(words.values())])


def projected(matrix: np.ndarray, method: str = "pca", seed: int = 0) -> tuple[np.ndarray, list[float]]:
    """(coordinates [N, 2], the explained shares of variance: two for PCA, else none).

    Raises UnmaskError for fewer than three points, more than MOST, an unknown method, and if UMAP is not installed.
    """
    N = len(matrix)
    if method not in METHODS:
        raise unknown("projection", method, METHODS)
    if not 3 <= N <= MOST:
        raise UnmaskError(f"A projection takes 3 to {MOST:,} points, not {N:,}.")
    if method == "pca":
        return _pca(matrix)
    if method == "tsne":
        from sklearn.manifold import TSNE

        found = TSNE(perplexity=min(30.0, (N - 1) / 3), init="pca", random_state=seed).fit_transform(matrix)
        return found.astype(np.float32), []
    try:
        from umap import UMAP
    except ImportError:
        raise needs("UMAP needs umap-learn", "umap", "use pca or tsne") from None
    found = UMAP(n_neighbors=min(15, N - 1), metric="cosine", random_state=seed, n_jobs=1).fit_transform(matrix)
    return np.asarray(found, np.float32), []


def cloud(vectors: Vectors, words: Sequence[str] = (), *, method: str = "pca", count: int = 300, seed: int = 0) -> Data:
    """The points of a projection: with `words`, each of them and its nearest neighbours, else the first `count` words
    of three letters or more."""
    if words:
        around = max(2, count // len(words) - 1)
        rows = [vectors.place(word) for word in words]
        for word in words:
            rows += [vectors.index[near["word"]] for near in vectors.nearest([word], top=around)]
        rows = list(dict.fromkeys(rows))
    else:
        long = [
            i for i, word in enumerate(vectors.words) if len(word) > 2
        ]  # shorter entries are mostly letters and syllables
        rows = (long if len(long) > 2 else list(range(len(vectors.words))))[:count]
    some = vectors.some(rows)
    places_N2, shares = projected(some.unit, method, seed)
    asked = {vectors.words[vectors.place(word)] for word in words}
    return {
        "view": "words",
        "method": method,
        "methods": METHODS,
        "shares": shares,
        "points": [
            {"word": word, "x": float(x), "y": float(y), "asked": word in asked, "cluster": cluster}
            for word, (x, y), cluster in zip(some.words, places_N2, clusters(some, seed), strict=True)
        ],
        "total": len(vectors.words),
    }


def clusters(vectors: Vectors, seed: int = 0) -> list[int]:
    """The cluster of each vector by k-means on unit vectors, largest cluster first; k is at most CLUSTERS, and at most
    one for each eight words."""
    from sklearn.cluster import KMeans

    count = max(1, min(CLUSTERS, len(vectors) // 8))
    found = KMeans(count, n_init=3, random_state=seed).fit_predict(vectors.unit)
    rank = np.argsort(np.argsort(-np.bincount(found, minlength=count), kind="stable"))
    return [int(one) for one in rank[found]]


def _pca(matrix: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Project to the first two right singular vectors of the centred matrix, with fixed signs, so that the result is
    deterministic."""
    centred = (matrix - matrix.mean(0)).astype(np.float64)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(1)])
    places = (left * sizes * signs)[:, :2]
    if places.shape[1] < 2:  # vectors of one number
        places = np.pad(places, ((0, 0), (0, 1)))
    variance = sizes**2
    return places.astype(np.float32), (variance[:2] / (variance.sum() or 1.0)).tolist()


def _unit(matrix: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit: np.ndarray = matrix / np.where(lengths > 0, lengths, 1)
    return unit

"""Words in space: projections, nearest neighbours, analogies.

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
    "pca": "PCA: the two directions in which the vectors differ most; distances far apart can be trusted",
    "tsne": "t-SNE (van der Maaten & Hinton 2008): neighbours stay neighbours; sizes of groups and the distances "
    "between them mean little",
    "umap": "UMAP (McInnes et al. 2018): neighbours stay neighbours; distances between groups mean little",
}
MOST = 2_000  # points of a projection
SPELLINGS = 20_000  # most frequent words among which a like spelling is looked for


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
        """[V, D] at length 1; a vector of zeros stays as it is."""
        return _unit(self.matrix)

    def place(self, word: str) -> int:
        """Row of a word, as it is or in small letters. Raises UnmaskError where there is none."""
        found = self.index.get(word, self.index.get(word.lower()))
        if found is None:
            near = difflib.get_close_matches(word.lower(), self.words[:SPELLINGS], n=1, cutoff=0.75)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            raise UnmaskError(f"There is no vector for '{word}' among {len(self.words):,} words{hint}")
        return found

    def nearest(self, plus: Sequence[str], minus: Sequence[str] = (), top: int = 10) -> list[Data]:
        """The words nearest to the sum of the unit vectors of `plus` less those of `minus`, by cosine; words that were
        asked with are left out. king − man + woman is plus=["king", "woman"], minus=["man"] (Mikolov et al. 2013)."""
        if not plus and not minus:
            raise UnmaskError("Nearest to what? Name at least one word.")
        added, taken = [self.place(word) for word in plus], [self.place(word) for word in minus]
        query_D = self.unit[added].sum(0) - self.unit[taken].sum(0)
        cosine_V = self.unit @ (query_D / (np.linalg.norm(query_D) or 1))
        cosine_V[added + taken] = -np.inf
        count = min(max(top, 1), len(self.words) - len({*added, *taken}))
        return [{"word": self.words[i], "cosine": float(cosine_V[i])} for i in np.argsort(-cosine_V)[:count].tolist()]

    def some(self, rows: Sequence[int]) -> Vectors:
        """Those of some rows, in this order."""
        return Vectors([self.words[i] for i in rows], self.matrix[list(rows)])


def of_model(model: Model, tokenizer: Tokenizer) -> Vectors:
    """The vectors that the model looks up for its whole words, in the order of the vocabulary, which is about that of
    their frequency; pieces that continue a word, special tokens and unused entries are left out. Of an encoder–decoder,
    those of what it reads.

    Raises UnmaskError for a model that has none.
    """
    table = model.token_table
    if table is None:
        raise UnmaskError("This model has no table of word vectors: it spells its words, or reads vectors.")
    begin = [i for i in np.flatnonzero(~tokenizer.continuation).tolist() if i not in tokenizer.specials]
    pieces = dict(zip(begin, tokenizer.pieces(begin), strict=True))
    rows = [i for i, piece in pieces.items() if any(c.isalpha() for c in piece) and not piece.startswith("[")]
    if not rows:
        raise UnmaskError("This model has no vectors of words: its tokens are single characters.")
    with torch.no_grad():
        matrix = table(torch.tensor(rows, device=model.device)).float().cpu().numpy()
    words: dict[str, int] = {}
    for row, i in enumerate(rows):
        words.setdefault(pieces[i].removeprefix("Ġ").removeprefix("▁"), row)
    return Vectors(list(words), matrix[list(words.values())])


def projected(matrix: np.ndarray, method: str = "pca", seed: int = 0) -> tuple[np.ndarray, list[float]]:
    """([N, 2] places in the plane, shares of the variance that they show: of PCA two, else none).

    Raises UnmaskError for fewer than three points, more than MOST, an unknown method, and UMAP that is not installed.
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
        raise needs("UMAP needs umap-learn", "umap", "take pca or tsne") from None
    found = UMAP(n_neighbors=min(15, N - 1), metric="cosine", random_state=seed, n_jobs=1).fit_transform(matrix)
    return np.asarray(found, np.float32), []


def cloud(vectors: Vectors, words: Sequence[str] = (), *, method: str = "pca", count: int = 300, seed: int = 0) -> Data:
    """Points of the projector: with `words`, each of them and its nearest neighbours, else the first `count` words
    of three letters or more."""
    if words:
        around = max(2, count // len(words) - 1)
        rows = [vectors.place(word) for word in words]
        for word in words:
            rows += [vectors.index[near["word"]] for near in vectors.nearest([word], top=around)]
        rows = list(dict.fromkeys(rows))
    else:
        long = [i for i, word in enumerate(vectors.words) if len(word) > 2]  # letters and syllables say little
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
            {"word": word, "x": float(x), "y": float(y), "asked": word in asked}
            for word, (x, y) in zip(some.words, places_N2, strict=True)
        ],
        "total": len(vectors.words),
    }


def _pca(matrix: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Onto the first two right singular vectors of the centred matrix; signs are fixed, so that it never flips."""
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

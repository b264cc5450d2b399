"""WordVectors: a vector for every word, queries, and the folder of the vectors."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from unmask.config import LARGEST, read_json
from unmask.errors import UnmaskError
from unmask.files import atomic, write_text

TENSORS, WORDS = "vectors.safetensors", "words.json"
LONGEST = 512  # largest mean bytes of a word and its count in words.json
SPELLINGS = 50_000  # most frequent words that are searched for a similar spelling

Word = str | int
"""A word, or the number of an item, which stands for the word with its digits."""


class WordVectors:
    """Words, most frequent first, and a vector [D] for each.

    words   V different words
    matrix  [V, D] float32
    counts  [V] int64 count of each word; None if the counts are unknown
    notes   sentences on vectors that were left out while reading

    `vectors["king"]` is a vector, `"king" in vectors` a test, `len(vectors)` is V. Similarities are cosines. A query
    with an unknown word raises UnmaskError, which names a similar spelling. The constructor raises UnmaskError if the
    number of words is not that of the vectors or counts, if a word occurs twice, and for numbers that are not finite.
    """

    def __init__(
        self, words: Sequence[str], matrix: np.ndarray, counts: np.ndarray | None = None, *, notes: Sequence[str] = ()
    ) -> None:
        self.words = list(words)
        self.notes = tuple(notes)
        self.matrix = np.ascontiguousarray(matrix, dtype=np.float32)
        self.counts = None if counts is None else np.asarray(counts, dtype=np.int64)
        self.index = {word: i for i, word in enumerate(self.words)}
        if self.matrix.ndim != 2 or not self.matrix.shape[1] or len(self.words) != len(self.matrix):
            raise UnmaskError(f"{len(self.words):,} words do not go with vectors of shape {list(self.matrix.shape)}.")
        if self.counts is not None and self.counts.shape != (len(self.words),):
            raise UnmaskError(f"{len(self.words):,} words do not go with {self.counts.size:,} counts.")
        if len(self.index) < len(self.words):
            twice = next(word for i, word in enumerate(self.words) if self.index[word] != i)
            raise UnmaskError(f"The word '{twice}' has two vectors; keep one of them.")
        if not np.isfinite(self.matrix).all():
            row = int(np.flatnonzero(~np.isfinite(self.matrix).all(1))[0])
            raise UnmaskError(f"The vector of '{self.words[row]}' (row {row + 1}) is not made of finite numbers.")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return str(word) in self.index

    def __getitem__(self, word: Word) -> np.ndarray:
        vector_D: np.ndarray = self.matrix[self.place(word)]
        return vector_D

    @property
    def dim(self) -> int:
        """D, numbers of a vector."""
        return int(self.matrix.shape[1])

    @cached_property
    def lengths(self) -> np.ndarray:
        """[V] the length of each vector; 1 for a zero vector, so that a division by its length does not change it."""
        lengths_V = np.sqrt(np.einsum("vd,vd->v", self.matrix, self.matrix))
        return np.where(lengths_V > 0, lengths_V, np.float32(1))

    def unit(self, rows: slice | list[int] = slice(None)) -> np.ndarray:
        """[N, D] the vectors of some rows, or of all, scaled to length 1."""
        unit_ND: np.ndarray = self.matrix[rows] / self.lengths[rows, None]
        return unit_ND

    # -- queries

    def most_similar(
        self, positive: Iterable[Word] = (), negative: Iterable[Word] = (), top: int = 10
    ) -> list[tuple[str, float]]:
        """The `top` words nearest to the sum of the unit vectors of `positive` minus those of `negative`, with cosines.

        The given words are left out. Raises UnmaskError without any word, for unknown words, and for `top` below 1.
        """
        positive, negative = _several(positive), _several(negative)
        added, taken = [self.place(w) for w in positive], [self.place(w) for w in negative]
        if not added and not taken:
            raise UnmaskError("Give at least one word.")
        if top < 1:
            raise UnmaskError(f"The number of words to find must be at least 1, not {top}.")
        query_D = self.unit(added).sum(0) - self.unit(taken).sum(0)
        scores_V = self.matrix @ (query_D / (np.linalg.norm(query_D) or 1)) / self.lengths
        scores_V[added + taken] = -np.inf
        best = largest(scores_V, min(top, len(self) - len({*added, *taken})))
        return [(self.words[i], float(scores_V[i])) for i in best]

    def analogy(self, a: Word, b: Word, c: Word, top: int = 1) -> list[tuple[str, float]]:
        """a is to b as c is to …: the words nearest to b - a + c (3CosAdd; Mikolov et al. 2013c, section 4)."""
        return self.most_similar([b, c], [a], top)

    def similarity(self, a: Word, b: Word) -> float:
        """Cosine of two words."""
        a_D, b_D = self.unit([self.place(a), self.place(b)])
        return float(a_D @ b_D)

    def odd_one_out(self, words: Sequence[Word]) -> str:
        """The word whose vector is furthest from the mean of all of them."""
        places = [self.place(word) for word in words]
        if len(set(places)) < 2:
            raise UnmaskError("Give at least two different words.")
        unit_ND = self.unit(places)
        return self.words[places[int(np.argmin(unit_ND @ unit_ND.mean(0)))]]

    def place(self, word: Word) -> int:
        """Row of a word. Raises UnmaskError for an unknown word."""
        found = self.index.get(str(word))
        if found is None:
            raise UnmaskError(f"There is no vector for '{word}' among {len(self):,} words{self._hint(str(word))}")
        return found

    def _hint(self, word: str) -> str:
        for other in (word.lower(), word.capitalize(), word.upper()):
            if other in self.index:
                return f"; did you mean '{other}'?"
        likely = [w for w in islice(self.words, SPELLINGS) if abs(len(w) - len(word)) < 3]
        near = difflib.get_close_matches(word, likely, n=1, cutoff=0.75)
        return f"; did you mean '{near[0]}'?" if near else "."

    # -- the folder

    def save(self, folder: str | Path) -> None:
        """Write `vectors.safetensors` and `words.json` into a folder, each whole or not at all."""
        from safetensors.numpy import save_file

        folder = Path(folder)
        with atomic(folder / TENSORS) as temporary:
            save_file({"vectors": self.matrix}, temporary)
        counts = None if self.counts is None else self.counts.tolist()
        write_text(folder / WORDS, json.dumps({"words": self.words, "counts": counts}) + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote. Raises UnmaskError for a folder that holds no vectors, or damaged ones."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        folder = Path(folder)
        if not (folder / TENSORS).is_file():
            if (folder / "checkpoint").is_dir():
                command = f"unmask pretrain --out {folder} --resume"
                raise UnmaskError(f"{folder} holds no word vectors yet; continue with: {command}")
            if (folder / "config.json").is_file():
                of_texts = f"unmask.Embedder({str(folder)!r}).similarity compares texts, if it is an encoder"
                raise UnmaskError(f"{folder} holds a model, and no word vectors: in Python, {of_texts}.")
            raise UnmaskError(f"{folder} holds no word vectors ({TENSORS} is missing).")
        try:
            tensors = load_file(folder / TENSORS)
        except (OSError, SafetensorError, ValueError) as error:
            raise UnmaskError(f"{folder / TENSORS} cannot be read: {error}.") from None
        matrix = tensors.get("vectors", np.empty(0))
        rows = min([*matrix.shape[:1], matrix.size])  # a damaged matrix without columns may have any number of rows
        facts = read_json(folder / WORDS, max(LARGEST, LONGEST * rows))  # large for millions of words
        words, counts = facts.get("words"), facts.get("counts")
        if "vectors" not in tensors or not _all(words, str) or not (counts is None or _all(counts, int)):
            raise UnmaskError(f"{folder} is damaged: {TENSORS} and {WORDS} must hold vectors, words and counts.")
        assert words is not None
        try:
            return cls(words, matrix, None if counts is None else np.array(counts, dtype=np.int64))
        except (UnmaskError, OverflowError) as error:
            raise UnmaskError(f"{folder} is damaged: {error}") from None


def largest(scores_V: np.ndarray, top: int) -> np.ndarray:
    """[top] indices of the largest scores, in descending order; equals in their order."""
    if top < len(scores_V):
        least = np.partition(scores_V, len(scores_V) - top)[len(scores_V) - top] if top else np.inf
        candidates = np.flatnonzero(scores_V >= least)
    else:
        candidates = np.arange(len(scores_V))
    order: np.ndarray = candidates[np.argsort(-scores_V[candidates], kind="stable")[:top]]
    return order


def _several(words: Iterable[Word] | Word) -> list[Word]:
    """A single word is a list of one."""
    return [words] if isinstance(words, str | int) else list(words)


def _all(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)

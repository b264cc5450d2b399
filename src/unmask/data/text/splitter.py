"""Splitter: what cuts texts into pieces, and joins pieces to a text; a text that is cut; a side of a vocabulary.

Shapes: T pieces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Encoding:
    """Pieces of one text, or of a sequence of words, without special tokens around them.

    ids      [T] int32
    offsets  [T, 2] int32: begin and end in characters of the raw string (of its own word, for `encode_words`)
    words    [T] int32: index of the word that the piece belongs to; -1 for a special token
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


Located = tuple[list[int], list[tuple[int, int]], list[int]]
"""Ids, offsets and words of one text, as in an `Encoding`, in lists, which are faster for a few pieces."""


class Splitter(ABC):
    """Cuts texts into pieces and joins pieces to a text.

    kind       how it cuts: "WordPiece", "BPE", "sentencepiece", "word", "character"
    cased      whether capitals are kept
    separator  what stands before a text that is encoded by itself but follows another: a space where a piece tells by
               the space before it that it begins a word (byte-level BPE), else nothing
    controls   pieces that never come from a text and never go into one
    joins_special  whether `join` takes special pieces, too
    """

    kind: str
    cased: bool = True
    separator: str = ""
    controls: frozenset[str] = frozenset()
    joins_special: bool = False

    @abstractmethod
    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """The pieces of each text."""

    @abstractmethod
    def locate(self, text: str) -> list[tuple[str, int, int]]:
        """The pieces of a text, each with its begin and end in the characters of the text."""

    @abstractmethod
    def join(self, pieces: Sequence[str]) -> str:
        """The text of the pieces."""

    @abstractmethod
    def begins(self, piece: str) -> bool:
        """Whether a piece begins a word, wherever it stands."""

    @abstractmethod
    def facts(self) -> Any:
        """JSON values that say all there is to know of it."""

    def ids(
        self, texts: Sequence[str], known: Mapping[str, int], unknown: int, *, special: bool = False
    ) -> list[np.ndarray]:
        """Ids of each text, [T] int32, from the ids of the `known` pieces. `special`: a text may bring in special
        pieces, where the kind of splitter can read them."""
        return [np.array([known.get(piece, unknown) for piece in row], np.int32) for row in self.split(texts)]

    def encode(
        self, texts: Sequence[str], known: Mapping[str, int], unknown: int, *, special: bool = False
    ) -> list[Located]:
        """The same with the places of the pieces, and the words that they belong to."""
        found = []
        for text in texts:
            pieces = self.locate(text)
            words = accumulate(int(i > 0 and self.begins(piece)) for i, (piece, _, _) in enumerate(pieces))
            ids = [known.get(piece, unknown) for piece, _, _ in pieces]
            found.append((ids, [(begin, end) for _, begin, end in pieces], list(words)))
        return found

    def with_special(self, pieces: Sequence[str], end: str) -> Splitter:
        """One that knows more special pieces; `end` is the piece that ends a text."""
        return self


@dataclass(frozen=True, slots=True)
class Template:
    """Special tokens around one sequence or two.

    gaps      ids of the special tokens before the first sequence, after it, and so on
    segments  their segment ids
    inside    segment id of each sequence
    """

    gaps: tuple[tuple[int, ...], ...]
    segments: tuple[tuple[int, ...], ...]
    inside: tuple[int, ...]

    @property
    def cost(self) -> int:
        """Number of special tokens."""
        return sum(map(len, self.gaps))

    @classmethod
    def ending(cls, sep: int, sequences: int) -> Template:
        """`sep` after each sequence, as encoder–decoders read their sources."""
        return cls(((), *[(sep,)] * sequences), ((), *[(0,)] * sequences), (0,) * sequences)


@dataclass(frozen=True, kw_only=True)
class Side:
    """What a tokenizer is made of: all of it, or one side of a translation.

    vocabulary  piece -> id
    roles       "pad", "unk", "sep", and if there are such pieces "cls" and "mask" -> the piece that plays the role
    added       further special pieces, which no text brings in
    templates   special tokens around one sequence and around two; None: `sep` after each, as encoder–decoders have it
    sentinels   whether a text may bring in sentinels, such as <extra_id_0>, and a tag, such as `>>fra<<`
    """

    splitter: Splitter
    vocabulary: Mapping[str, int]
    roles: Mapping[str, str]
    added: frozenset[str] = frozenset()
    templates: tuple[Template, Template] | None = None
    sentinels: bool = False

"""Splitter cuts texts into pieces, and joins pieces to a text. Encoding, Template, and the parts of a tokenizer (Side).

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
    offsets  [T, 2] int32: begin and end of each piece in characters of the text (in `encode_words`, of its word)
    words    [T] int32: index of the word that the piece belongs to; -1 for a special token
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


Located = tuple[list[int], list[tuple[int, int]], list[int]]
"""Ids, offsets and words of one text, as in an `Encoding`, but as lists, which are faster for few pieces."""


class Splitter(ABC):
    """Cuts texts into pieces and joins pieces to a text.

    kind           "WordPiece", "BPE", "sentencepiece", "word", "spaced", "character"
    cased          whether capitals are kept
    separator      prefix for a text that is encoded separately but follows another one: a space if the pieces that
                   begin a word include the space before it (byte-level BPE), else empty
    controls       pieces that texts cannot contain
    joins_special  whether `join` accepts special pieces too
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
        """The pieces of a text, each with its begin and end in characters of the text."""

    @abstractmethod
    def join(self, pieces: Sequence[str]) -> str:
        """The text of the pieces."""

    @abstractmethod
    def begins(self, piece: str) -> bool:
        """Whether a piece always begins a word."""

    @abstractmethod
    def facts(self) -> Any:
        """JSON values that describe the splitter completely, for the fingerprint."""

    def ids(
        self, texts: Sequence[str], known: Mapping[str, int], unknown: int, *, special: bool = False
    ) -> list[np.ndarray]:
        """Ids of each text, [T] int32.

        known    piece -> id
        unknown  id of all other pieces
        special  whether to read special pieces in the texts, if the splitter can
        """
        return [np.array([known.get(piece, unknown) for piece in row], np.int32) for row in self.split(texts)]

    def encode(
        self, texts: Sequence[str], known: Mapping[str, int], unknown: int, *, special: bool = False
    ) -> list[Located]:
        """As `ids`, with the offsets of the pieces, and the words that they belong to."""
        found = []
        for text in texts:
            pieces = self.locate(text)
            words = accumulate(int(i > 0 and self.begins(piece)) for i, (piece, _, _) in enumerate(pieces))
            ids = [known.get(piece, unknown) for piece, _, _ in pieces]
            found.append((ids, [(begin, end) for _, begin, end in pieces], list(words)))
        return found

    def with_special(self, pieces: Sequence[str], end: str) -> Splitter:
        """A splitter with more special pieces; `end` is the piece that ends a text."""
        return self


@dataclass(frozen=True, slots=True)
class Template:
    """The special tokens around one sequence or two.

    gaps      ids of the special tokens before the first sequence, after it, and so on
    segments  the segment ids of these tokens
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
        """The template of encoder–decoders: `sep` after each sequence."""
        return cls(((), *[(sep,)] * sequences), ((), *[(0,)] * sequences), (0,) * sequences)


@dataclass(frozen=True, kw_only=True)
class Side:
    """The parts of a tokenizer, or of one side of a translation.

    vocabulary  piece -> id
    roles       role -> piece, for "pad", "unk", "sep" and, if there are such pieces, "cls" and "mask"
    added       further special pieces, which texts cannot contain
    templates   special tokens around one sequence and around two; None: `sep` after each, as in encoder–decoders
    sentinels   whether texts may contain sentinels, such as <extra_id_0>, and a tag, such as `>>fra<<`
    """

    splitter: Splitter
    vocabulary: Mapping[str, int]
    roles: Mapping[str, str]
    added: frozenset[str] = frozenset()
    templates: tuple[Template, Template] | None = None
    sentinels: bool = False

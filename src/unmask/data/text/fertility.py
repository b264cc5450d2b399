"""Fertility: the number of pieces per word of a text, and the words that a tokenizer splits most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tokenizers import models, pre_tokenizers

from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary import sample
from unmask.errors import UnmaskError

BYTE_BUDGET = 100_000_000  # bytes of text that are kept in memory while words are counted


@dataclass(frozen=True, slots=True)
class Torn:
    """A word that is split: its count in the text, and its pieces."""

    word: str
    count: int
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fertility:
    """The result of splitting the words of a text into pieces.

    words    number of running words: runs between whitespace and punctuation with a letter or a digit
    pieces   number of their pieces
    whole    number of words that are one known piece
    unknown  number of pieces that are the unknown token
    torn     the split words with the most additional pieces: by count x (pieces - 1), the largest first
    lost     the most frequent words with an unknown piece
    """

    words: int
    pieces: int
    whole: int
    unknown: int
    torn: tuple[Torn, ...]
    lost: tuple[Torn, ...]

    @property
    def per_word(self) -> float:
        """Pieces per word, at least 1 (Rust et al. 2021, section 3.2, "subword fertility")."""
        return self.pieces / self.words

    @property
    def whole_share(self) -> float:
        """Share of the words that are one known piece."""
        return self.whole / self.words

    @property
    def unknown_share(self) -> float:
        """Share of the pieces that are the unknown token."""
        return self.unknown / self.pieces

    def to_dict(self) -> dict[str, Any]:
        shares = {"per_word": self.per_word, "whole_share": self.whole_share, "unknown_share": self.unknown_share}
        return {**shares, **asdict(self)}


def fertility(tokenizer: Tokenizer, texts: Iterable[str], *, top: int = 20) -> Fertility:
    """The fertility of a tokenizer on texts, with the `top` most expensive words.

    Of a larger text, a sample of about BYTE_BUDGET bytes, spread over all of it, is counted (`vocabulary.sample`).
    Raises UnmaskError for texts without words.
    """
    return of_words(tokenizer, count_words(tokenizer, texts), top=top)


def count_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """The count of each word, after the tokenizer's normaliser (which often lower-cases).

    Words are the pre-tokens of WordPiece: runs between whitespace and punctuation. Other tokenizers, which split a word
    in its context, are measured on the same words. Punctuation marks are not words.
    """
    normalizer, splitter = tokenizer.raw.normalizer, pre_tokenizers.BertPreTokenizer()
    if is_wordpiece(tokenizer) and tokenizer.raw.pre_tokenizer is not None:
        splitter = tokenizer.raw.pre_tokenizer
    counts: Counter[str] = Counter()
    for passage in sample(texts, BYTE_BUDGET):
        plain = passage if normalizer is None else normalizer.normalize_str(passage)
        counts.update(word for word, _ in splitter.pre_tokenize_str(plain))
    return Counter({word: n for word, n in counts.items() if any(map(str.isalnum, word))})


def of_words(tokenizer: Tokenizer, counts: Mapping[str, int], *, top: int = 20) -> Fertility:
    """The fertility on words that `count_words` counted. Raises UnmaskError if there are none."""
    if not counts:
        raise UnmaskError("The text has no words to count; give a text with words.")
    words = sorted(counts)  # an order that does not depend on the order of the texts
    numbers = np.array([counts[word] for word in words])
    lengths = np.empty(len(words), np.int64)
    unknown = np.empty(len(words), np.int64)
    for i, word in enumerate(words):
        ids = _ids(tokenizer, word)
        lengths[i], unknown[i] = len(ids), ids.count(tokenizer.unknown)
    known = unknown == 0

    def first(worth: np.ndarray) -> tuple[Torn, ...]:
        order = [int(i) for i in np.argsort(-worth, kind="stable")[:top] if worth[i] > 0]
        return tuple(Torn(words[i], int(numbers[i]), tuple(tokenizer.pieces(_ids(tokenizer, words[i])))) for i in order)

    return Fertility(
        words=int(numbers.sum()),
        pieces=int(numbers @ lengths),
        whole=int(numbers[known & (lengths == 1)].sum()),
        unknown=int(numbers @ unknown),
        torn=first(numbers * (lengths - 1)),
        lost=first(numbers * ~known),
    )


def is_wordpiece(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer splits words by longest match."""
    return isinstance(tokenizer.raw.model, models.WordPiece)


def _ids(tokenizer: Tokenizer, word: str) -> list[int]:
    """Ids of one normalised word inside a text; at least one."""
    if is_wordpiece(tokenizer):
        ids = [token.id for token in tokenizer.raw.model.tokenize(word)]
    else:
        ids = tokenizer.ids([tokenizer.separator + word])[0].tolist()
    return ids or [tokenizer.unknown]


def render(columns: Mapping[str, Fertility]) -> str:
    """Lines for the terminal: a column for each fertility, and the words that the first of them splits."""
    facts = {
        "words": [f"{f.words:,}" for f in columns.values()],
        "pieces per word": [f"{f.per_word:.3f}" for f in columns.values()],
        "words kept whole": [f"{f.whole_share:.1%}" for f in columns.values()],
        "unknown pieces": [f"{f.unknown_share:.2%}" for f in columns.values()],
    }
    widths = [max(len(name), 10) for name in columns]

    def row(name: str, values: Iterable[str]) -> str:
        cells = "  ".join(f"{value:>{width}}" for value, width in zip(values, widths, strict=True))
        return f"{name:18}{cells}".rstrip()

    lines = [row("", columns), *(row(name, values) for name, values in facts.items())]
    first = next(iter(columns.values()))
    for heading, words in (("Words that cost most pieces:", first.torn), ("Words that are not known:", first.lost)):
        if words:
            lines += ["", heading, *(f"{t.count:>9,}  {t.word:24}  {' '.join(t.pieces)}" for t in words)]
    return "\n".join(lines)

"""Fertility: how many pieces a tokenizer needs for each word of a text, and which words it tears."""

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

BYTE_BUDGET = 100_000_000  # of text that is held while its words are counted


@dataclass(frozen=True, slots=True)
class Torn:
    """A word that is not kept whole: how often it occurs, and its pieces."""

    word: str
    count: int
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fertility:
    """What the words of a text become.

    words    running words: runs between whitespace and punctuation that hold a letter or a digit
    pieces   that they become
    whole    words that stay one known piece
    unknown  pieces that are the unknown token
    torn     the words that cost the text most pieces: by count x (pieces - 1), the largest first
    lost     the commonest words that hold an unknown piece
    """

    words: int
    pieces: int
    whole: int
    unknown: int
    torn: tuple[Torn, ...]
    lost: tuple[Torn, ...]

    @property
    def per_word(self) -> float:
        """Pieces for each word: 1 is the least (Rust et al. 2021, section 3.2, "subword fertility")."""
        return self.pieces / self.words

    @property
    def whole_share(self) -> float:
        """Share of the words that stay one known piece."""
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

    At most about BYTE_BUDGET bytes of a larger text, spread over all of it, are counted (`vocabulary.sample`).
    Raises UnmaskError where the texts hold no words.
    """
    return of_words(tokenizer, count_words(tokenizer, texts), top=top)


def count_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs, as the tokenizer's normaliser writes it (in lower case, for many).

    Words of WordPiece are those that it tears on its own; other tokenizers, which see a word with its surroundings,
    are given the same ones: runs between whitespace and punctuation. Punctuation itself is no word.
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
    """The fertility on words that `count_words` counted. Raises UnmaskError where there are none."""
    if not counts:
        raise UnmaskError("The text holds no words to count; give it some text.")
    words = sorted(counts)  # in one order, whatever the order of the texts
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
    """Whether words are torn by longest match over a list of pieces."""
    return isinstance(tokenizer.raw.model, models.WordPiece)


def _ids(tokenizer: Tokenizer, word: str) -> list[int]:
    """Ids of one normalised word as it stands inside a text; at least one."""
    if is_wordpiece(tokenizer):
        ids = [token.id for token in tokenizer.raw.model.tokenize(word)]
    else:
        ids = tokenizer.ids([tokenizer.separator + word])[0].tolist()
    return ids or [tokenizer.unknown]


def render(columns: Mapping[str, Fertility]) -> str:
    """Fertilities side by side, by heading, and the words that the first of them tears, as lines for a person."""
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

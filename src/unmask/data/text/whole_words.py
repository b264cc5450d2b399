"""Tokenizers whose tokens are words, for word models: each of the most frequent words has a token, all others are
[UNK]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tokenizers import normalizers, pre_tokenizers

from unmask.data.text import tokenizer_files as files
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary import LONGEST_WORD, SPECIALS, sample
from unmask.errors import UnmaskError


def train(
    texts: Iterable[str],
    size: int = 8_192,
    *,
    cased: bool = False,
    strip_accents: bool = False,
    byte_budget: int = 200_000_000,
) -> Tokenizer:
    """Train a tokenizer with a token for each of the most frequent words of the texts; other words are [UNK].

    texts          read once; at most about `byte_budget` bytes of them are kept in memory
    size           largest number of tokens; [PAD] [UNK] [CLS] [SEP] [MASK] are the ids 0 … 4
    cased          whether to keep capitals; else texts are lower-cased
    strip_accents  whether `é` becomes `e`; Hangul syllables stay whole in both cases

    Words are those of WordPiece: runs between whitespace and punctuation, of at most 100 characters. The file has the
    format of a WordPiece vocabulary without continuing pieces. Raises UnmaskError for texts without words, and for a
    size that is too small.
    """
    if size <= len(SPECIALS):
        raise UnmaskError(f"A vocabulary of {size} has no room for words: set at least {len(SPECIALS) + 1}.")
    normalizer = files.bert_normalizer(cased=cased, strip_accents=strip_accents)
    counts = count(texts, normalizer, byte_budget)
    if not counts:
        raise UnmaskError("The text holds no words to learn a vocabulary from; give it some text.")
    commonest = sorted(counts, key=lambda word: (-counts[word], word))[: size - len(SPECIALS)]
    return Tokenizer.of(files.wordpiece({piece: i for i, piece in enumerate([*SPECIALS, *commonest])}, normalizer))


def count(texts: Iterable[str], normalizer: normalizers.Normalizer, byte_budget: int) -> Counter[str]:
    """The count of each word in the texts, or in a sample of about `byte_budget` bytes; words of more than LONGEST_WORD
    characters are left out."""
    cut, counts = pre_tokenizers.BertPreTokenizer(), Counter[str]()
    for passage in sample(texts, byte_budget):
        found = cut.pre_tokenize_str(normalizer.normalize_str(passage))
        counts.update(word for word, _ in found if len(word) <= LONGEST_WORD)
    return counts

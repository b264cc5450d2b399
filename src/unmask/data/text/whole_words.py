"""Tokenizers whose tokens are words, for word models: the commonest have a token each, and all others share one."""

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
    """A token for each word that the texts hold, the commonest where they hold more than fit; others are [UNK].

    texts          read once; at most about `byte_budget` bytes of them are held
    size           tokens at most; [PAD] [UNK] [CLS] [SEP] [MASK] are the ids 0 … 4
    cased          keep capitals, else lower them
    strip_accents  `é` becomes `e`; Hangul syllables stay whole either way

    Words are those of WordPiece: runs between whitespace and punctuation, of at most 100 characters. In its file it is
    WordPiece without a piece that continues with a word. Raises UnmaskError for a text without words, and too small a
    size.
    """
    if size <= len(SPECIALS):
        raise UnmaskError(f"A vocabulary of {size} holds no word: ask for at least {len(SPECIALS) + 1}.")
    normalizer = files.bert_normalizer(cased=cased, strip_accents=strip_accents)
    counts = count(texts, normalizer, byte_budget)
    if not counts:
        raise UnmaskError("The text holds no words to learn a vocabulary from; give it some text.")
    commonest = sorted(counts, key=lambda word: (-counts[word], word))[: size - len(SPECIALS)]
    return Tokenizer.of(files.wordpiece({piece: i for i, piece in enumerate([*SPECIALS, *commonest])}, normalizer))


def count(texts: Iterable[str], normalizer: normalizers.Normalizer, byte_budget: int) -> Counter[str]:
    """How often each word stands in the texts, or in a sample of them of about `byte_budget` bytes; without those of
    more than LONGEST_WORD characters."""
    cut, counts = pre_tokenizers.BertPreTokenizer(), Counter[str]()
    for passage in sample(texts, byte_budget):
        found = cut.pre_tokenize_str(normalizer.normalize_str(passage))
        counts.update(word for word, _ in found if len(word) <= LONGEST_WORD)
    return counts

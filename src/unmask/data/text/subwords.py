"""Learned vocabularies for models that write: unigram and BPE by SentencePiece, words, characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from unmask.data.text.splitter import Side, Splitter
from unmask.data.text.splitters import PLAIN, learn
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary_files import SPECIALS
from unmask.errors import UnmaskError, unknown

LEARNED = ("unigram", "bpe")
KINDS = (*LEARNED, *PLAIN)


def train(
    texts: Iterable[str],
    size: int,
    kind: str = "unigram",
    *,
    normalization: str = "nmt_nfkc",
    coverage: float = 1.0,
    byte_fallback: bool = False,
    byte_budget: int = 50_000_000,
) -> Tokenizer:
    """Learn a vocabulary of at most `size` pieces; the same texts always give the same one. A text that is too small
    for so many gives as many as it can.

    texts          of both sides, for a vocabulary that they share; read once
    size           with </s> (id 0), <unk> (1) and <pad> (the last)
    kind           "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016), both by SentencePiece, for which at most
                   about `byte_budget` bytes of the texts are held, spread evenly (`vocabulary.sample`);
                   "word" (what `splitters.Words` makes of punctuation) or "character" count all of them and
                   keep the commonest
    normalization  "nmt_nfkc" (compatibility characters and spaces made equal), "nmt_nfkc_cf" (lower case too) or
                   "identity"
    coverage       share of the characters that get an id, the rare rest being unknown: 1 for all; 0.98 or more
    byte_fallback  spell unknown characters in bytes, which takes 256 pieces

    Coverage and byte fallback are of unigram and BPE only. Raises UnmaskError for a kind or normalisation that
    does not exist, a text without words, and a size that cannot hold the characters, naming one that can.
    """
    if kind not in KINDS:
        raise unknown("kind of vocabulary", kind, KINDS)
    if size < 4:
        raise UnmaskError(f"A vocabulary of {size} is too small: three pieces are special, ask for more.")
    splitter: Splitter
    if kind in PLAIN:
        if coverage != 1 or byte_fallback:
            raise UnmaskError(f"Coverage and byte fallback are for unigram and bpe; leave them out for '{kind}'.")
        splitter = PLAIN[kind](normalization)
        pieces = [SPECIALS["sep"], SPECIALS["unk"], *_commonest(splitter, texts, size - 3)]
    else:
        splitter = learn(
            texts,
            size - 1,  # <pad> is not SentencePiece's business
            kind=kind,
            normalization=normalization,
            coverage=coverage,
            byte_fallback=byte_fallback,
            byte_budget=byte_budget,
        )
        pieces = splitter.pieces
    vocabulary = {piece: i for i, piece in enumerate([*pieces, SPECIALS["pad"]])}
    return Tokenizer(Side(splitter=splitter, vocabulary=vocabulary, roles=SPECIALS, sentinels=True))


def _commonest(splitter: Splitter, texts: Iterable[str], most: int) -> list[str]:
    """The commonest pieces of the texts, most often seen first. Raises UnmaskError where there are none."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(splitter.split([text])[0])
    if not any(piece.strip() for piece in counts):
        raise UnmaskError("The text holds no words to learn a vocabulary from; give it some text.")
    return sorted(counts, key=lambda piece: (-counts[piece], piece))[:most]

"""Vocabularies for encoder–decoders, learned from texts: unigram and BPE by SentencePiece, words, tokens between
spaces, characters."""

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
    """Learn a vocabulary of at most `size` pieces, or fewer from a small text; the same texts always give the same one.

    texts          read once; texts of both sides for a shared vocabulary
    size           number of pieces, with </s> (id 0), <unk> (1) and <pad> (the last)
    kind           "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016), both by SentencePiece, which learns from a
                   sample of about `byte_budget` bytes, spread evenly over the texts (`vocabulary.sample`); "word"
                   (`splitters.Words`), "spaced" (tokens between spaces) or "character", which count all of the texts
                   and keep the most frequent pieces
    normalization  "nmt_nfkc" (unifies compatibility characters and spaces), "nmt_nfkc_cf" (lower-cases too) or
                   "identity"
    coverage       share of the characters that get an id, from 0.98 to 1; the rarest others are unknown
    byte_fallback  whether unknown characters are spelled in bytes, which takes 256 pieces

    Coverage and byte fallback are only for unigram and BPE. Raises UnmaskError for an unknown kind or normalisation,
    texts without words, and a size that cannot hold the characters; the message then names one that can.
    """
    if kind not in KINDS:
        raise unknown("kind of vocabulary", kind, KINDS)
    if size < 4:
        raise UnmaskError(f"A vocabulary of {size} is too small: three pieces are special, so set at least 4.")
    splitter: Splitter
    if kind in PLAIN:
        if coverage != 1 or byte_fallback:
            raise UnmaskError(f"Coverage and byte fallback are for unigram and bpe; leave them out for '{kind}'.")
        splitter = PLAIN[kind](normalization)
        pieces = [SPECIALS["sep"], SPECIALS["unk"], *_commonest(splitter, texts, size - 3)]
    else:
        splitter = learn(
            texts,
            size - 1,  # SentencePiece does not know <pad>
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
    """The most frequent pieces of the texts, in order of frequency. Raises UnmaskError if there are none."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(splitter.split([text])[0])
    if not any(piece.strip() for piece in counts):
        raise UnmaskError("The text holds no words to learn a vocabulary from; give it some text.")
    return sorted(counts, key=lambda piece: (-counts[piece], piece))[:most]

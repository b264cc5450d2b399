"""Tokenizers whose tokens are characters, spaces included, for character models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, decoders, models, normalizers
from tokenizers import Tokenizer as RawTokenizer

from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary import SPECIALS, sample
from unmask.errors import UnmaskError


def train(
    texts: Iterable[str],
    size: int = 8_192,
    *,
    cased: bool = False,
    strip_accents: bool = False,
    byte_budget: int = 200_000_000,
) -> Tokenizer:
    """Train a tokenizer with a token for each of the most frequent characters of the texts; others are [UNK].

    texts          read once; at most about `byte_budget` bytes of them are kept in memory
    size           largest number of tokens; [PAD] [UNK] [CLS] [SEP] [MASK] are the ids 0 … 4
    cased          whether to keep capitals; else texts are lower-cased
    strip_accents  whether `é` becomes `e`; Hangul syllables stay whole in both cases

    The file has the format of a BPE vocabulary without merges, which other libraries can read. Characters are code
    points after Unicode normalisation (NFC), and every run of whitespace, line ends included, is one space. A corpus
    puts one space between the sentences of a document. Raises UnmaskError for texts without characters, and for a size
    that is too small.
    """
    if size <= len(SPECIALS):
        raise UnmaskError(f"A vocabulary of {size} has no room for characters: set at least {len(SPECIALS) + 1}.")
    normalizer = _normalizer(cased, strip_accents)
    counts: Counter[str] = Counter()
    for passage in sample(texts, byte_budget):
        counts.update(normalizer.normalize_str(passage))
    if not counts.keys() - {" "}:
        raise UnmaskError("The text holds no characters to learn a vocabulary from; give it some text.")
    counts[" "] = counts.total()  # the space always gets a token, because it separates sentences
    commonest = sorted(counts, key=lambda c: (-counts[c], c))[: size - len(SPECIALS)]
    vocabulary = {piece: i for i, piece in enumerate([*SPECIALS, *sorted(commonest)])}
    raw = RawTokenizer(models.BPE(vocabulary, [], unk_token="[UNK]"))
    raw.normalizer, raw.decoder = normalizer, decoders.Fuse()
    return Tokenizer.of(raw)


def _normalizer(cased: bool, strip_accents: bool) -> normalizers.Normalizer:
    """Replaces every run of whitespace by one space. NFC is last, because it composes Hangul syllables again, which
    stripping accents decomposes."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace(Regex(r"\s+"), " ")]
    if not cased:
        steps.append(normalizers.Lowercase())
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    return normalizers.Sequence([*steps, normalizers.NFC()])

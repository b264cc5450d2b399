"""Tokenizers whose tokens are characters, for character models: every character of a text is a token, spaces too."""

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
    """A token for each character that the texts hold, the commonest where they hold more than fit; others are [UNK].

    texts          read once; at most about `byte_budget` bytes of them are held
    size           tokens at most; [PAD] [UNK] [CLS] [SEP] [MASK] are the ids 0 … 4
    cased          keep capitals, else lower them
    strip_accents  `é` becomes `e`; Hangul syllables stay whole either way

    In its file it is BPE without a merge, which other libraries read as well. Characters are code points after Unicode
    normalisation (NFC), and every run of whitespace is one space, line ends too. A corpus puts one space between the
    sentences of a document. Raises UnmaskError for a text without characters and too small a size.
    """
    if size <= len(SPECIALS):
        raise UnmaskError(f"A vocabulary of {size} holds no character: ask for at least {len(SPECIALS) + 1}.")
    normalizer = _normalizer(cased, strip_accents)
    counts: Counter[str] = Counter()
    for passage in sample(texts, byte_budget):
        counts.update(normalizer.normalize_str(passage))
    if not counts.keys() - {" "}:
        raise UnmaskError("The text holds no characters to learn a vocabulary from; give it some text.")
    counts[" "] = counts.total()  # it always has its token: it stands between sentences
    commonest = sorted(counts, key=lambda c: (-counts[c], c))[: size - len(SPECIALS)]
    vocabulary = {piece: i for i, piece in enumerate([*SPECIALS, *sorted(commonest)])}
    raw = RawTokenizer(models.BPE(vocabulary, [], unk_token="[UNK]"))
    raw.normalizer, raw.decoder = normalizer, decoders.Fuse()
    return Tokenizer.of(raw)


def _normalizer(cased: bool, strip_accents: bool) -> normalizers.Normalizer:
    """One space for every run of whitespace. NFC last: it puts Hangul syllables together again, which taking accents
    off takes apart."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace(Regex(r"\s+"), " ")]
    if not cased:
        steps.append(normalizers.Lowercase())
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    return normalizers.Sequence([*steps, normalizers.NFC()])

"""Byte-level BPE: pieces are sequences of bytes, so that no character is unknown (Radford et al. 2019, section 2.2)."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from unmask.data.text.runs import WITH_SPACES, words_of
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary import LONGEST_WORD, repeated, sample
from unmask.errors import UnmaskError

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
LEAST = len(SPECIALS) + 256


def train(
    texts: Iterable[str],
    size: int = 8_192,
    *,
    cased: bool = False,
    strip_accents: bool = False,
    byte_budget: int = 200_000_000,
) -> Tokenizer:
    """Learn at most `size` pieces; the same texts always give the same ones.

    texts          read once; at most about `byte_budget` bytes of them are kept in memory (`vocabulary.sample`)
    size           <s> <pad> </s> <unk> <mask> are the ids 0 … 4; the 256 bytes follow, then the merges in their order
    cased          whether to keep capitals; else texts are lower-cased. Decoding restores a text exactly only if
                   capitals and accents are kept
    strip_accents  whether `é` becomes `e`; Hangul syllables stay whole in both cases

    A piece includes the space before its word; words of more than 100 characters, such as encoded files, are ignored. A
    text is framed as in RoBERTa: <s> a </s>, and a pair <s> a </s> </s> b </s>. Raises UnmaskError if the size cannot
    hold the bytes, and for texts without words.
    """
    if size < LEAST:
        raise UnmaskError(f"A vocabulary of {size} cannot hold the 256 bytes: set at least {LEAST} pieces.")
    passages = sample(texts, byte_budget)
    if not any(passage.strip() for passage in passages):
        raise UnmaskError("The text holds no words to learn a vocabulary from; give it some text.")
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    steps = normalizers.Sequence(normalisers(cased, strip_accents))
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def cut(run: str) -> list[str]:
        found = words.pre_tokenize_str(run)
        return [word for word, (begin, end) in found if end - begin - (run[begin] == " ") <= LONGEST_WORD]

    # Whole texts are normalised: a run that is only an accent would leave its space to the next one.
    counts = words_of(map(steps.normalize_str, passages), WITH_SPACES, cut)
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.train_from_iterator(repeated(counts), trainer)
    if len(steps):
        raw.normalizer = steps
    raw.pre_tokenizer = words
    raw.decoder = decoders.ByteLevel()
    start, end = ((name, SPECIALS.index(name)) for name in ("<s>", "</s>"))
    raw.post_processor = processors.RobertaProcessing(end, start, trim_offsets=True, add_prefix_space=False)
    return Tokenizer.of(raw)


def normalisers(cased: bool, strip_accents: bool) -> list[normalizers.Normalizer]:
    """The normalisers of a text. NFC is last, because it composes Hangul syllables again."""
    steps: list[normalizers.Normalizer] = [] if cased else [normalizers.Lowercase()]
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    return steps

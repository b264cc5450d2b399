"""Tokenizer files: vocab.txt, tokenizer.json and their configuration, read into a `tokenizers.Tokenizer`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from unmask.config import bounded, read_json
from unmask.data.text.splitter import Template
from unmask.data.text.vocabulary import LONGEST_WORD, PREFIX
from unmask.errors import UnmaskError

# Role -> names under which published vocabularies hold it, tried where no configuration says.
ROLES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}

ENDING_ROLES = {"eos_token": "sep", "unk_token": "unk", "pad_token": "pad"}
"""Key of the configuration -> role, where nothing but `sep` stands around a text."""

END_OF_TEXT = "<|endoftext|>"
"""The one special token of GPT-2, which begins, ends and fills."""
SPACED = ("GPT2Tokenizer", "RobertaTokenizer")
"""Classes of `transformers` that take `add_prefix_space` from tokenizer_config.json alone."""


def template(raw: Tokenizer, sequences: int) -> Template:
    """The template that the tokenizer's own post-processor applies, read off an example."""
    if isinstance(raw.post_processor, processors.TemplateProcessing):
        _check(json.loads(raw.post_processor.__getstate__()))
    joined = raw.encode("a", "b" if sequences == 2 else None)
    gaps: list[list[int]] = [[]]
    segments: list[list[int]] = [[]]
    inside: list[int] = []
    for id_, segment, owner in zip(joined.ids, joined.type_ids, joined.sequence_ids, strict=True):
        if owner is None:
            gaps[-1].append(id_)
            segments[-1].append(segment)
        elif owner == len(inside):
            inside.append(segment)
            gaps.append([])
            segments.append([])
    if len(inside) != sequences:
        raise UnmaskError("its post-processor does not keep both sequences.")
    return Template(tuple(map(tuple, gaps)), tuple(map(tuple, segments)), tuple(inside))


def _check(post_processor: Mapping[str, Any]) -> None:
    """The library does not look whether a template's special tokens are defined, and panics where they are not."""
    parts = [*post_processor["single"], *post_processor["pair"]]
    used = {part["SpecialToken"]["id"] for part in parts if "SpecialToken" in part}
    missing = used - set(post_processor["special_tokens"])
    if missing:
        raise UnmaskError(f"its post-processor does not define {', '.join(sorted(missing))}.")


def bert_normalizer(*, cased: bool, strip_accents: bool) -> normalizers.Normalizer:
    """BERT's: control characters out, Chinese characters apart, capitals lowered unless `cased`."""
    normalizer: normalizers.Normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=not cased
    )
    if strip_accents:  # stripping decomposes; composing again puts Hangul syllables back together
        normalizer = normalizers.Sequence([normalizer, normalizers.NFC()])
    return normalizer


def wordpiece(vocabulary: Mapping[str, int], normalizer: normalizers.Normalizer, unknown: str = "[UNK]") -> Tokenizer:
    """BERT's tokenizer over a vocabulary: words between whitespace and punctuation, longest piece first."""
    raw = Tokenizer(models.WordPiece(dict(vocabulary), unk_token=unknown, max_input_chars_per_word=LONGEST_WORD))
    raw.normalizer = normalizer
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece(prefix=PREFIX)
    return raw


def read_vocabulary(path: Path, config: Mapping[str, Any], roles: Mapping[str, str]) -> Tokenizer:
    """A vocab.txt (one piece a line, the line number is its id), with the published settings of BERT where the
    configuration is silent: lower case, accents stripped if lower case. Raises UnmaskError where it is damaged."""
    try:
        lines = bounded(path).decode("utf-8").removeprefix("\ufeff").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnmaskError(f"{path} cannot be read: {error}.") from None
    lines = [line.removesuffix("\r") for line in (lines[:-1] if not lines[-1] else lines)]
    vocabulary: dict[str, int] = {}
    for number, piece in enumerate(lines):
        if not piece or piece in vocabulary:
            what = f"repeats line {vocabulary[piece] + 1}" if piece else "is empty"
            raise UnmaskError(
                f"{path} is not a vocabulary: line {number + 1} {what}; each line must hold one new piece."
            )
        vocabulary[piece] = number
    unknown = roles.get("unk", "[UNK]")
    if unknown not in vocabulary:
        raise UnmaskError(f"{path} is not a WordPiece vocabulary: it has no line '{unknown}'.")
    settings = {
        "lowercase": config.get("do_lower_case", True),
        "strip_accents": config.get("strip_accents"),
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
    }
    try:
        normalizer = normalizers.BertNormalizer(clean_text=True, **settings)
    except TypeError:
        raise UnmaskError(f"The tokenizer_config.json beside {path} must hold true or false for {settings}.") from None
    return wordpiece(vocabulary, normalizer, unknown)


def read_pairs(folder: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Byte-level BPE from vocab.json (piece -> id) and merges.txt (a pair a line, the first one merged first), as GPT-2
    and RoBERTa have it. Raises UnmaskError where a file is missing or damaged, or one has a piece that the other lacks.
    """
    vocabulary = read_json(folder / "vocab.json")
    if not vocabulary or not all(type(i) is int and 0 <= i < 2**31 for i in vocabulary.values()):
        raise UnmaskError(f"{folder / 'vocab.json'} is not a vocabulary: it must map pieces to their numbers.")
    place = folder / "merges.txt"
    try:
        lines = bounded(place).decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnmaskError(f"{place} cannot be read: {error}.") from None
    merges: list[tuple[str, str]] = []
    for number, line in enumerate((line.removesuffix("\r") for line in lines), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        first, _, second = line.partition(" ")
        for piece in (first, second, first + second):
            if piece not in vocabulary or not second:
                raise UnmaskError(
                    f"{place} does not belong to the vocab.json beside it: line {number}, '{line}', must hold two "
                    "pieces that are in it, as is what they make together."
                )
        merges.append((first, second))
    try:
        raw = Tokenizer(models.BPE(vocabulary, merges))
    except Exception as error:  # the library raises bare Exception; TypeError for half a character
        reason = str(error).splitlines()[0]
        raise UnmaskError(f"{folder / 'vocab.json'} and {place.name} are no vocabulary: {reason}.") from None
    spaced = bool(config.get("add_prefix_space", False))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    raw.decoder = decoders.ByteLevel()
    if END_OF_TEXT not in vocabulary and {"<s>", "</s>"} <= vocabulary.keys():
        start, end = ((name, vocabulary[name]) for name in ("<s>", "</s>"))
        raw.post_processor = processors.RobertaProcessing(end, start, trim_offsets=True, add_prefix_space=spaced)
    return raw


def read_tokenizer(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    """A tokenizer.json of the WordPiece, BPE or unigram kind. Raises UnmaskError where it is damaged or another.

    Whether a space is put before a text, tokenizer_config.json decides where it names a class of `transformers` that
    asks it and not the file.
    """
    with named(path):
        raw = Tokenizer.from_buffer(bounded(path))
        if str(config.get("tokenizer_class")).removesuffix("Fast") in SPACED:
            raw = _with_space(raw, bool(config.get("add_prefix_space", False)))
    if not isinstance(raw.model, (models.WordPiece, models.BPE, models.Unigram)):
        kind = type(raw.model).__name__
        raise UnmaskError(f"{path} holds a {kind} tokenizer; only WordPiece, BPE and unigram can be used.")
    if isinstance(raw.pre_tokenizer, pre_tokenizers.ByteLevel) and _frames_nothing(raw):
        raw.post_processor = None  # it leaves in the offset of a word the space before it
    check_unknown(raw, path)
    return raw


def _with_space(raw: Tokenizer, spaced: bool) -> Tokenizer:
    """A byte-level tokenizer that puts a space before a text, or does not; any other as it is."""
    if not isinstance(raw.pre_tokenizer, pre_tokenizers.ByteLevel) or raw.pre_tokenizer.add_prefix_space == spaced:
        return raw
    facts = json.loads(raw.to_str())
    for part in (facts["pre_tokenizer"], facts["post_processor"] or {}):
        if "add_prefix_space" in part:
            part["add_prefix_space"] = spaced
    return Tokenizer.from_str(json.dumps(facts))


def _frames_nothing(raw: Tokenizer) -> bool:
    """Whether a post-processor puts no token around a text."""
    if isinstance(raw.post_processor, processors.TemplateProcessing):
        return not json.loads(raw.post_processor.__getstate__())["special_tokens"]
    return isinstance(raw.post_processor, processors.ByteLevel)


def check_unknown(raw: Tokenizer, path: Path) -> None:
    """Raises UnmaskError where a vocabulary lacks what it says stands for unknown words, which the library tells only
    when it meets one."""
    unknown = getattr(raw.model, "unk_token", None)
    if unknown is not None and raw.model.token_to_id(unknown) is None:
        raise UnmaskError(f"{path} is damaged: its vocabulary lacks its own unknown token '{unknown}'.")


def optional_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, empty where there is no file. Raises UnmaskError where it is damaged."""
    return read_json(path) if path.is_file() else {}


def named_roles(*configs: Mapping[str, Any]) -> dict[str, str]:
    """Role -> name of its special token, as the configuration files say; earlier files win."""
    roles: dict[str, str] = {}
    for role in ROLES:
        for config in configs:
            token = config.get(f"{role}_token")
            token = token.get("content") if isinstance(token, Mapping) else token
            if isinstance(token, str) and token:
                roles.setdefault(role, token)
    return roles


def complete_roles(raw: Tokenizer, named: Mapping[str, str]) -> dict[str, str]:
    """Role -> name for all roles. Raises UnmaskError where the vocabulary lacks one of them."""
    roles, sole = {}, sole_special(raw)
    for role, usual in ROLES.items():
        candidates = (named[role],) if role in named else (*usual, *sole)
        found = [name for name in candidates if raw.token_to_id(name) is not None]
        if not found:
            raise UnmaskError(f"the vocabulary has no token for '{role}' (looked for {' and '.join(candidates)}).")
        roles[role] = found[0]
    return roles


def sole_special(raw: Tokenizer) -> tuple[str, ...]:
    """The token that stands for all roles that a vocabulary has none for: GPT-2's end of text, GPT's unknown piece."""
    if raw.token_to_id(END_OF_TEXT) is not None:
        return (END_OF_TEXT,)
    of_gpt = isinstance(raw.model, models.BPE) and raw.model.end_of_word_suffix == "</w>"
    return ("<unk>",) if of_gpt and raw.token_to_id("<unk>") is not None else ()


def frame(raw: Tokenizer, cls: str, sep: str) -> processors.PostProcessor:
    """What stands around a text where the file does not say: [CLS] and [SEP]; nothing in the manner of GPT."""
    if not sole_special(raw):
        return bert_template(raw, cls, sep)
    if isinstance(raw.pre_tokenizer, pre_tokenizers.ByteLevel):
        spaced = raw.pre_tokenizer.add_prefix_space
        # The space before a word is part of its piece, not of the word.
        return processors.ByteLevel(add_prefix_space=spaced, trim_offsets=True)
    return processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:0", special_tokens=[])


def mark_special(raw: Tokenizer, names: list[str]) -> None:
    """Have the tokenizer know these pieces of its vocabulary as special tokens."""
    known = {token.content for token in raw.get_added_tokens_decoder().values() if token.special}
    raw.add_special_tokens([AddedToken(n, normalized=False, special=True) for n in names if n not in known])


def bert_template(raw: Tokenizer, cls: str, sep: str) -> processors.TemplateProcessing:
    """[CLS] a [SEP] and [CLS] a [SEP] b [SEP], the latter with segments 0 and 1."""
    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(name, raw.token_to_id(name)) for name in (cls, sep)],
    )


def lowercases(normalizer: Mapping[str, Any] | None) -> bool:
    """Whether a normaliser, as its JSON describes it, lowers capitals."""
    if not normalizer:
        return False
    inner = normalizer.get("normalizers") or []
    return bool(normalizer.get("lowercase")) or normalizer["type"] == "Lowercase" or any(map(lowercases, inner))


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Within it, what goes wrong where a tokenizer.json is read becomes an UnmaskError that names it."""
    try:
        yield
    except (UnmaskError, KeyboardInterrupt, MemoryError):
        raise
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None
    except BaseException as error:  # the library raises bare Exception for damage, and its panics are none
        raise UnmaskError(f"{path} is damaged or not a tokenizer: {error}.") from None

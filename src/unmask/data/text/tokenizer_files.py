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

# Role -> usual names in published vocabularies, which are tried if no configuration file has the name.
ROLES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}

ENDING_ROLES = {"eos_token": "sep", "unk_token": "unk", "pad_token": "pad"}
"""Key of the configuration -> role, in tokenizers whose only special token around a text is `sep`."""

END_OF_TEXT = "<|endoftext|>"
"""The only special token of GPT-2: start, end and padding."""
SPACED = ("GPT2Tokenizer", "RobertaTokenizer")
"""Classes of `transformers` that read `add_prefix_space` only from tokenizer_config.json."""


CLOSED = "unmask_post_processor"
"""Field of tokenizer_config.json: the post-processor that ends a text too, where tokenizer.json has one that does not,
because the model continues texts."""


def template(raw: Tokenizer, sequences: int) -> Template:
    """The template of the tokenizer's post-processor, found by an example.

    Raises UnmaskError, with only a reason, if the post-processor is not valid.
    """
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
    """Check that the special tokens of a template are defined: the library panics if they are not."""
    parts = [*post_processor["single"], *post_processor["pair"]]
    used = {part["SpecialToken"]["id"] for part in parts if "SpecialToken" in part}
    missing = used - set(post_processor["special_tokens"])
    if missing:
        raise UnmaskError(f"its post-processor does not define {', '.join(sorted(missing))}.")


def bert_normalizer(*, cased: bool, strip_accents: bool) -> normalizers.Normalizer:
    """BERT's normaliser: removes control characters, separates Chinese characters, and lower-cases unless `cased`."""
    normalizer: normalizers.Normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=not cased
    )
    if strip_accents:  # stripping decomposes characters; NFC composes Hangul syllables again
        normalizer = normalizers.Sequence([normalizer, normalizers.NFC()])
    return normalizer


def wordpiece(vocabulary: Mapping[str, int], normalizer: normalizers.Normalizer, unknown: str = "[UNK]") -> Tokenizer:
    """BERT's tokenizer with a vocabulary: splits at whitespace and punctuation, then by longest match."""
    raw = Tokenizer(models.WordPiece(dict(vocabulary), unk_token=unknown, max_input_chars_per_word=LONGEST_WORD))
    raw.normalizer = normalizer
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece(prefix=PREFIX)
    return raw


def read_vocabulary(path: Path, config: Mapping[str, Any], roles: Mapping[str, str]) -> Tokenizer:
    """Read a vocab.txt (one piece a line; the line number is its id). Settings that the configuration lacks are those
    of BERT: lower case, and accents stripped if lower case. Raises UnmaskError if the file is damaged."""
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
        raise UnmaskError(f"The tokenizer_config.json next to {path} must have true or false for {settings}.") from None
    return wordpiece(vocabulary, normalizer, unknown)


def read_pairs(folder: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Read a byte-level BPE from vocab.json (piece -> id) and merges.txt (a pair a line, in the order of merging), as
    for GPT-2 and RoBERTa. Raises UnmaskError if a file is missing or damaged, or if merges use pieces that vocab.json
    lacks."""
    vocabulary = read_json(folder / "vocab.json")
    if not vocabulary or not all(type(i) is int and 0 <= i < 2**31 for i in vocabulary.values()):
        raise UnmaskError(f"{folder / 'vocab.json'} is not a vocabulary: it must map pieces to ids.")
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
                    f"{place} does not belong to the vocab.json next to it: line {number}, '{line}', must have two "
                    "pieces of it, whose concatenation is in it too."
                )
        merges.append((first, second))
    try:
        raw = Tokenizer(models.BPE(vocabulary, merges))
    except Exception as error:  # the library raises bare Exception, or TypeError for a lone surrogate
        reason = str(error).splitlines()[0]
        raise UnmaskError(f"{folder / 'vocab.json'} and {place.name} are not a vocabulary: {reason}.") from None
    spaced = bool(config.get("add_prefix_space", False))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    raw.decoder = decoders.ByteLevel()
    if END_OF_TEXT not in vocabulary and {"<s>", "</s>"} <= vocabulary.keys():
        start, end = ((name, vocabulary[name]) for name in ("<s>", "</s>"))
        raw.post_processor = processors.RobertaProcessing(end, start, trim_offsets=True, add_prefix_space=spaced)
    return raw


def read_tokenizer(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Read a tokenizer.json with WordPiece, BPE or unigram. Raises UnmaskError if it is damaged or of another kind.

    If tokenizer_config.json names a class of `transformers` that reads `add_prefix_space` there (SPACED), that setting
    is used instead of the one in tokenizer.json.
    """
    with named(path):
        raw = Tokenizer.from_buffer(bounded(path))
        if str(config.get("tokenizer_class")).removesuffix("Fast") in SPACED:
            raw = _with_space(raw, bool(config.get("add_prefix_space", False)))
        if CLOSED in config:
            raw = Tokenizer.from_str(json.dumps({**json.loads(raw.to_str()), "post_processor": config[CLOSED]}))
    if not isinstance(raw.model, (models.WordPiece, models.BPE, models.Unigram)):
        kind = type(raw.model).__name__
        raise UnmaskError(f"{path} holds a {kind} tokenizer; only WordPiece, BPE and unigram can be used.")
    if isinstance(raw.pre_tokenizer, pre_tokenizers.ByteLevel) and _frames_nothing(raw):
        raw.post_processor = None  # its offsets of a word include the space before it
    check_unknown(raw, path)
    return raw


def _with_space(raw: Tokenizer, spaced: bool) -> Tokenizer:
    """Set whether a byte-level tokenizer puts a space before a text; other tokenizers stay unchanged."""
    if not isinstance(raw.pre_tokenizer, pre_tokenizers.ByteLevel) or raw.pre_tokenizer.add_prefix_space == spaced:
        return raw
    facts = json.loads(raw.to_str())
    for part in (facts["pre_tokenizer"], facts["post_processor"] or {}):
        if "add_prefix_space" in part:
            part["add_prefix_space"] = spaced
    return Tokenizer.from_str(json.dumps(facts))


def _frames_nothing(raw: Tokenizer) -> bool:
    """Whether a post-processor adds no token to a text."""
    if isinstance(raw.post_processor, processors.TemplateProcessing):
        return not json.loads(raw.post_processor.__getstate__())["special_tokens"]
    return isinstance(raw.post_processor, processors.ByteLevel)


def check_unknown(raw: Tokenizer, path: Path) -> None:
    """Raises UnmaskError if the vocabulary lacks its unknown token. The library notices this only at the first unknown
    word."""
    unknown = getattr(raw.model, "unk_token", None)
    if unknown is not None and raw.model.token_to_id(unknown) is None:
        raise UnmaskError(f"{path} is damaged: its vocabulary lacks its own unknown token '{unknown}'.")


def optional_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if there is no file. Raises UnmaskError if the file is damaged."""
    return read_json(path) if path.is_file() else {}


def named_roles(*configs: Mapping[str, Any]) -> dict[str, str]:
    """Role -> name of its special token in the configuration files; earlier files take precedence."""
    roles: dict[str, str] = {}
    for role in ROLES:
        for config in configs:
            token = config.get(f"{role}_token")
            token = token.get("content") if isinstance(token, Mapping) else token
            if isinstance(token, str) and token:
                roles.setdefault(role, token)
    return roles


def complete_roles(raw: Tokenizer, named: Mapping[str, str]) -> dict[str, str]:
    """Role -> name, for all roles. Raises UnmaskError if the vocabulary lacks one of them."""
    roles, sole = {}, sole_special(raw)
    for role, usual in ROLES.items():
        candidates = (named[role],) if role in named else (*usual, *sole)
        found = [name for name in candidates if raw.token_to_id(name) is not None]
        if not found:
            raise UnmaskError(f"the vocabulary has no token for '{role}' (looked for {' and '.join(candidates)}).")
        roles[role] = found[0]
    return roles


def sole_special(raw: Tokenizer) -> tuple[str, ...]:
    """The token for all roles without one: the end of text of GPT-2, or the unknown token of GPT; else empty."""
    if raw.token_to_id(END_OF_TEXT) is not None:
        return (END_OF_TEXT,)
    of_gpt = isinstance(raw.model, models.BPE) and raw.model.end_of_word_suffix == "</w>"
    return ("<unk>",) if of_gpt and raw.token_to_id("<unk>") is not None else ()


def frame(raw: Tokenizer, cls: str, sep: str) -> processors.PostProcessor:
    """The post-processor for a file without one: [CLS] and [SEP] around a text, or nothing for GPT and GPT-2."""
    if not sole_special(raw):
        return bert_template(raw, cls, sep)
    if isinstance(raw.pre_tokenizer, pre_tokenizers.ByteLevel):
        spaced = raw.pre_tokenizer.add_prefix_space
        # The offsets of a word leave out the space before it, which is part of its piece.
        return processors.ByteLevel(add_prefix_space=spaced, trim_offsets=True)
    return processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:0", special_tokens=[])


def mark_special(raw: Tokenizer, names: list[str]) -> None:
    """Mark these pieces of the vocabulary as special tokens."""
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
    """Whether a normaliser, given as its JSON, lower-cases texts."""
    if not normalizer:
        return False
    inner = normalizer.get("normalizers") or []
    return bool(normalizer.get("lowercase")) or normalizer["type"] == "Lowercase" or any(map(lowercases, inner))


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Within the block, errors of reading a tokenizer.json become an UnmaskError that names the file."""
    try:
        yield
    except (UnmaskError, KeyboardInterrupt, MemoryError):
        raise
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None
    except BaseException as error:  # the library raises bare Exception for damage; its panics are no Exception
        raise UnmaskError(f"{path} is damaged or not a tokenizer: {error}.") from None

"""Vocabularies of the `tokenizers` library: WordPiece, byte-level BPE, unigram, characters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken
from tokenizers import Tokenizer as RawTokenizer
from tokenizers.processors import TemplateProcessing

from unmask.data.text import tokenizer_files as files
from unmask.data.text.runs import RunCache, runs_of
from unmask.data.text.splitter import Located, Side, Splitter
from unmask.data.text.vocabulary import PREFIX, clean
from unmask.errors import UnmaskError
from unmask.files import write_text

LONG = 4_096  # characters; encoding a text of this length takes milliseconds
MOST_IDS = 10_000_000  # many times the largest published vocabulary; it limits the memory of tables of all ids
SPACES = ("Ġ", "▁")  # the first character of a word in byte-level BPE, and in unigram


class Library(Splitter):
    """Cuts texts with a `tokenizers.Tokenizer`, `raw`, and uses its ids.

    A text is plain characters: a special token in it is split like other text, unless `special` is true.
    """

    joins_special = True

    def __init__(self, raw: RawTokenizer) -> None:
        self.raw = raw
        # Two objects with one vocabulary: the flag belongs to the object, and changing it per call is not thread-safe.
        self._plain = RawTokenizer.from_str(raw.to_str())
        self._plain.encode_special_tokens = True
        self.controls = frozenset(t.content for t in raw.get_added_tokens_decoder().values() if t.special)
        self._ids = raw.get_vocab()
        self.kind = self.settings["model"]["type"]
        self.cased = not files.lowercases(self.settings["normalizer"])
        self.separator = " " if self.kind == "BPE" else ""
        runs = runs_of(self.settings)
        self._cache = None if runs is None else RunCache(runs, self._encoded, self._located)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The tokenizer.json, without its vocabulary."""
        settings = json.loads(self.raw.to_str())
        vocabulary = settings["model"].pop("vocab", None)
        settings["model"].setdefault("type", "BPE" if "merges" in settings["model"] else "WordPiece")
        if settings["model"]["type"] == "Unigram":
            settings["model"]["scores"] = [score for _, score in vocabulary]
        return settings

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        return [one.tokens for one in _encode_batch(self._plain, texts)]

    def locate(self, text: str) -> list[tuple[str, int, int]]:
        found = _encode(self._plain, clean(text))
        return [(piece, begin, end) for piece, (begin, end) in zip(found.tokens, found.offsets, strict=True)]

    def join(self, pieces: Sequence[str]) -> str:
        return self._plain.decode([self._ids[piece] for piece in pieces], skip_special_tokens=False)

    def begins(self, piece: str) -> bool:
        if self.kind == "WordPiece":
            prefix = self.settings["model"].get("continuing_subword_prefix") or PREFIX
            return not piece.startswith(prefix) or piece == prefix
        return piece.startswith(SPACES)

    def facts(self) -> dict[str, Any]:
        facts = {key: self.settings[key] for key in ("normalizer", "pre_tokenizer")}
        model = self.settings["model"]
        return facts | {"merges": model.get("merges")} | {key: model[key] for key in ("scores",) if key in model}

    def ids(
        self, texts: Sequence[str], known: Mapping[str, int], unknown: int, *, special: bool = False
    ) -> list[np.ndarray]:
        if self._cache is not None and self._cache.pays and not special:
            return self._cache(texts)
        found = [one.ids for one in _encode_batch(self.raw, texts)] if special else self._encoded(texts)
        return [np.array(ids, dtype=np.int32) for ids in found]

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        return [one.ids for one in _encode_batch(self._plain, texts)]

    def _located(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[int]]]:
        for one in self._plain.encode_batch([clean(text) for text in texts], add_special_tokens=False):
            yield one.ids, [begin for begin, _ in one.offsets]

    def encode(
        self, texts: Sequence[str], known: Mapping[str, int], unknown: int, *, special: bool = False
    ) -> list[Located]:
        view, texts = self.raw if special else self._plain, [clean(text) for text in texts]
        raw = [_encode(view, texts[0])] if len(texts) == 1 else view.encode_batch(texts, add_special_tokens=False)
        return [(one.ids, one.offsets, [-1 if word is None else word for word in one.word_ids]) for one in raw]

    def with_special(self, pieces: Sequence[str], end: str) -> Library:
        raw = RawTokenizer.from_str(self.raw.to_str())
        raw.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in pieces])
        raw.post_processor = TemplateProcessing(
            single=f"$A:0 {end}:0", pair=f"$A:0 {end}:0 $B:0 {end}:0", special_tokens=[(end, raw.token_to_id(end))]
        )
        return Library(raw)


def side(raw: RawTokenizer, roles: Mapping[str, str]) -> Side:
    """The parts of a tokenizer that frames texts with the template of its file, by default [CLS] a [SEP].

    roles  names of special tokens, if they are unusual

    Raises UnmaskError if one of them is not in the vocabulary.
    """
    raw.no_truncation()
    raw.no_padding()
    names = files.complete_roles(raw, roles)
    files.mark_special(raw, list(names.values()))
    vocabulary = raw.get_vocab()
    _check_size(vocabulary)
    if raw.post_processor is None:
        raw.post_processor = files.frame(raw, names["cls"], names["sep"])
    splitter, templates = Library(raw), (files.template(raw, 1), files.template(raw, 2))
    return Side(splitter=splitter, vocabulary=vocabulary, roles=names, added=splitter.controls, templates=templates)


def ending_side(raw: RawTokenizer, roles: Mapping[str, str]) -> Side:
    """The parts of a tokenizer whose only special token around a text is `sep`; the template of the file is ignored.

    roles  the names of pad, unk and sep
    """
    raw.no_truncation()
    raw.no_padding()
    vocabulary, splitter = raw.get_vocab(), Library(raw)
    _check_size(vocabulary)
    return Side(splitter=splitter, vocabulary=vocabulary, roles=roles, added=splitter.controls)


def _check_size(vocabulary: Mapping[str, int]) -> None:
    size = max(vocabulary.values()) + 1
    if size > MOST_IDS:
        raise UnmaskError(f"its largest id is {size - 1:,}; more than {MOST_IDS:,} are refused.")


def write(folder: Path, side: Side, length: int | None, segments: bool, continues: bool = False) -> list[str]:
    """Write tokenizer.json, tokenizer_config.json and, for WordPiece with templates, vocab.txt; return their names.

    length     largest number of tokens that the model reads; None: not written
    segments   whether the model reads segments
    continues  whether the model continues texts: `transformers` then frames a text by its start alone
    """
    splitter = side.splitter
    assert isinstance(splitter, Library)
    config = _written_config(side) if side.templates is None else _config(splitter, side, segments)
    raw = splitter.raw
    if continues and side.templates is not None and _is_framed(side):
        raw, own = _open_ended(raw, side)
        config |= {"bos_token": side.roles["cls"], "eos_token": side.roles["sep"]}
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", files.CLOSED: own}
    head = {} if length is None else {"model_max_length": length}
    config = {**config, **head} if side.templates is None else {**head, **config}
    indent = 1 if side.templates is None else 2
    contents = {
        "tokenizer.json": raw.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=indent, ensure_ascii=False) + "\n",
    }
    if side.templates is not None and splitter.kind == "WordPiece":
        names = {i: piece for piece, i in side.vocabulary.items()}
        pieces = [names.get(i, "") for i in range(max(names) + 1)]
        if all(piece and "\n" not in piece for piece in pieces):
            contents["vocab.txt"] = "".join(f"{piece}\n" for piece in pieces)
    for name, content in contents.items():
        write_text(folder / name, content)
    return list(contents)


def _is_framed(side: Side) -> bool:
    """Whether one special token begins a text, and one ends it."""
    assert side.templates is not None
    return side.templates[0].gaps == tuple((side.vocabulary[side.roles[role]],) for role in ("cls", "sep"))


def _open_ended(raw: RawTokenizer, side: Side) -> tuple[RawTokenizer, Any]:
    """A tokenizer that does not end a text, as `transformers` must read a prompt; and the post-processor that it
    replaces, as JSON."""
    start, end = side.roles["cls"], side.roles["sep"]
    changed = RawTokenizer.from_str(raw.to_str())
    changed.post_processor = TemplateProcessing(
        single=[start, "$A"],
        pair=[start, "$A", end, "$B"],
        special_tokens=[(name, side.vocabulary[name]) for name in dict.fromkeys((start, end))],
    )
    return changed, json.loads(raw.to_str())["post_processor"]


def _written_config(side: Side) -> dict[str, Any]:
    """The tokenizer_config.json of the tokenizer of an encoder–decoder."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config |= {key: side.roles[role] for key, role in files.ENDING_ROLES.items()}
    return config | {"model_input_names": ["input_ids", "attention_mask"]}


def _config(splitter: Library, side: Side, segments: bool) -> dict[str, Any]:
    """The tokenizer_config.json with which `transformers` gives the same ids."""
    assert side.templates is not None
    config: dict[str, Any] = {f"{role}_token": name for role, name in side.roles.items()}
    if splitter.separator:
        config |= {"bos_token": side.roles["cls"], "eos_token": side.roles["sep"]}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    pairs = segments and any(side.templates[1].inside)
    config["model_input_names"] = inputs if pairs else [inputs[0], inputs[2]]
    normalizer = splitter.settings["normalizer"] or {}
    if not _is_bert(splitter):
        return config | {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": not splitter.cased}
    return config | {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
    }


def _is_bert(splitter: Library) -> bool:
    """Whether the vocabulary and four settings describe a tokenizer completely."""
    model, normalizer = splitter.settings["model"], splitter.settings["normalizer"] or {}
    return (
        model["type"] == "WordPiece"
        and model["continuing_subword_prefix"] == PREFIX
        and model["max_input_chars_per_word"] == 100
        and normalizer.get("type") == "BertNormalizer"
        and normalizer["clean_text"]
        and (splitter.settings["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
    )


def _encode(view: RawTokenizer, text: str) -> Any:
    """The encoding of one text. The library blocks all other threads while it encodes a single text, but not while it
    encodes a batch, which takes a few microseconds more."""
    if len(text) < LONG:
        return view.encode(text, add_special_tokens=False)
    return view.encode_batch([text], add_special_tokens=False)[0]


def _encode_batch(view: RawTokenizer, texts: Sequence[str]) -> list[Any]:
    """Encodings without offsets; texts are cleaned only if the library refuses one, which is rare."""
    try:
        return view.encode_batch_fast(list(texts), add_special_tokens=False)
    except TypeError:
        return view.encode_batch_fast([clean(text) for text in texts], add_special_tokens=False)

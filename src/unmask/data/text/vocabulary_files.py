"""The files of tokenizers: finds those of a folder; reads and writes those of Marian, T5, SentencePiece and unmask."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RawTokenizer

from unmask.config import bounded, read_json
from unmask.data.text import library
from unmask.data.text.library import Library
from unmask.data.text.sentinels import SENTINELS, sentinel
from unmask.data.text.splitter import Side
from unmask.data.text.splitters import PLAIN, SentencePiece
from unmask.data.text.tokenizer_files import (
    ENDING_ROLES,
    check_unknown,
    named,
    named_roles,
    optional_json,
    read_pairs,
    read_tokenizer,
    read_vocabulary,
)
from unmask.errors import UnmaskError, unknown
from unmask.files import atomic

PLAIN_FILE = "subwords.json"
SOURCE, TARGET, VOCABULARY, TARGET_VOCABULARY = "source.spm", "target.spm", "vocab.json", "target_vocab.json"
T5_MODEL, TOKENIZER, CONFIG = "spiece.model", "tokenizer.json", "tokenizer_config.json"
FRAMED = (TOKENIZER, "vocab.txt", "merges.txt")
"""Files of tokenizers that frame a text with special tokens, in order of precedence."""
WRITTEN = (PLAIN_FILE, SOURCE, T5_MODEL)
MODELS = (".model", ".spm")
"""Suffixes of the files of SentencePiece."""


SPECIALS = {"sep": "</s>", "unk": "<unk>", "pad": "<pad>"}
"""Role -> its piece by default."""


def read(path: Path) -> tuple[Side, Side]:
    """Read the sides of source and target (the same object if they do not differ) of a tokenizer with the templates of
    its file, from a folder or a single file. Raises UnmaskError if there is no tokenizer, if it is damaged, or if it
    needs an unsupported feature."""
    if not path.exists():
        raise UnmaskError(f"There is no tokenizer {path}.")
    folder = path if path.is_dir() else path.parent
    config = optional_json(folder / CONFIG)
    if path.is_dir() and not holds_t5(path):
        path = next((path / name for name in FRAMED if (path / name).is_file()), path)
    if path.is_dir():
        if any((path / name).is_file() for name in WRITTEN):
            return _written(path)
        raise UnmaskError(f"There is no tokenizer.json, vocab.txt or merges.txt in {folder}.")
    if path.suffix in MODELS or path.name == PLAIN_FILE:
        return _written(path)
    roles = named_roles(config, optional_json(folder / "special_tokens_map.json"))
    if path.name in ("merges.txt", "vocab.json"):
        raw = read_pairs(folder, config)
    elif path.suffix == ".txt":
        raw = read_vocabulary(path, config, roles)
    else:
        raw = read_tokenizer(path, config)
    try:
        side = library.side(raw, roles)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # a panic of the library is not an Exception
        raise UnmaskError(f"{path} cannot be used: {error}") from None
    return side, side


def read_written(path: Path) -> tuple[Side, Side]:
    """As `read`, for an encoder–decoder: `sep` after a text is its only special token, and sentinels and tags in a text
    are read."""
    source, target = _written(path)
    sides = replace(source, sentinels=True), replace(target, sentinels=True)
    return sides[0], sides[0] if source is target else sides[1]


def _written(path: Path) -> tuple[Side, Side]:
    if path.is_dir():
        if (path / PLAIN_FILE).is_file():
            side = read_plain(path / PLAIN_FILE)
            return side, side
        if (path / SOURCE).is_file():
            return read_marian(path)
        for name, read_side in ((T5_MODEL, read_t5), (TOKENIZER, read_ending)):
            if (path / name).is_file():
                side = read_side(path)
                return side, side
        raise UnmaskError(f"{path} holds no vocabulary: there is no {PLAIN_FILE}, nor {SOURCE} with {VOCABULARY}.")
    if not path.is_file():
        raise UnmaskError(f"There is no vocabulary {path}.")
    side = read_plain(path) if path.suffix == ".json" else read_model(path)
    return side, side


def write(
    folder: Path, source: Side, target: Side, length: int | None, segments: bool, continues: bool = False
) -> list[str]:
    """Write the files of a tokenizer in the format of its kind, and return their names. See `Tokenizer.save`."""
    if source.splitter.kind in PLAIN:
        return write_plain(folder, source)
    if isinstance(source.splitter, Library):
        return library.write(folder, source, length, segments, continues)
    if is_t5(source):
        return write_t5(folder, source, length)
    return write_marian(folder, source, target, length)


# ------------------------------------------------------------------------------------------------ SentencePiece alone


def read_model(path: Path) -> Side:
    """Read a .model or .spm file with its ids; if it lacks </s> or <pad>, their ids follow."""
    splitter = _sentencepiece(path)
    vocabulary = {piece: i for i, piece in enumerate(splitter.pieces)}
    found = {role: splitter.role(key) for role, key in (("sep", "eos"), ("unk", "unk"), ("pad", "pad"))}
    roles = SPECIALS | {role: piece for role, piece in found.items() if piece is not None}
    for piece in roles.values():
        vocabulary.setdefault(piece, len(vocabulary))
    return Side(splitter=splitter, vocabulary=vocabulary, roles=roles)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic(path) as temporary:
        temporary.write_bytes(content)


def _sentencepiece(path: Path) -> SentencePiece:
    try:
        content = bounded(path)
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        return SentencePiece(content)
    except UnmaskError as error:
        raise UnmaskError(f"{path} cannot be used: {error}") from None


# ------------------------------------------------------------------------------------------------ T5 folders


def holds_t5(folder: Path) -> bool:
    """Whether a folder has the SentencePiece model of a T5; the file of an ALBERT has the same name."""
    config, model = optional_json(folder / CONFIG), optional_json(folder / "config.json")
    of_t5 = str(config.get("tokenizer_class")).startswith("T5") or model.get("model_type") in ("t5", "mt5")
    return of_t5 and (folder / T5_MODEL).is_file()


def read_t5(folder: Path) -> Side:
    """Read spiece.model; the ids of the sentinels follow those of its pieces, <extra_id_0> last."""
    config, model = optional_json(folder / CONFIG), optional_json(folder / "config.json")
    kind = str(config.get("tokenizer_class"))
    of_pegasus = model.get("model_type") == "pegasus" and not kind.startswith("T5")
    if kind.startswith("Pegasus") or of_pegasus:  # its ids are 103 higher than those in the file
        raise UnmaskError(
            f"{folder / T5_MODEL} has the ids of Pegasus, which are not supported; save it with transformers as a "
            f"{TOKENIZER}, and remove {T5_MODEL}."
        )
    side = read_model(folder / T5_MODEL)
    count = config.get("extra_ids", SENTINELS)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 1 << 16:
        raise UnmaskError(f"{folder / CONFIG} asks for {count!r} extra_ids; it must be a number, such as {SENTINELS}.")
    pieces = [sentinel(number) for number in reversed(range(count))]
    first = max(side.vocabulary.values()) + 1
    vocabulary = {**side.vocabulary, **{piece: first + i for i, piece in enumerate(pieces)}}
    return replace(side, vocabulary=vocabulary, added=frozenset(pieces))


def write_t5(folder: Path, side: Side, length: int | None) -> list[str]:
    """Write the files for the T5Tokenizer of transformers, and return their names."""
    config: dict[str, Any] = {"tokenizer_class": "T5Tokenizer", "extra_ids": len(side.added)}
    config |= {key: side.roles[role] for key, role in ENDING_ROLES.items()}
    config |= {} if length is None else {"model_max_length": length}
    write_bytes(folder / T5_MODEL, _model(side))
    write_bytes(folder / CONFIG, _json(config))
    return [T5_MODEL, CONFIG]


def is_t5(side: Side) -> bool:
    """Whether a side belongs to a T5 folder: a SentencePiece model with sentinels."""
    return sentinel(0) in side.added and isinstance(side.splitter, SentencePiece)


def read_ending(folder: Path) -> Side:
    """Read a tokenizer.json of any kind, with the special pieces in tokenizer_config.json."""
    place = folder / TOKENIZER
    with named(place):
        raw = RawTokenizer.from_buffer(bounded(place))
    check_unknown(raw, place)
    roles, _ = _roles(folder)
    for piece in roles.values():
        if raw.token_to_id(piece) is None:
            raise UnmaskError(f"{place} lacks the special piece '{piece}'; name it in {CONFIG} next to it.")
    with named(place):
        return library.ending_side(raw, roles)


# ------------------------------------------------------------------------------------------------ Marian folders


def read_marian(folder: Path) -> tuple[Side, Side]:
    """Read source.spm, target.spm and vocab.json, and target_vocab.json if the sides have separate ids."""
    roles, config = _roles(folder)
    if config.get("sp_model_kwargs"):
        raise UnmaskError(f"{folder / CONFIG} asks for sp_model_kwargs, which are not supported; remove them.")
    own = TARGET_VOCABULARY if config.get("separate_vocabs") else VOCABULARY
    added = _added(folder, config)
    sides = []
    for model, ids in ((SOURCE, VOCABULARY), (TARGET, own)):
        vocabulary = _vocabulary(folder / ids, roles, added)
        splitter = _sentencepiece(folder / model)
        sides.append(Side(splitter=splitter, vocabulary=vocabulary, roles=roles, added=frozenset(added)))
    return sides[0], sides[0] if _same(*sides) else sides[1]


def write_marian(folder: Path, source: Side, target: Side, length: int | None) -> list[str]:
    """Write the files for the MarianTokenizer of transformers, and return their names."""
    separate = dict(source.vocabulary) != dict(target.vocabulary)
    config: dict[str, Any] = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    config |= {key: source.roles[role] for key, role in ENDING_ROLES.items()}
    config |= {} if length is None else {"model_max_length": length}
    if source.added:
        pieces = {source.vocabulary[piece]: {"content": piece, "special": True} for piece in sorted(source.added)}
        config["added_tokens_decoder"] = pieces
    contents = {SOURCE: _model(source), TARGET: _model(target), VOCABULARY: _json(source.vocabulary)}
    if separate:
        contents[TARGET_VOCABULARY] = _json(target.vocabulary)
    contents[CONFIG] = _json(config)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    return list(contents)


def _model(side: Side) -> bytes:
    if not isinstance(side.splitter, SentencePiece):
        raise UnmaskError(f"A vocabulary of the kind '{side.splitter.kind}' has no SentencePiece model.")
    return side.splitter.model


def _same(one: Side, other: Side) -> bool:
    return one.vocabulary == other.vocabulary and one.splitter.facts() == other.splitter.facts()


def _roles(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """The pieces of the roles in a folder, and its tokenizer_config.json."""
    config, older = optional_json(folder / CONFIG), optional_json(folder / "special_tokens_map.json")
    named = {role: name for key, role in ENDING_ROLES.items() if (name := _token(config, older, key))}
    return SPECIALS | named, config


def _token(config: Mapping[str, Any], older: Mapping[str, Any], key: str) -> str | None:
    token = config.get(key, older.get(key))
    token = token.get("content") if isinstance(token, Mapping) else token
    return token if isinstance(token, str) and token else None


def _vocabulary(path: Path, roles: Mapping[str, str], added: Mapping[str, int]) -> dict[str, int]:
    """Piece -> id from a vocab.json and the added pieces. Raises UnmaskError if an id is not valid or repeated, or a
    special piece is missing."""
    vocabulary = read_json(path)
    for piece, number in vocabulary.items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 31:
            raise UnmaskError(f"{path} is damaged: the id of '{piece}' is {number!r}, not a whole number.")
    vocabulary |= added
    owner: dict[int, str] = {}
    for piece, number in vocabulary.items():
        if owner.setdefault(number, piece) != piece:
            raise UnmaskError(f"{path} is damaged: '{owner[number]}' and '{piece}' both have the id {number}.")
    for name in roles.values():
        if name not in vocabulary:
            raise UnmaskError(f"{path} lacks the special piece '{name}'; use the vocabulary of this model.")
    return vocabulary


def _added(folder: Path, config: Mapping[str, Any]) -> dict[str, int]:
    """The special pieces that are added to a vocabulary: piece -> id."""
    entries = config.get("added_tokens_decoder") or {}
    path = folder / "added_tokens.json"
    listed = list(entries.items()) if isinstance(entries, Mapping) else [("", None)]
    if not entries and path.is_file():
        listed = [(number, {"content": piece, "special": True}) for piece, number in read_json(path).items()]
    added: dict[str, int] = {}
    for number, entry in listed:
        if not (isinstance(entry, Mapping) and isinstance(entry.get("content"), str) and _is_id(str(number))):
            raise UnmaskError(f"{folder} is damaged: its added tokens are not a table of ids and pieces.")
        if not entry.get("special"):
            raise UnmaskError(f"{folder / CONFIG} adds the piece '{entry['content']}'; only special ones can be added.")
        added[entry["content"]] = int(number)
    return added


def _is_id(text: str) -> bool:
    """Whether a text is a whole number below 10^10, a limit above all ids."""
    return text.isdecimal() and len(text) < 11


# ------------------------------------------------------------------------------------------------ words, characters


def read_plain(path: Path) -> Side:
    """Read the JSON file of a vocabulary of words or characters."""
    facts = read_json(path)
    kind, pieces = facts.get("kind"), facts.get("pieces")
    if not isinstance(kind, str) or not isinstance(pieces, list) or not all(isinstance(p, str) for p in pieces):
        raise UnmaskError(f"{path} is damaged: it must hold a kind, a normalization and a list of pieces.")
    if kind not in PLAIN:
        raise unknown(f"kind of vocabulary in {path}", kind, PLAIN)
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    if len(vocabulary) < len(pieces) or not vocabulary.keys() >= set(SPECIALS.values()):
        raise UnmaskError(f"{path} is damaged: its pieces must differ and hold {', '.join(SPECIALS.values())}.")
    return Side(splitter=PLAIN[kind](str(facts.get("normalization"))), vocabulary=vocabulary, roles=SPECIALS)


def write_plain(folder: Path, side: Side) -> list[str]:
    """Write the JSON file of a vocabulary of words or characters; return its name in a list."""
    pieces = sorted(side.vocabulary, key=side.vocabulary.__getitem__)
    write_bytes(folder / PLAIN_FILE, _json({**side.splitter.facts(), "pieces": pieces}))
    return [PLAIN_FILE]


def _json(values: Mapping[Any, Any]) -> bytes:
    return (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode()

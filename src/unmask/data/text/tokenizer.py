"""Tokenizers (WordPiece, byte-level BPE): train, load and save, encode with offsets, join, decode."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import pre_tokenizers

from unmask.data.processor import Processor, Region
from unmask.data.text import tokenizer_files as files
from unmask.data.text.vocabulary import PREFIX, clean, learn
from unmask.errors import UnmaskError
from unmask.files import write_text
from unmask.types import Example

LONG = 4_096  # characters of a text that takes milliseconds to encode
MOST_IDS = 10_000_000  # many times the largest vocabulary published; tables of all ids are made


@dataclass(frozen=True, slots=True)
class Encoding:
    """Pieces of one text, or of a sequence of words, without special tokens around them.

    ids      [T] int32
    offsets  [T, 2] int32: begin and end in characters of the raw string (of its own word, for `encode_words`)
    words    [T] int32: index of the word that the piece belongs to
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer(Processor[str]):
    """A trained tokenizer: text to ids and back. It is the processor of texts.

    `ids` and `encode_words` take the text as plain characters, so that no text in a corpus or among labels can
    bring in a special token; `encode` reads a literal `[MASK]` as the mask. `special=` turns this round.

    Train one with `train`, open one with `load`; `raw` is the underlying `tokenizers.Tokenizer`.
    """

    size: int  # V: the number of ids
    pad: int
    unknown: int
    cls: int
    sep: int
    mask: int
    specials: frozenset[int]
    cased: bool

    def __init__(self, raw: RawTokenizer, roles: dict[str, str] | None = None) -> None:
        """Wrap a tokenizer; `roles` names its special tokens (pad, unk, cls, sep, mask) where they are unusual.

        Raises UnmaskError where one of them is not in the vocabulary.
        """
        raw.no_truncation()
        raw.no_padding()
        self.raw = raw
        self._names = files.complete_roles(raw, roles or {})
        files.mark_special(raw, list(self._names.values()))
        vocabulary = raw.get_vocab()
        self.pad, self.unknown, self.cls, self.sep, self.mask = (vocabulary[name] for name in self._names.values())
        self.specials = frozenset(i for i, token in raw.get_added_tokens_decoder().items() if token.special)
        self.size = max(vocabulary.values()) + 1
        if self.size > MOST_IDS:
            raise UnmaskError(f"its largest id is {self.size - 1:,}; more than {MOST_IDS:,} are refused.")
        if raw.post_processor is None:
            raw.post_processor = files.frame(raw, self._names["cls"], self._names["sep"])
        self.cased = not files.lowercases(self._facts["normalizer"])
        # Two views of one vocabulary: the flag belongs to the object, and changing it per call is not thread-safe.
        self._plain = RawTokenizer.from_str(raw.to_str())
        self._plain.encode_special_tokens = True
        self._templates = (files.template(raw, 1), files.template(raw, 2))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        size: int,
        *,
        cased: bool = False,
        strip_accents: bool = False,
        byte_budget: int = 200_000_000,
    ) -> Self:
        """Learn a WordPiece vocabulary of at most `size` pieces; the same texts always give the same one.

        texts          read once; at most about `byte_budget` bytes of them are held (`vocabulary.sample`)
        cased          keep capitals, else lower them
        strip_accents  `é` becomes `e`; Hangul syllables stay whole either way

        [PAD] [UNK] [CLS] [SEP] [MASK] are the ids 0 … 4. Raises UnmaskError for a text without words.
        """
        normalizer = files.bert_normalizer(cased=cased, strip_accents=strip_accents)
        words = pre_tokenizers.BertPreTokenizer()
        vocabulary = learn(texts, size, normalizer=normalizer, pre_tokenizer=words, byte_budget=byte_budget)
        return cls(files.wordpiece(vocabulary, normalizer))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Open a folder (tokenizer.json, else vocab.txt with tokenizer_config.json, else vocab.json and merges.txt), or
        one of these files.

        Byte-level BPE is that of GPT-2 and RoBERTa. Where a vocabulary has one special token for everything, as GPT-2
        has, that is its `pad`, `cls`, `sep` and so on, and nothing frames a text. Truncation and padding that the file
        may ask for are switched off. Raises UnmaskError where a file is missing or damaged.
        """
        path = Path(path)
        if not path.exists():
            raise UnmaskError(f"There is no tokenizer {path}.")
        folder = path if path.is_dir() else path.parent
        config = files.optional_json(folder / "tokenizer_config.json")
        if path.is_dir():
            names = ("tokenizer.json", "vocab.txt", "merges.txt")
            path = next((path / name for name in names if (path / name).is_file()), path)
        if not path.is_file():
            raise UnmaskError(f"There is no tokenizer.json, vocab.txt or merges.txt in {folder}.")
        roles = files.named_roles(config, files.optional_json(folder / "special_tokens_map.json"))
        if path.name in ("merges.txt", "vocab.json"):
            raw = files.read_pairs(folder, config)
        elif path.suffix == ".txt":
            raw = files.read_vocabulary(path, config, roles)
        else:
            raw = files.read_tokenizer(path, config)
        try:
            return cls(raw, roles)
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # a panic of the library underneath is no Exception
            raise UnmaskError(f"{path} cannot be used: {error}") from None

    def save(self, folder: Path | str, *, length: int | None = None, segments: bool = True) -> list[str]:
        """Write tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt; returns their names.

        Noted for readers of the folder: the greatest number of tokens that the model takes, `length`, and whether it
        reads `segments`.
        """
        folder = Path(folder)
        contents = {"tokenizer.json": self.raw.to_str(pretty=True)}
        facts = self._config(length, segments)
        contents["tokenizer_config.json"] = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        pieces = self.pieces(range(self.size))
        if self._facts["model"]["type"] == "WordPiece" and not any("\n" in piece or not piece for piece in pieces):
            contents["vocab.txt"] = "".join(f"{piece}\n" for piece in pieces)
        for name, content in contents.items():
            write_text(folder / name, content)
        return list(contents)

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[np.ndarray]:
        """Ids of each text, [T] int32, without special tokens around them and without truncation."""
        view = self.raw if special else self._plain
        encodings = _encode_batch(view, texts)
        return [self._guard(np.array(e.ids, dtype=np.int32), special) for e in encodings]

    def encode(self, text: str, *, special: bool = True) -> Encoding:
        """Pieces of a text with their offsets; words are the pre-tokens (runs between whitespace and punctuation)."""
        view = self.raw if special else self._plain
        raw = _encode(view, clean(text))
        ids = self._guard(np.array(raw.ids, dtype=np.int32), special)
        words = np.array([-1 if w is None else w for w in raw.word_ids], dtype=np.int32)
        return Encoding(ids, np.array(raw.offsets, dtype=np.int32).reshape(-1, 2), words)

    def encode_words(self, words: Sequence[str], *, special: bool = False) -> Encoding:
        """Pieces of a sequence of words, as tagging needs them: `words[i]` is the word of piece i.

        Every word has at least one piece: a word that is empty after normalisation becomes [UNK].
        """
        view = self.raw if special else self._plain
        shift = 1 if self._spaced else 0  # a byte-level vocabulary marks a word by the space before it
        texts = [" " * shift * (i > 0) + clean(word) for i, word in enumerate(words)]
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        owners: list[int] = []
        for i, encoding in enumerate(view.encode_batch(texts, add_special_tokens=False)):
            lead = shift if i else 0
            ids += encoding.ids or [self.unknown]
            offsets += [(max(b - lead, 0), max(e - lead, 0)) for b, e in encoding.offsets] or [(0, len(words[i]))]
            owners += [i] * max(len(encoding.ids), 1)
        return Encoding(
            self._guard(np.array(ids, dtype=np.int32), special),
            np.array(offsets, dtype=np.int32).reshape(-1, 2),
            np.array(owners, dtype=np.int32),
        )

    def join(
        self, first: np.ndarray, second: np.ndarray | None = None, length: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]: tokens [T] and segments [T], both int64.

        Where T would exceed `length`, the longer sequence is cut from its end, one piece at a time (the second
        where both are equally long). A frame of no tokens around nothing becomes the `cls`: there is always a token to
        answer at. Raises UnmaskError where `length` cannot hold the special tokens.
        """
        template = self._templates[second is not None]
        parts = [np.asarray(part, dtype=np.int64) for part in (first, second) if part is not None]
        if length is not None:
            room = length - template.cost
            if room < 0:
                raise UnmaskError(f"A length of {length} cannot hold the {template.cost} special tokens.")
            parts = [part[:n] for part, n in zip(parts, shorten([len(p) for p in parts], room), strict=True)]
        tokens, segments = [_row(template.gaps[0])], [_row(template.segments[0])]
        for i, part in enumerate(parts):
            tokens += [part, _row(template.gaps[i + 1])]
            segments += [np.full(len(part), template.inside[i]), _row(template.segments[i + 1])]
        if not sum(map(len, tokens)):
            return _row([self.cls]), _row([0])
        return np.concatenate(tokens), np.concatenate(segments)

    def example(self, item: str) -> Example:
        """A text between its special tokens: tokens and segments [T]; like `ids`, it reads no special token in it."""
        return Example(*self.join(self.ids([item])[0]))

    def describe(self, item: str, place: int) -> Region | None:
        encoding = self.encode(item, special=False)
        # Numbers below all ids stand for the pieces, so that special tokens are told from them.
        framed, _ = self.join(np.arange(-len(encoding), 0))
        if not 0 <= place < len(framed):
            raise UnmaskError(f"The text has {len(framed)} tokens, and none at place {place}.")
        if framed[place] >= 0:
            return None
        begin, end = encoding.offsets[framed[place]].tolist()
        return Region("characters", (begin,), (end,))

    def unread(self, examples: Sequence[Example]) -> str:
        """One sentence where more than a token in a hundred stands for words that the vocabulary lacks."""
        if self.unknown in (self.pad, self.cls, self.sep):  # a vocabulary of bytes lacks nothing
            return ""
        unknown = sum(int((example.tokens == self.unknown).sum()) for example in examples)
        share = unknown / max(1, sum(len(example.tokens) for example in examples))
        return f"{share:.1%} of the tokens stand for words that the vocabulary lacks." if share > 0.01 else ""

    def decode(self, ids: Sequence[int] | np.ndarray, *, special: bool = False) -> str:
        """Text of the ids; special tokens are left out unless `special`."""
        return self.raw.decode([int(i) for i in ids], skip_special_tokens=not special)

    def require_mask(self) -> int:
        """The mask. Raises UnmaskError where another token stands in for it, as in GPT-2, which hides no words."""
        if self.mask in (self.cls, self.sep):
            raise UnmaskError("The vocabulary has no mask to hide words by; learn the next token: --written next.")
        return self.mask

    def pieces(self, ids: Iterable[int] | np.ndarray) -> list[str]:
        """The piece of each id, as it stands in the vocabulary."""
        return [self.raw.id_to_token(int(i)) or "" for i in ids]

    @cached_property
    def continuation(self) -> np.ndarray:
        """[V] bool: pieces that continue a word (`##` in WordPiece; no leading space in byte-level BPE)."""
        pieces = self.pieces(range(self.size))
        if self._spaced:
            flags = [not piece.startswith("Ġ") for piece in pieces]
        else:
            prefix = self._facts["model"].get("continuing_subword_prefix") or PREFIX
            flags = [piece.startswith(prefix) and len(piece) > len(prefix) for piece in pieces]
        flags = [flag and i not in self.specials for i, flag in enumerate(flags)]
        return np.array(flags, dtype=bool)

    @property
    def separator(self) -> str:
        """What stands before a text that is encoded by itself but follows another: a space where the vocabulary marks
        a word by the space before it (byte-level BPE), else nothing."""
        return " " if self._spaced else ""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the vocabulary, merges, normaliser, pre-tokenizer and special tokens."""
        facts = {key: self._facts[key] for key in ("normalizer", "pre_tokenizer")}
        facts["vocabulary"] = sorted(self.raw.get_vocab().items(), key=lambda item: (item[1], item[0]))
        facts["merges"] = self._facts["model"].get("merges")
        facts["specials"] = sorted(self.specials)
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"Tokenizer({self._facts['model']['type']}, {self.size} pieces, {'cased' if self.cased else 'uncased'})"

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """The tokenizer.json, without its vocabulary."""
        facts = json.loads(self.raw.to_str())
        facts["model"].pop("vocab", None)
        facts["model"].setdefault("type", "BPE" if "merges" in facts["model"] else "WordPiece")
        return facts

    @property
    def _spaced(self) -> bool:
        return self._facts["model"]["type"] == "BPE"

    def _guard(self, ids: np.ndarray, special: bool) -> np.ndarray:
        """Plain text never yields a special token, even where the model itself knows one as an ordinary word."""
        if not special:
            forbidden = self._forbidden[ids]
            if forbidden.any():
                ids[forbidden] = self.unknown
        return ids

    @cached_property
    def _forbidden(self) -> np.ndarray:
        flags = np.zeros(self.size, dtype=bool)
        flags[list(self.specials)] = True
        return flags

    def _config(self, length: int | None, segments: bool) -> dict[str, Any]:
        """What tokenizer_config.json must say for `transformers` to give the same ids."""
        config: dict[str, Any] = {"model_max_length": length} if length is not None else {}
        config |= {f"{role}_token": name for role, name in self._names.items()}
        if self._spaced:
            config |= {"bos_token": self._names["cls"], "eos_token": self._names["sep"]}
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        pairs = segments and any(self._templates[1].inside)
        config["model_input_names"] = inputs if pairs else [inputs[0], inputs[2]]
        normalizer = self._facts["normalizer"] or {}
        if not self._is_bert:
            return config | {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": not self.cased}
        return config | {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": normalizer["lowercase"],
            "strip_accents": normalizer["strip_accents"],
            "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
        }

    @property
    def _is_bert(self) -> bool:
        """Whether the vocabulary and four settings describe this tokenizer completely."""
        model, normalizer = self._facts["model"], self._facts["normalizer"] or {}
        return (
            model["type"] == "WordPiece"
            and model["continuing_subword_prefix"] == PREFIX
            and model["max_input_chars_per_word"] == 100
            and normalizer.get("type") == "BertNormalizer"
            and normalizer["clean_text"]
            and (self._facts["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
        )


def _row(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def _encode(view: RawTokenizer, text: str) -> Any:
    """The encoding of one text. The library keeps all other threads waiting while it encodes a single text, but not
    while it encodes a batch, which takes a few microseconds more."""
    if len(text) < LONG:
        return view.encode(text, add_special_tokens=False)
    return view.encode_batch([text], add_special_tokens=False)[0]


def _encode_batch(view: RawTokenizer, texts: Sequence[str]) -> list[Any]:
    """Encodings without offsets; texts are cleaned only where the library refuses one, which is rare."""
    try:
        return view.encode_batch_fast(list(texts), add_special_tokens=False)
    except TypeError:
        return view.encode_batch_fast([clean(text) for text in texts], add_special_tokens=False)


def shorten(lengths: Sequence[int], room: int) -> list[int]:
    """Lengths of at most two sequences after cutting the longer one, piece by piece, until they fit the room."""
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    if first < second:
        kept = min(first, (room + 1) // 2)
        return [kept, room - kept]
    kept = min(second, room // 2)
    return [room - kept, kept]

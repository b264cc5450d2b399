"""Tokenizer: texts to ids and back, whatever cuts them; train, load and save, encode with offsets, join, decode."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import pre_tokenizers

from unmask.data.processor import Processor, Region
from unmask.data.text import library, tokenizer_files, vocabulary_files
from unmask.data.text.library import Library
from unmask.data.text.sentinels import SENTINEL, SENTINELS, sentinel, sentinel_ids
from unmask.data.text.splitter import Encoding, Side, Splitter, Template
from unmask.data.text.vocabulary import learn
from unmask.errors import UnmaskError
from unmask.types import Example


class Tokenizer(Processor[str]):
    """A trained tokenizer: text to ids and back. It is the processor of texts.

    A `splitter` cuts texts into pieces (WordPiece, byte-level BPE, SentencePiece, words, characters), and a
    `vocabulary` has the id of each piece.

    `ids` and `encode_words` take the text as plain characters, so that no text in a corpus or among labels can
    bring in a special token; `encode` reads a literal `[MASK]` as the mask. `special=` turns this round. The tokenizer
    of a model that writes (`written`) reads the sentinels of any text, such as <extra_id_0>, and at its beginning a
    tag, such as `>>fra<<`, which tells a Marian model of several languages what to write.

    Train one with `train`, open one with `load`.
    """

    size: int  # V: the number of ids
    pad: int
    unknown: int
    cls: int  # where a vocabulary has no piece for it, `sep`
    sep: int
    mask: int  # where a vocabulary has no piece for it, `sep`
    specials: frozenset[int]
    start: int  # what a decoder reads first: the padding, as in Marian and T5
    end: int  # what ends a text that is written: `sep`

    def __init__(self, side: Side, target: Side | None = None) -> None:
        """A tokenizer of the sources and, where it differs, of the targets."""
        self.side = side
        self.splitter: Splitter = side.splitter
        self.vocabulary: Mapping[str, int] = side.vocabulary
        self.size = max(self.vocabulary.values()) + 1
        self.pad, self.unknown, self.cls, self.sep, self.mask = (
            self.vocabulary[side.roles.get(role, side.roles["sep"])] for role in tokenizer_files.ROLES
        )
        self.start, self.end = self.pad, self.sep
        special = {*side.roles.values(), *side.added, *(self.splitter.controls & self.vocabulary.keys())}
        self.specials = frozenset(self.vocabulary[piece] for piece in special)
        self._special = frozenset(special)
        self._ordinary = {piece: i for piece, i in self.vocabulary.items() if i not in self.specials}
        self._forbidden = np.isin(np.arange(self.size), list(self.specials))
        self._pieces = {i: piece for piece, i in self.vocabulary.items()}
        self._templates = side.templates or (Template.ending(self.sep, 1), Template.ending(self.sep, 2))
        reads = {self._pieces[i] for i in self.sentinels if i in self.specials} if side.sentinels else set()
        self._sentinels = {piece: self.vocabulary[piece] for piece in reads}
        self._left_out = self._special - reads  # of what is decoded
        tags = [piece for piece in self._ordinary if piece.startswith(">>") and piece.endswith("<<")]
        self._tags = {piece: self.vocabulary[piece] for piece in tags} if side.sentinels else {}
        self._target = None if target is None or target is side else type(self)(target)

    @classmethod
    def of(cls, raw: RawTokenizer, roles: Mapping[str, str] | None = None) -> Self:
        """A tokenizer of the `tokenizers` library; `roles` names its special tokens (pad, unk, cls, sep, mask) where
        they are unusual. Raises UnmaskError where one of them is not in the vocabulary."""
        return cls(library.side(raw, roles or {}))

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

        [PAD] [UNK] [CLS] [SEP] [MASK] are the ids 0 … 4. Raises UnmaskError for a text without words. Other kinds are
        trained in `subwords`, `byte_pairs`, `characters`, `spelling` and `whole_words`.
        """
        normalizer = tokenizer_files.bert_normalizer(cased=cased, strip_accents=strip_accents)
        words = pre_tokenizers.BertPreTokenizer()
        vocabulary = learn(texts, size, normalizer=normalizer, pre_tokenizer=words, byte_budget=byte_budget)
        return cls.of(tokenizer_files.wordpiece(vocabulary, normalizer))

    @classmethod
    def load(cls, path: Path | str, *, written: bool = False) -> Self:
        """Open a folder or one of its files: tokenizer.json, else vocab.txt with tokenizer_config.json, else vocab.json
        and merges.txt, else the files of SentencePiece, Marian or T5, or subwords.json.

        written  for a model that reads a text and writes another, see `written`

        Byte-level BPE is that of GPT-2 and RoBERTa. Where a vocabulary has one special token for everything, as GPT-2
        has, that is its `pad`, `cls`, `sep` and so on, and nothing frames a text. Truncation and padding that the file
        may ask for are switched off. Raises UnmaskError where a file is missing, damaged, or asks for what is not
        supported.
        """
        source, target = (vocabulary_files.read_written if written else vocabulary_files.read)(Path(path))
        return cls(source, target)

    def save(self, folder: Path | str, *, length: int | None = None, segments: bool = True) -> list[str]:
        """Write the files, which `transformers` opens, and return their names: tokenizer.json with its configuration
        and, for WordPiece, vocab.txt; for SentencePiece source.spm, target.spm and vocab.json, as Marian has them, or
        with sentinels spiece.model, as T5 has it; for words and characters subwords.json, which is our own.

        Noted for readers of the folder: the greatest number of tokens that the model takes, `length`, and whether it
        reads `segments`.
        """
        return vocabulary_files.write(Path(folder), self.side, self.target.side, length, segments)

    @property
    def raw(self) -> RawTokenizer:
        """The `tokenizers.Tokenizer`. Raises UnmaskError for a vocabulary of another kind."""
        if not isinstance(self.splitter, Library):
            raise UnmaskError(
                f"This needs a vocabulary in a tokenizer.json or vocab.txt; this one is of the kind "
                f"'{self.splitter.kind}'."
            )
        return self.splitter.raw

    @property
    def target(self) -> Self | Tokenizer:
        """What the targets are written with: itself, unless a folder has a model of its own for them.

        Encode and decode targets with it: some Marian folders cut the two languages differently.
        """
        return self._target or self

    @property
    def cased(self) -> bool:
        """Whether capitals are kept."""
        return self.splitter.cased

    @property
    def separator(self) -> str:
        """What stands before a text that is encoded by itself but follows another; see `Splitter`."""
        return self.splitter.separator

    @cached_property
    def sentinels(self) -> list[int]:
        """Ids of <extra_id_0> and so on, which stand for what was cut out of a text; none where it has none."""
        return sentinel_ids(self.vocabulary)

    def written(self) -> Tokenizer:
        """The same vocabulary for a model that reads a text and writes another: nothing but `sep` stands around a text,
        which may bring in sentinels and a tag."""
        if self.side.sentinels and self.side.templates is None:
            return self
        target = None if self._target is None else replace(self._target.side, templates=None, sentinels=True)
        return Tokenizer(replace(self.side, templates=None, sentinels=True), target)

    def with_sentinels(self, count: int = SENTINELS) -> Tokenizer:
        """The same tokenizer with `count` sentinels behind its vocabulary, <extra_id_0> the last of all, as T5 has
        them, and nothing but `sep` around a text. One that has sentinels already is given back.

        Raises UnmaskError for a vocabulary in which the piece that ends a text is also the padding.
        """
        if self.sentinels:
            return self
        if self.sep == self.pad:
            raise UnmaskError(
                "This vocabulary has one token for the end of a text and for padding; T5 needs one for each."
            )
        pieces = [sentinel(number) for number in reversed(range(count))]
        vocabulary = {**self.vocabulary, **{piece: self.size + i for i, piece in enumerate(pieces)}}
        splitter = self.splitter.with_special(pieces, self.pieces([self.sep])[0])
        side = replace(self.side, splitter=splitter, vocabulary=vocabulary, templates=None)
        return Tokenizer(replace(side, added=self.side.added | frozenset(pieces)))

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[np.ndarray]:
        """Ids of each text, [T] int32, without special tokens around them and without truncation."""
        if not self._sentinels and not self._tags:
            return [
                self._guard(ids, special)
                for ids in self.splitter.ids(texts, self._ordinary, self.unknown, special=special)
            ]
        rows = [self._parts(text) for text in texts]
        plain = [part for row in rows for i, part in row if i is None]
        cut = (self._guard(ids) for ids in self.splitter.ids(plain, self._ordinary, self.unknown))
        return [np.concatenate([next(cut) if i is None else _array([i]) for i, _ in row]) for row in rows]

    def encode(self, text: str, *, special: bool = True) -> Encoding:
        """Pieces of a text with their offsets; words are the pre-tokens (runs between whitespace and punctuation), or
        what the splitter takes for words."""
        if not self._sentinels and not self._tags:
            return self._encoding(text, special=special and not self.side.sentinels)
        found, place, word = [], 0, 0
        for i, part in self._parts(text):
            if i is None:
                one = self._encoding(part)
            else:
                one = Encoding(_array([i]), _array([[0, len(part)]]), _array([0]))
            found.append((one.ids, one.offsets + place, one.words + word))
            place, word = place + len(part), word + int(one.words.max(initial=-1)) + 1
        return Encoding(*(np.concatenate(arrays).astype(np.int32) for arrays in zip(*found, strict=True)))

    def encode_words(self, words: Sequence[str], *, special: bool = False) -> Encoding:
        """Pieces of a sequence of words, as tagging needs them: `words[i]` is the word of piece i.

        Every word has at least one piece: a word that is empty after normalisation becomes [UNK].
        """
        lead = self.separator  # a byte-level vocabulary marks a word by the space before it
        texts = [lead * (i > 0) + word for i, word in enumerate(words)]
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        owners: list[int] = []
        for i, (own, places, _) in enumerate(
            self.splitter.encode(texts, self._ordinary, self.unknown, special=special)
        ):
            shift = len(lead) if i else 0
            ids += own or [self.unknown]
            offsets += [(max(b - shift, 0), max(e - shift, 0)) for b, e in places] or [(0, len(words[i]))]
            owners += [i] * max(len(own), 1)
        return Encoding(self._guard(_array(ids), special), _array(offsets).reshape(-1, 2), _array(owners))

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

    def closed(self, ids: np.ndarray, most: int) -> np.ndarray:
        """What an encoder–decoder reads of a source [T]: its ids and `end`, at most `most` in all, so that the last
        ones may be left out."""
        return np.append(ids[: most - 1], np.int32(self.end))

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

    def lacking(self, ids: np.ndarray) -> int:
        """How many of the ids stand for what the vocabulary lacks."""
        return int((ids == self.unknown).sum())

    def unread(self, examples: Sequence[Example]) -> str:
        """One sentence where more than a token in a hundred stands for words that the vocabulary lacks."""
        if self.unknown in (self.pad, self.cls, self.sep):  # a vocabulary of bytes lacks nothing
            return ""
        unknown = sum(self.lacking(example.tokens) for example in examples)
        share = unknown / max(1, sum(len(example.tokens) for example in examples))
        return f"{share:.1%} of the tokens stand for words that the vocabulary lacks." if share > 0.01 else ""

    def shown(self, source: str) -> str:
        """A source as pages show it: whole."""
        return source

    def decode(self, ids: Iterable[int] | np.ndarray, *, special: bool = False) -> str:
        """Text of the ids; special tokens are left out unless `special`, but for sentinels that a text may bring in."""
        pieces = [piece for piece in self.pieces(ids) if piece and (special or piece not in self._left_out)]
        if not any(piece in self._special for piece in pieces) or (self.splitter.joins_special and not self._sentinels):
            return self.splitter.join(pieces)
        parts: list[str] = []
        run: list[str] = []
        for piece in pieces:
            if piece in self._special:
                parts += [self.splitter.join(run).strip(), piece]
                run = []
            else:
                run.append(piece)
        last = self.splitter.join(run)
        return " ".join(part for part in [*parts, last.strip() if parts else last] if part)

    def require_mask(self) -> int:
        """The mask. Raises UnmaskError where another token stands in for it, as in GPT-2, which hides no words."""
        if self.mask in (self.cls, self.sep):
            raise UnmaskError("The vocabulary has no mask to hide words by; learn the next token: --written next.")
        return self.mask

    def pieces(self, ids: Iterable[int] | np.ndarray) -> list[str]:
        """The piece of each id, as it stands in the vocabulary; empty for an id without one, such as those with which
        the vocabulary of a model is filled up."""
        return [self._pieces.get(int(i), "") for i in ids]

    @cached_property
    def continuation(self) -> np.ndarray:
        """[V] bool: pieces that continue a word (`##` in WordPiece; no leading space in other kinds), and ids without a
        piece."""
        begin = [i for piece, i in self.vocabulary.items() if i in self.specials or self.splitter.begins(piece)]
        flags = np.ones(self.size, dtype=bool)
        flags[begin] = False
        return flags

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that ids depend on: the splitter, the vocabulary and its special tokens, of both sides."""
        sides = [self] if self._target is None else [self, self._target]
        facts = [
            {
                **side.splitter.facts(),
                "vocabulary": sorted(side.vocabulary.items(), key=lambda item: (item[1], item[0])),
                "specials": sorted(side.specials),
            }
            for side in sides
        ]
        return hashlib.sha256(json.dumps(facts[0] if len(facts) == 1 else facts, sort_keys=True).encode()).hexdigest()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"Tokenizer({self.splitter.kind}, {self.size} pieces, {'cased' if self.cased else 'uncased'})"

    def _encoding(self, text: str, *, special: bool = False) -> Encoding:
        [(ids, offsets, words)] = self.splitter.encode([text], self._ordinary, self.unknown, special=special)
        return Encoding(self._guard(_array(ids), special), _array(offsets).reshape(-1, 2), _array(words))

    def _guard(self, ids: np.ndarray, special: bool = False) -> np.ndarray:
        """Plain text never yields a special token, even where the model itself knows one as an ordinary word."""
        if not special:
            forbidden = self._forbidden[ids]
            if forbidden.any():
                ids[forbidden] = self.unknown
        return ids

    def _parts(self, text: str) -> list[tuple[int | None, str]]:
        """A text in parts: its tag at the beginning and its sentinels with their ids, and what is between them."""
        tag = text[: text.find("<<") + 2] if text.startswith(">>") else ""
        parts: list[tuple[int | None, str]] = [(self._tags[tag], tag)] if tag in self._tags else []
        text = text[len(parts[0][1]) :] if parts else text
        between = SENTINEL.split(text) if self._sentinels else [text]
        return parts + [(self._sentinels.get(part) if place % 2 else None, part) for place, part in enumerate(between)]


def _array(values: Sequence[Any]) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def _row(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


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

"""Tokenizer: texts to ids and back, for every kind of splitter; train, load and save, encode with offsets, join,
decode."""

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
from unmask.data.text.splitter import Encoding, Side, Splitter, Template, shorten
from unmask.data.text.vocabulary import learn
from unmask.errors import UnmaskError
from unmask.types import Example


class Tokenizer(Processor[str]):
    """A trained tokenizer: text to ids and back. It is the processor of texts.

    A `splitter` cuts texts into pieces (WordPiece, byte-level BPE, SentencePiece, words, characters), and a
    `vocabulary` has the id of each piece.

    `ids` and `encode_words` read the text as plain characters, so that no text of a corpus or a label can contain a
    special token; `encode` reads a literal `[MASK]` as the mask. The argument `special` changes these defaults. The
    tokenizer of an encoder–decoder (`written`) reads sentinels in any text, such as <extra_id_0>, and a tag at its
    beginning, such as `>>fra<<`, which selects the target language of a multilingual Marian model.

    Train one with `train`, open one with `load`.
    """

    size: int  # V: the number of ids
    pad: int
    unknown: int
    cls: int  # `sep` if the vocabulary has no piece for it
    sep: int
    mask: int  # `sep` if the vocabulary has no piece for it
    specials: frozenset[int]
    start: int  # first input of a decoder: the padding, as in Marian and T5
    end: int  # end of a target text: `sep`

    reads_texts = True  # whether sources are texts, not vectors or pictures

    def __init__(self, side: Side, target: Side | None = None) -> None:
        """Build from the side of the sources and, if it differs, that of the targets."""
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
        self._left_out = self._special - reads  # pieces that `decode` leaves out
        tags = [piece for piece in self._ordinary if piece.startswith(">>") and piece.endswith("<<")]
        self._tags = {piece: self.vocabulary[piece] for piece in tags} if side.sentinels else {}
        self._target = None if target is None or target is side else type(self)(target)

    @classmethod
    def of(cls, raw: RawTokenizer, roles: Mapping[str, str] | None = None) -> Self:
        """Wrap a tokenizer of the `tokenizers` library; `roles` has the names of its special tokens (pad, unk, cls,
        sep, mask) if they are unusual. Raises UnmaskError if one of them is not in the vocabulary."""
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

        texts          read once; at most about `byte_budget` bytes of them are kept in memory (`vocabulary.sample`)
        cased          whether to keep capitals; else texts are lower-cased
        strip_accents  whether `é` becomes `e`; Hangul syllables stay whole in both cases

        [PAD] [UNK] [CLS] [SEP] [MASK] are the ids 0 … 4. Raises UnmaskError for texts without words. `subwords`,
        `byte_pairs`, `characters`, `spelling` and `whole_words` train other kinds of vocabularies.
        """
        normalizer = tokenizer_files.bert_normalizer(cased=cased, strip_accents=strip_accents)
        words = pre_tokenizers.BertPreTokenizer()
        vocabulary = learn(texts, size, normalizer=normalizer, pre_tokenizer=words, byte_budget=byte_budget)
        return cls.of(tokenizer_files.wordpiece(vocabulary, normalizer))

    @classmethod
    def load(cls, path: Path | str, *, written: bool = False) -> Self:
        """Open a folder or one of its files: tokenizer.json, else vocab.txt with tokenizer_config.json, else vocab.json
        and merges.txt, else the files of SentencePiece, Marian or T5, or subwords.json.

        written  whether the tokenizer is for an encoder–decoder, see `written`

        Byte-level BPE is that of GPT-2 and RoBERTa. If a vocabulary has a single special token, as that of GPT-2 has,
        it serves as `pad`, `cls`, `sep` and so on, and no special tokens frame a text. Truncation and padding in the
        file are ignored. Raises UnmaskError if a file is missing or damaged, or needs an unsupported feature.
        """
        source, target = (vocabulary_files.read_written if written else vocabulary_files.read)(Path(path))
        return cls(source, target)

    def save(
        self, folder: Path | str, *, length: int | None = None, segments: bool = True, continues: bool = False
    ) -> list[str]:
        """Write the files of the tokenizer and return their names: tokenizer.json with its configuration and, for
        WordPiece, vocab.txt; for SentencePiece source.spm, target.spm and vocab.json, as in Marian, or with sentinels
        spiece.model, as in T5; for words and characters subwords.json, a format of `unmask`. `transformers` opens all
        of them except the last.

        length     largest number of tokens that the model reads; written to the configuration
        segments   whether the model reads segments; written to the configuration
        continues  whether the model continues texts, so that in `transformers` no end follows a text
        """
        return vocabulary_files.write(Path(folder), self.side, self.target.side, length, segments, continues)

    @property
    def raw(self) -> RawTokenizer:
        """The `tokenizers.Tokenizer`. Raises UnmaskError for a vocabulary of another kind."""
        if not isinstance(self.splitter, Library):
            raise UnmaskError(
                f"This needs a tokenizer with a tokenizer.json or vocab.txt, but this one is of the kind "
                f"'{self.splitter.kind}'."
            )
        return self.splitter.raw

    @property
    def target(self) -> Self | Tokenizer:
        """The tokenizer of the targets: this one, unless the folder has a separate one for them.

        Encode and decode targets with it: some Marian folders have different models for the two languages.
        """
        return self._target or self

    @property
    def cased(self) -> bool:
        """Whether capitals are kept."""
        return self.splitter.cased

    @property
    def separator(self) -> str:
        """The prefix for a text that is encoded separately but follows another one; see `Splitter`."""
        return self.splitter.separator

    @cached_property
    def sentinels(self) -> list[int]:
        """Ids of <extra_id_0> and so on, which replace removed spans of a text; empty if there are none."""
        return sentinel_ids(self.vocabulary)

    def written(self) -> Tokenizer:
        """A tokenizer of the same vocabulary for an encoder–decoder: `sep` after a text is its only special token, and
        sentinels and a tag in a text are read."""
        if self.side.sentinels and self.side.templates is None:
            return self
        target = None if self._target is None else replace(self._target.side, templates=None, sentinels=True)
        return Tokenizer(replace(self.side, templates=None, sentinels=True), target)

    def with_sentinels(self, count: int = SENTINELS) -> Tokenizer:
        """A copy with `count` sentinels after its vocabulary, <extra_id_0> last, as in T5, and `sep` after a text as
        the only special token. A tokenizer that has sentinels is returned unchanged.

        Raises UnmaskError if the piece that ends a text is also the padding.
        """
        if self.sentinels:
            return self
        if self.sep == self.pad:
            raise UnmaskError(
                "This vocabulary has the same token for the end of a text and for padding; T5 needs two different ones."
            )
        pieces = [sentinel(number) for number in reversed(range(count))]
        vocabulary = {**self.vocabulary, **{piece: self.size + i for i, piece in enumerate(pieces)}}
        splitter = self.splitter.with_special(pieces, self.pieces([self.sep])[0])
        side = replace(self.side, splitter=splitter, vocabulary=vocabulary, templates=None)
        return Tokenizer(replace(side, added=self.side.added | frozenset(pieces)))

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[np.ndarray]:
        """Ids of each text, [T] int32, without special tokens around it and without truncation."""
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
        """Pieces of a text with their offsets. Words are the pre-tokens (runs between whitespace and punctuation), or
        the words of the splitter."""
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
        """Pieces of a sequence of words, as tagging needs them: `words[i]` of the result is the word of piece i.

        Every word has at least one piece: a word that is empty after normalisation becomes [UNK].
        """
        lead = self.separator  # in a byte-level vocabulary, a word begins with a space
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

        If T would exceed `length`, pieces are removed one by one from the end of the longer sequence (of the second one
        if both are equally long). An empty result becomes the `cls`, so that a head has a token to read. Raises
        UnmaskError if `length` cannot hold the special tokens.
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
        """The input of an encoder–decoder [T]: the ids of a source and `end`, `most` in all at most; surplus ids are
        cut off."""
        return np.append(self.shortened(ids, most - 1), np.int32(self.end))

    def shortened(self, ids: np.ndarray, most: int) -> np.ndarray:
        """The first `most` ids of a source."""
        return ids[:most]

    def places(self, ids: np.ndarray) -> list[str]:
        """The name of each place that an encoder–decoder reads: the pieces of a source, and its end."""
        return [*self.pieces(ids), "</s>"]

    def of_requests(self) -> Tokenizer:
        """The tokenizer for sources that others send: it reads no files of this machine."""
        return self

    def example(self, item: str) -> Example:
        """A text between its special tokens: tokens and segments [T]; like `ids`, it reads plain characters."""
        return Example(*self.join(self.ids([item])[0]))

    def describe(self, item: str, place: int) -> Region | None:
        encoding = self.encode(item, special=False)
        # Negative numbers stand for the pieces, to distinguish them from special tokens.
        framed, _ = self.join(np.arange(-len(encoding), 0))
        if not 0 <= place < len(framed):
            raise UnmaskError(f"The text has {len(framed)} tokens, so there is no place {place}.")
        if framed[place] >= 0:
            return None
        begin, end = encoding.offsets[framed[place]].tolist()
        return Region("characters", (begin,), (end,))

    def lacking(self, ids: np.ndarray) -> int:
        """The number of unknown tokens among the ids."""
        return int((ids == self.unknown).sum())

    def unread(self, examples: Sequence[Example]) -> str:
        """A sentence if more than 1 % of the tokens are unknown, else empty."""
        if self.unknown in (self.pad, self.cls, self.sep):  # a vocabulary of bytes has no unknown token
            return ""
        unknown = sum(self.lacking(example.tokens) for example in examples)
        share = unknown / max(1, sum(len(example.tokens) for example in examples))
        return f"{share:.1%} of the tokens stand for words that the vocabulary lacks." if share > 0.01 else ""

    def shown(self, source: str) -> str:
        """A source in the form that pages show: unchanged."""
        return source

    def decode(self, ids: Iterable[int] | np.ndarray, *, special: bool = False) -> str:
        """Text of the ids. Special tokens are left out unless `special`, except sentinels that texts may contain."""
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
        """The id of the mask. Raises UnmaskError if the vocabulary has no mask token, as that of GPT-2."""
        if self.mask in (self.cls, self.sep):
            raise UnmaskError("The vocabulary has no mask token; learn to predict the next token: --written next.")
        return self.mask

    def pieces(self, ids: Iterable[int] | np.ndarray) -> list[str]:
        """The piece of each id in the vocabulary; empty for an id without a piece, such as those that pad the
        vocabulary of a model."""
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
        """SHA-256 of all that determines ids: splitter, vocabulary and special tokens of both sides."""
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
        """Replace special tokens in plain text by the unknown token: the tokenizer's model may know one as a word."""
        if not special:
            forbidden = self._forbidden[ids]
            if forbidden.any():
                ids[forbidden] = self.unknown
        return ids

    def _parts(self, text: str) -> list[tuple[int | None, str]]:
        """The parts of a text: the tag at its beginning and its sentinels, with their ids, and the text in between."""
        tag = text[: text.find("<<") + 2] if text.startswith(">>") else ""
        parts: list[tuple[int | None, str]] = [(self._tags[tag], tag)] if tag in self._tags else []
        text = text[len(parts[0][1]) :] if parts else text
        between = SENTINEL.split(text) if self._sentinels else [text]
        return parts + [(self._sentinels.get(part) if place % 2 else None, part) for place, part in enumerate(between)]


def _array(values: Sequence[Any]) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def _row(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)

"""Vocabularies of written sequences: unigram and BPE by SentencePiece, words, characters; text to ids and back."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from unmask.data.text import subword_files as files
from unmask.data.text.splitters import PLAIN, SentencePiece, Splitter, learn
from unmask.data.text.subword_files import SPECIALS, Names, Side
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.tokenizer_splitter import SENTINEL, TokenizerFile, sentinel_ids
from unmask.errors import UnmaskError, unknown

LEARNED = ("unigram", "bpe")
KINDS = (*LEARNED, *PLAIN)


class Subwords:
    """Text to ids and back, for models that write: a splitter, which cuts texts, and a vocabulary, piece -> id.

    A text is plain characters: `</s>` in it is spelled, never the special piece. At its beginning a tag that the
    vocabulary holds, such as `>>fra<<`, is one piece, which tells a Marian model of several languages what to write.
    A sentinel that it holds, such as <extra_id_0>, is one piece wherever it stands: a T5 reads and writes them.

    Train one with `train`, open one with `load`.
    """

    size: int  # V: the number of ids
    end: int  # after the last piece of a sequence, in sources and targets
    unknown: int
    pad: int
    start: int  # what a decoder reads first: the padding, as in Marian
    specials: frozenset[int]
    note: str = ""  # what the person who trained it should know, if anything

    def __init__(self, side: Side, target: Side | None = None) -> None:
        """Wrap the side of the sources and, where it differs, that of the targets."""
        self.side = side
        self.vocabulary = side.vocabulary
        self.splitter: Splitter = side.splitter
        self.size = max(self.vocabulary.values()) + 1
        self.end, self.unknown, self.pad = (self.vocabulary[name] for name in side.names)
        self.start = self.pad
        names = {*side.names, *side.added, *(self.splitter.controls & self.vocabulary.keys())}
        self.specials = frozenset(self.vocabulary[name] for name in names)
        self._ordinary = {piece: i for piece, i in self.vocabulary.items() if i not in self.specials}
        self._pieces = {i: piece for piece, i in self.vocabulary.items()}
        self._tags = frozenset(p for p in self._ordinary if p.startswith(">>") and p.endswith("<<"))
        self._marks = {self._pieces[i]: i for i in self.sentinels if i in self.specials}
        self._known = self._ordinary | self._marks
        self._target = None if target is None or target is side else type(self)(target)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """The pieces of a tokenizer that models of another kind read with; its [SEP] ends a sequence."""
        names = Names(*tokenizer.pieces([tokenizer.sep, tokenizer.unknown, tokenizer.pad]))
        splitter = TokenizerFile(tokenizer.raw)
        return cls(Side(splitter=splitter, vocabulary=tokenizer.raw.get_vocab(), names=names, added=splitter.controls))

    @cached_property
    def sentinels(self) -> list[int]:
        """Ids of <extra_id_0> and so on, which stand for what was cut out of a text; none where it has none."""
        return sentinel_ids(self.vocabulary)

    @property
    def target(self) -> Subwords:
        """What the targets are written with: itself, unless a folder has a model of its own for them.

        Encode and decode targets with it: some Marian folders cut the two languages differently.
        """
        return self._target or self

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        size: int,
        kind: str = "unigram",
        *,
        normalization: str = "nmt_nfkc",
        coverage: float = 1.0,
        byte_fallback: bool = False,
        byte_budget: int = 50_000_000,
    ) -> Self:
        """Learn a vocabulary of at most `size` pieces; the same texts always give the same one.

        texts          of both sides, for a vocabulary that they share; read once
        size           with </s> (id 0), <unk> (1) and <pad> (the last). A text too small for so many gives as many
                       as it can, and `note` says so
        kind           "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016), both by SentencePiece, for which at most
                       about `byte_budget` bytes of the texts are held, spread evenly (`vocabulary.sample`);
                       "word" (what `splitters.Words` makes of punctuation) or "character" count all of them and
                       keep the commonest
        normalization  "nmt_nfkc" (compatibility characters and spaces made equal), "nmt_nfkc_cf" (lower case too) or
                       "identity"
        coverage       share of the characters that get an id, the rare rest being unknown: 1 for all; 0.98 or more
        byte_fallback  spell unknown characters in bytes, which takes 256 pieces

        Coverage and byte fallback are of unigram and BPE only. Raises UnmaskError for a kind or normalisation that
        does not exist, a text without words, and a size that cannot hold the characters, naming one that can.
        """
        if kind not in KINDS:
            raise unknown("kind of vocabulary", kind, KINDS)
        if size < 4:
            raise UnmaskError(f"A vocabulary of {size} is too small: three pieces are special, ask for more.")
        if kind in PLAIN:
            if coverage != 1 or byte_fallback:
                raise UnmaskError(f"Coverage and byte fallback are for unigram and bpe; leave them out for '{kind}'.")
            splitter: Splitter = PLAIN[kind](normalization)
            pieces = [SPECIALS.end, SPECIALS.unknown, *_commonest(splitter, texts, size - 3)]
        else:
            splitter = learn(
                texts,
                size - 1,  # <pad> is not SentencePiece's business
                kind=kind,
                normalization=normalization,
                coverage=coverage,
                byte_fallback=byte_fallback,
                byte_budget=byte_budget,
            )
            pieces = splitter.pieces
        vocabulary = {piece: i for i, piece in enumerate([*pieces, SPECIALS.pad])}
        trained = cls(Side(splitter=splitter, vocabulary=vocabulary))
        trained.note = trained.short_of(size)
        return trained

    def short_of(self, size: int) -> str:
        """A sentence where there are fewer pieces than the `size` that was asked for; else nothing."""
        short = f"The text gives no more than {self.size} of the {size} pieces that were asked for."
        return short if self.size < size else ""

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Open a folder that `save` or transformers' MarianTokenizer or T5Tokenizer wrote, or one with a
        tokenizer.json, or a SentencePiece .model or .spm file.

        Raises UnmaskError where a file is missing, damaged, or asks for what is not supported.
        """
        return cls(*files.read(Path(path)))

    def save(self, folder: Path | str, *, length: int | None = None) -> list[str]:
        """Write the files, and return their names: for SentencePiece source.spm, target.spm, vocab.json and
        tokenizer_config.json, which MarianTokenizer opens, or with sentinels spiece.model, which T5Tokenizer does; for
        words and characters subwords.json; tokenizer.json where the pieces are from there.

        `length` is the greatest number of tokens that the model takes, noted for readers of the folder.
        """
        if self.splitter.kind in PLAIN:
            return files.write_plain(Path(folder), self.side)
        if isinstance(self.splitter, TokenizerFile):
            return files.write_tokenizer(Path(folder), self.side, length)
        if files.is_t5(self.side):
            return files.write_t5(Path(folder), self.side, length)
        return files.write_marian(Path(folder), self.side, self.target.side, length)

    def save_model(self, path: Path | str) -> None:
        """Write the SentencePiece model alone, as SentencePiece itself does. Raises UnmaskError if there is none."""
        if not isinstance(self.splitter, SentencePiece):
            raise UnmaskError(f"A vocabulary of the kind '{self.splitter.kind}' has no SentencePiece model.")
        files.write_bytes(Path(path), self.splitter.model)

    def normalize(self, text: str) -> str:
        """The text as `decode(encode(text))` gives it where the vocabulary can write all of it."""
        parts = SENTINEL.split(text) if self._marks else [text]
        if len(parts) == 1:
            return self.splitter.normalize(text)
        shown = [part if part in self._marks else self.splitter.normalize(part).strip() for part in parts]
        return " ".join(part for part in shown if part)

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text, [T] int32, without `end` after them."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, [T] int32, without `end` after them: faster than one by one."""
        known, unknown = self._known, self.unknown
        return [np.array([known.get(piece, unknown) for piece in row], np.int32) for row in self._split(texts)]

    def closed(self, ids: np.ndarray, most: int) -> np.ndarray:
        """What a model reads of a source [T]: its ids and `end`, at most `most` in all, so that the last ones may be
        left out."""
        return np.append(ids[: most - 1], np.int32(self.end))

    def shown(self, source: str) -> str:
        """A source as pages show it: whole."""
        return source

    def lacking(self, ids: np.ndarray) -> int:
        """How many of the ids stand for what the vocabulary lacks."""
        return int((ids == self.unknown).sum())

    def decode(self, ids: Iterable[int] | np.ndarray, *, special: bool = False) -> str:
        """Text of the ids; special pieces, <unk> among them but no sentinels, are left out unless `special`."""
        parts: list[str] = []
        run: list[str] = []
        for i, piece in zip(ids := [int(i) for i in ids], self.pieces(ids), strict=True):
            if i not in self.specials:
                run.append(piece)
            elif special or piece in self._marks:
                parts += [self.splitter.join(run).strip(), piece]
                run = []
        last = self.splitter.join(run)
        return " ".join(part for part in [*parts, last.strip() if parts else last] if part)

    def pieces(self, ids: Iterable[int] | np.ndarray) -> list[str]:
        """The piece of each id. Raises UnmaskError for an id that the vocabulary does not have."""
        try:
            return [self._pieces[int(i)] for i in ids]
        except KeyError as error:
            raise UnmaskError(f"There is no piece {error}: the vocabulary has the ids 0 to {self.size - 1}.") from None

    def words(self, text: str) -> list[list[tuple[str, int]]]:
        """The pieces of each word of a text with their ids; what has no id stands as it was cut."""
        found: list[list[tuple[str, int]]] = []
        for piece in self._split([text])[0]:
            if not found or piece in self._marks or self.splitter.begins(piece):
                found.append([])
            found[-1].append((piece, self._known.get(piece, self.unknown)))
        return found

    @cached_property
    def continuation(self) -> np.ndarray:
        """[V] bool: pieces that continue a word, and ids without a piece."""
        begin = [i for piece, i in self.vocabulary.items() if i in self.specials or self.splitter.begins(piece)]
        flags = np.ones(self.size, dtype=bool)
        flags[begin] = False
        return flags

    def unknowns(self, texts: Iterable[str]) -> Counter[str]:
        """What the vocabulary cannot write, and how often it stands in the texts: characters, or words for "word"."""
        found: Counter[str] = Counter()
        for row in self._split(list(texts)):
            for piece in row:
                if piece not in self._known:
                    found.update(self.splitter.units(piece))
        return found

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that ids depend on: splitters, vocabularies and special pieces."""
        facts = [
            (half.splitter.facts(), sorted(half.vocabulary.items()), sorted(half.specials), half.side.names)
            for half in (self, self.target)
        ]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"Subwords({self.splitter.kind}, size={self.size})"

    def _split(self, texts: Sequence[str]) -> list[list[str]]:
        """The pieces of each text, its tag first; sentinels are pieces of their own."""
        tags = [self._tag(text) for text in texts]
        plain = [text[len(tag) :] for text, tag in zip(texts, tags, strict=True)]
        rows = self._between_sentinels(plain) if self._marks else self.splitter.split(plain)
        return [[tag, *row] if tag else row for tag, row in zip(tags, rows, strict=True)]

    def _between_sentinels(self, texts: Sequence[str]) -> list[list[str]]:
        """The pieces of each text, where every other part of it is a sentinel."""
        parts = [SENTINEL.split(text) for text in texts]
        cut = iter(self.splitter.split([part for row in parts for part in row if part not in self._marks]))
        return [[piece for part in row for piece in ([part] if part in self._marks else next(cut))] for row in parts]

    def _tag(self, text: str) -> str:
        """The tag at the beginning of a text, if the vocabulary holds it."""
        if not (self._tags and text.startswith(">>")):
            return ""
        tag = text[: text.find("<<") + 2]
        return tag if tag in self._tags else ""


def _commonest(splitter: Splitter, texts: Iterable[str], most: int) -> list[str]:
    """The commonest pieces of the texts, most often seen first. Raises UnmaskError where there are none."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(splitter.split([text])[0])
    if not any(piece.strip() for piece in counts):
        raise UnmaskError("The text holds no words to learn a vocabulary from; give it some text.")
    return sorted(counts, key=lambda piece: (-counts[piece], piece))[:most]

"""Token shards: three raw arrays each, which are written as a stream, memory-mapped, and cut into pieces of documents.

NAME.tokens     little-endian uint16 (uint32 for more than 65,536 pieces): ids without special tokens
NAME.sentences  little-endian uint32: end of each sentence, in tokens of this shard
NAME.documents  little-endian uint32: end of each document, in sentences of this shard
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.corpora import Checked, Folder
from unmask.errors import UnmaskError
from unmask.types import Document

BOUND = np.dtype("<u4")
SUFFIXES = (".tokens", ".sentences", ".documents")

# A document, or a piece of one: `document` is its number in the split, the other numbers count within its shard. It has
# `tokens` tokens from token `begin`, which belong to the sentences first … end - 1.
UNIT = np.dtype([(name, "<u4") for name in ("document", "first", "end", "begin", "tokens")])


def token_type(vocabulary: int) -> np.dtype:
    """The smaller of uint16 and uint32 that holds the ids of a vocabulary of this size."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


class Shard:
    """One shard, memory-mapped or read through a cache.

    tokens     [T] ids
    sentences  [S] uint32: end of each sentence, in tokens
    documents  [D] uint32: end of each document, in sentences
    """

    def __init__(self, folder: Folder, name: str, vocabulary: int, files: Mapping[str, Any]) -> None:
        """Open a shard without reading it.

        files  size and checksum of each file

        Raises UnmaskError, which names the local file that is missing or does not match the others.
        """
        self.path = f"{folder}/{name}.tokens"
        types = zip(SUFFIXES, (token_type(vocabulary), BOUND, BOUND), strict=True)
        self.tokens, self.sentences, self.documents = (folder.array(name + end, files, dtype) for end, dtype in types)
        bounds = BOUND.itemsize * (len(self.sentences) + len(self.documents))
        self.bytes = token_type(vocabulary).itemsize * len(self.tokens) + bounds
        if folder.near and not self._fits():
            raise UnmaskError(f"{self.path} does not match its sentence and document bounds; build the corpus again.")

    def read(self, document: int, first: int, end: int, begin: int, tokens: int) -> Document:
        """Read the piece of a document that one entry of `units` describes; its sentences are views of the map."""
        bounds = (self.sentences[first:end].astype(np.int64) - begin).tolist()
        bounds[-1] = tokens
        ids, sentences, last = self.tokens[begin : begin + tokens], [], 0
        for bound in bounds:
            sentences.append(ids[last:bound])
            last = bound
        return Document(sentences, document)

    def units(self, limit: int, origin: int) -> np.ndarray:
        """All documents as UNITs of at most `limit` tokens, in order; `origin` is the number of the first one."""
        ends, sentences = self.documents[:].astype(np.int64), self.sentences[:]
        firsts = np.concatenate([[0], ends[:-1]])
        stops = sentences[ends - 1].astype(np.int64)
        begins = np.concatenate([[0], stops[:-1]])
        numbers = origin + np.arange(len(ends))
        fits = stops - begins <= limit
        columns = [np.stack([numbers, firsts, ends, begins, stops - begins], axis=1)[fits]]
        for i in np.flatnonzero(~fits).tolist():
            pieces = _cut(sentences[firsts[i] : ends[i]].astype(np.int64), int(begins[i]), limit)
            rows = [
                (numbers[i], firsts[i] + first, firsts[i] + end, begin, tokens) for first, end, begin, tokens in pieces
            ]
            columns.append(np.array(rows))
        table = np.concatenate(columns)
        table = table[np.argsort(table[:, 3], kind="stable")].astype(BOUND)
        return np.ascontiguousarray(table).view(UNIT).reshape(-1)

    def _fits(self) -> bool:
        documents, sentences = self.documents[-1:], self.sentences[-1:]
        return bool(documents == len(self.sentences) and sentences == len(self.tokens))


class Writer:
    """Writes documents of one split into shards of about `limit` tokens, and computes their checksums.

    shards  name and counts of each finished shard
    files   name -> bytes and sha256 of each finished file
    """

    def __init__(self, folder: Path, split: str, vocabulary: int, limit: int) -> None:
        """limit: approximate number of tokens of a shard, at least 1."""
        self.folder, self.split = folder, split
        self.limit = min(limit, int(np.iinfo(BOUND).max))  # the largest bound that the format allows
        self.dtype = token_type(vocabulary)
        self.shards: list[dict[str, Any]] = []
        self.files: dict[str, dict[str, Any]] = {}
        self._file: Checked | None = None
        self._lengths, self._counts = array("I"), array("I")  # tokens of each sentence, sentences of each document
        self._tokens = 0

    def add(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        """Add a document: ids [T] of all its sentences, and the number of tokens of each sentence, at least 1."""
        if self._file is not None and self._tokens + len(tokens) > self.limit:
            self.close()
        if len(tokens) > np.iinfo(BOUND).max:
            raise UnmaskError(f"A document of {len(tokens):,} tokens is too long for a corpus; cut it into several.")
        if self._file is None:
            self._file = self._open("tokens")
        self._file.write(tokens.astype(self.dtype))
        self._lengths.frombytes(lengths.astype(np.uintc).tobytes())  # an array would keep the block that it is from
        self._counts.append(len(lengths))
        self._tokens += len(tokens)

    def close(self) -> None:
        """Finish the open shard, if there is one."""
        if self._file is None:
            return
        sentences, documents = (np.cumsum(np.array(one), dtype=np.int64) for one in (self._lengths, self._counts))
        self._close(self._file)
        for kind, bounds in (("sentences", sentences), ("documents", documents)):
            file = self._open(kind)
            file.write(bounds.astype(BOUND))
            self._close(file)
        facts = {"documents": len(documents), "sentences": len(sentences), "tokens": self._tokens}
        self.shards.append({"name": self._name, **facts})
        self._file, self._lengths, self._counts, self._tokens = None, array("I"), array("I"), 0

    def facts(self) -> dict[str, Any]:
        """Counts of the split and of each of its shards."""
        sums = {kind: sum(shard[kind] for shard in self.shards) for kind in ("documents", "sentences", "tokens")}
        return {**sums, "shards": self.shards}

    def abandon(self) -> None:
        """Close the open file, if there is one, without finishing the shard."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.file.close()

    @property
    def _name(self) -> str:
        return f"{self.split}-{len(self.shards):05d}"

    def _open(self, kind: str) -> Checked:
        return Checked(self.folder / f"{self._name}.{kind}")

    def _close(self, file: Checked) -> None:
        self.files[file.path.name] = file.close()


def _cut(bounds: np.ndarray, begin: int, limit: int) -> list[tuple[int, int, int, int]]:
    """(first sentence, end sentence, first token, tokens) of pieces of at most `limit` tokens of a long document.

    Pieces end with a sentence and are about equally long; a sentence longer than `limit` is cut too.

    bounds  [S] end of each sentence of the document
    begin   begin of the first sentence
    """
    pieces, first, stop = [], 0, int(bounds[-1])
    while begin < stop:
        rest = stop - begin
        aim = -(-rest // -(-rest // limit))
        end = int(np.searchsorted(bounds, begin + aim)) + 1  # up to the sentence that reaches the aim, if it fits;
        if bounds[end - 1] > begin + limit:  # else up to the last sentence that fits
            end = int(np.searchsorted(bounds, begin + limit, side="right"))
        if end > first:
            reach = int(bounds[end - 1])
            pieces.append((first, end, begin, reach - begin))
            first = end
        else:
            reach = begin + limit
            pieces.append((first, first + 1, begin, limit))
        begin = reach
    return pieces

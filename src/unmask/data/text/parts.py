"""One part of a corpus on disk: the tokens of its documents in the order of reading, not yet divided into splits.

part-00000.*  a shard (`shards.py`); documents without tokens have a bound, too. In addition:
  .digests    the 16 bytes of each document by which copies are found
  .sources    little-endian uint32: the line of names.jsonl with the source of each document
only.json     the text of the only document, if all documents of the part are copies of one
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.parts import Part
from unmask.data.parallel import ordered
from unmask.data.text.building import Encode, Tally, batches, digest_of, normal
from unmask.data.text.reading import TextDocument
from unmask.data.text.shards import BOUND, Writer, token_type
from unmask.data.text.tokenizer import Tokenizer
from unmask.files import MANIFEST, describe, write_text, writing

DIGEST = np.dtype([("high", ">u8"), ("low", ">u8")])
BLOCK = 1 << 24  # tokens of a shard of a part; the merge has one shard in memory
Taken = tuple[str, np.ndarray, np.ndarray]

RECENT = 1 << 20  # documents whose copies are dropped at once, in about 100 MB; the merge finds all others


class Seen:
    """Documents with their digests, without empty ones and copies of recent ones.

    documents  number of documents so far
    only       the document that all others are copies of; None if there are several
    """

    def __init__(self, documents: Iterable[TextDocument], tally: Tally) -> None:
        self.source, self.tally = documents, tally
        self.documents = 0
        self.only: TextDocument | None = None

    def __iter__(self) -> Iterator[tuple[bytes, TextDocument]]:
        recent: set[bytes] = set()
        first = b""
        for document in self.source:
            content = normal(document.text)
            digest = digest_of(content)
            if not content:
                self.tally.empty += 1
            elif digest in recent:
                self.tally.duplicates += 1
            else:
                if len(recent) >= RECENT:
                    recent.clear()
                recent.add(digest)
                self.documents += 1
                if self.documents == 1:
                    self.only, first = document, digest
                elif digest != first:
                    self.only = None
                yield digest, document


class PartWriter(Writer):
    """Writes documents with their digests and the numbers of their sources."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        super().__init__(folder, "part", vocabulary, BLOCK)
        self._digests: list[bytes] = []
        self._sources: list[int] = []

    def note(self, digest: bytes, source: int) -> None:
        """Add what belongs to the last document."""
        self._digests.append(digest)
        self._sources.append(source)

    def close(self) -> None:
        if self._digests:
            digests = np.frombuffer(b"".join(self._digests), DIGEST)
            for kind, values in (("digests", digests), ("sources", np.array(self._sources, BOUND))):
                file = self._open(kind)
                file.write(values)
                self._close(file)
            self._digests, self._sources = [], []
        super().close()


def write(
    documents: Iterable[TextDocument], folder: Path, tokenizer: Tokenizer, workers: int, report: Callable[[int], None]
) -> dict[str, Any]:
    """Write the files of a part into an empty folder, and return the entries of its manifest.

    workers  number of processes that encode; 0 encodes in a background thread
    report   called with the number of documents so far
    """
    names = list(tokenizer.save(folder))
    tally, lines = Tally(), dict[str, int]()
    seen, writer = Seen(documents, tally), PartWriter(folder, tokenizer.size)
    done = 0
    try:
        for batch in ordered(Encode(folder), batches(seen), workers):
            for digest, source, tokens, lengths in batch:
                writer.add(tokens, lengths)
                writer.note(digest, lines.setdefault(source, len(lines)))
            done += len(batch.digests)
            report(done)
        writer.close()
    finally:
        writer.abandon()
    write_text(folder / "names.jsonl", "".join(f"{json.dumps(source)}\n" for source in lines))
    others = ["names.jsonl"]
    if seen.only is not None:
        write_text(folder / "only.json", json.dumps({"text": seen.only.text, "source": seen.only.source}))
        others.append("only.json")
    return {
        "vocabulary": tokenizer.size,
        "tokenizer": names,
        "documents": seen.documents,
        "duplicates": tally.duplicates,
        "empty": tally.empty,
        "shards": writer.shards,
        "files": writer.files | {name: describe(folder / name) for name in [*names, *others]},
    }


@dataclass(frozen=True)
class Block:
    """The documents of a shard of a part.

    names      the sources of all documents of the part
    digests    [D] DIGEST
    sources    [D] index into names
    documents  [D + 1] begin of each document, in sentences
    sentences  [S + 1] begin of each sentence, in tokens
    tokens     [T]
    """

    names: Sequence[str]
    digests: np.ndarray
    sources: np.ndarray
    documents: np.ndarray
    sentences: np.ndarray
    tokens: np.ndarray

    def take(self, numbers: np.ndarray) -> Iterator[tuple[bytes, Taken]]:
        """The digest of some documents, and their source, tokens [T] and numbers of tokens of their sentences [S].

        The arrays are copies: a document that waits for its split must not keep the block in memory."""
        lengths = np.diff(self.sentences)
        for i in numbers.tolist():
            first, end = self.documents[i : i + 2].tolist()
            tokens = self.tokens[self.sentences[first] : self.sentences[end]]
            yield self.digests[i].tobytes(), (self.names[self.sources[i]], tokens.copy(), lengths[first:end].copy())


class TextPart:
    """An open part. Its files are read one after another, and compared with their checksums when they are read.

    documents  number of documents
    """

    def __init__(self, part: Part) -> None:
        self.part, self.manifest = part, part.manifest
        self.documents: int = self.manifest["documents"]

    def tokenizer(self, folder: Path) -> tuple[Tokenizer, list[str]]:
        """The tokenizer, and the names of its files, which are copied into a folder. Raises UnmaskError if it is not
        the one of the ids."""
        names: list[str] = self.manifest["tokenizer"]
        for name in names:
            content = self.part.read(name)
            with writing(folder / name):
                (folder / name).write_bytes(content)
        tokenizer = Tokenizer.load(folder)
        if tokenizer.fingerprint != self.manifest["fingerprint"] or tokenizer.size != self.manifest["vocabulary"]:
            raise self.part.damaged(names[0])
        return tokenizer, names

    def only(self) -> TextDocument | None:
        """The document that all documents of the part are copies of; None if there are several, or none."""
        if "only.json" not in self.manifest["files"]:
            return None
        return TextDocument(**json.loads(self.part.read("only.json")))

    def digests(self) -> Iterator[np.ndarray]:
        """[D] DIGEST of the documents of each shard. Raises UnmaskError if they are not as many as `documents`."""
        count = 0
        for shard in self.manifest["shards"]:
            found = self._array(f"{shard['name']}.digests", DIGEST)
            count += len(found)
            yield found
        if count != self.documents:
            raise self.part.damaged(MANIFEST)

    def blocks(self) -> Iterator[Block]:
        """The documents of each shard."""
        names = [json.loads(line) for line in self.part.read("names.jsonl").splitlines()]
        dtype = token_type(self.manifest["vocabulary"])
        for name in (shard["name"] for shard in self.manifest["shards"]):
            digests, sources = self._array(f"{name}.digests", DIGEST), self._array(f"{name}.sources", BOUND)
            documents, sentences = (
                np.concatenate([[0], self._array(f"{name}.{kind}", BOUND).astype(np.int64)])
                for kind in ("documents", "sentences")
            )
            tokens = self._array(f"{name}.tokens", dtype)
            sound = len(digests) == len(sources) == len(documents) - 1 and int(sources.max()) < len(names)
            if not sound or documents[-1] != len(sentences) - 1 or sentences[-1] != len(tokens):
                raise self.part.damaged(f"{name}.documents")
            if len(tokens) and int(tokens.max()) >= self.manifest["vocabulary"]:
                raise self.part.damaged(f"{name}.tokens")
            yield Block(names, digests, sources, documents, sentences, tokens)

    def _array(self, name: str, dtype: np.dtype) -> np.ndarray:
        content = self.part.read(name)
        if len(content) % dtype.itemsize:
            raise self.part.damaged(name)
        return np.frombuffer(content, dtype)

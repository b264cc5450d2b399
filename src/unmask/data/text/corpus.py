"""Corpus: a folder of token shards with a manifest of checksums; functions to build, open and read one."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unmask.data.files.corpora import TEXTS, VERIFY_BELOW, checksum_of, read_manifest, seal, workspace
from unmask.data.parallel import ordered
from unmask.data.text.building import (
    HELDOUT,
    TRAIN,
    Encode,
    Encoded,
    Tally,
    batches,
    deal,
    entropy,
    refuse_single_pass,
    sources_by_size,
)
from unmask.data.text.reading import TextDocument
from unmask.data.text.shards import UNIT, Shard, Writer
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, plural, unknown
from unmask.files import check, describe
from unmask.types import Document

VERSION = 1
CHUNK = 1 << 20  # tokens that are counted at once
Documents = Iterable[TextDocument] | Callable[[], Iterable[TextDocument]]
Progress = Callable[[str, int, int | None], None]


class Learn(Protocol):
    """A function that trains a tokenizer of at most `size` pieces on texts, which it reads once."""

    def __call__(self, texts: Iterable[str], size: int, *, cased: bool, strip_accents: bool) -> Tokenizer: ...


class Corpus:
    """An open corpus. `Corpus(folder).split("train").units(4096)` lists its pieces of documents.

    manifest   the content of manifest.json: counts, checksums, options, sources, unknown_rate, unigram_entropy (nats)
    notes      sentences on what could not be read: none
    """

    notes: Sequence[str] = ()

    def __init__(self, folder: Path | str, *, verify: bool | None = None) -> None:
        """Open a folder that `build` wrote.

        verify  whether to compare checksums and check all ids; None: if the corpus is below 1 GiB. Sizes are always
                compared

        Raises UnmaskError, which names the file that is missing, damaged or inconsistent.
        """
        self.folder = Path(folder)
        try:
            self.manifest = read_manifest(self.folder, TEXTS, VERSION)
            if verify is None:
                verify = self._bytes() < VERIFY_BELOW
            check(self.folder, self.manifest["files"], "Build the corpus again.", checksums=verify)
        except OSError as error:
            raise UnmaskError(f"{error.filename or folder} cannot be read: {error.strerror or error}.") from None
        self._splits = {name: Split(self.folder, name, self.manifest) for name in self.manifest["splits"]}
        if verify:
            for split in self._splits.values():
                split.check_ids()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the ids. Raises UnmaskError if it is not the one that the corpus was built with."""
        tokenizer = Tokenizer.load(self.folder)
        if tokenizer.fingerprint != self.manifest["fingerprint"] or tokenizer.size != self.manifest["vocabulary"]:
            raise UnmaskError(
                f"The tokenizer in {self.folder} is not the one that the corpus was built with; build it again."
            )
        return tokenizer

    @property
    def processor(self) -> Tokenizer:
        """The processor of texts: the tokenizer."""
        return self.tokenizer

    def split(self, name: str) -> Split:
        """The split "train" or "heldout". Raises UnmaskError for another name."""
        if name not in self._splits:
            raise unknown(f"split of {self.folder}", name, self._splits)
        return self._splits[name]

    @property
    def checksum(self) -> str:
        """SHA-256 of the content of the corpus, which does not depend on its path."""
        return checksum_of(self.manifest["files"])

    def summary(self) -> str:
        """The size and the statistics of the corpus, in a few lines."""
        facts = self.manifest
        lines = [f"Corpus {self.folder}: vocabulary of {facts['vocabulary']:,} pieces, {self._bytes() / 1e6:,.1f} MB."]
        for name, split in self._splits.items():
            counts = {"document": split.documents, "sentence": split.sentences, "token": split.tokens}
            lines.append(f"  {name:8} {', '.join(plural(count, noun) for noun, count in counts.items())}")
        dropped = {"duplicate": facts["duplicates"], "empty document": facts["empty"]}
        lines += [f"  {plural(count, noun)} dropped" for noun, count in dropped.items() if count]
        if facts.get("divided"):
            lines.append(f"  held out of the only document: its end, {plural(facts['divided'], 'sentence')}")
        lines.append(
            f"  {facts['unknown_rate']:.2%} of the tokens unknown, unigram entropy {facts['unigram_entropy']:.2f} nats"
        )
        return "\n".join(lines)

    def _bytes(self) -> int:
        return sum(fact["bytes"] for fact in self.manifest["files"].values())


class Split:
    """One part of a corpus: "train" or "heldout". Its files are memory-mapped, and it is cheap to pickle.

    documents, sentences, tokens   counts
    vocabulary, fingerprint        size and fingerprint of the tokenizer
    """

    def __init__(self, folder: Path, name: str, manifest: dict[str, Any]) -> None:
        facts = manifest["splits"][name]
        self.folder, self.name = folder, name
        self.documents: int = facts["documents"]
        self.sentences: int = facts["sentences"]
        self.tokens: int = facts["tokens"]
        self.vocabulary: int = manifest["vocabulary"]
        self.fingerprint: str = manifest["fingerprint"]
        self.pad: int = manifest["pad"]
        self._shards = [Shard(folder, shard["name"], self.vocabulary) for shard in facts["shards"]]
        self._origins = list(accumulate((len(shard.documents) for shard in self._shards), initial=0))

    def units(self, limit: int) -> np.ndarray:
        """[U] UNIT: the documents in order; those of more than `limit` tokens are cut between sentences.

        The pieces of a long document are about equally long; a sentence of more than `limit` tokens is cut too.
        """
        if limit < 1:
            raise UnmaskError(f"Pieces of documents need at least one token, not {limit}.")
        parts = [shard.units(limit, origin) for shard, origin in zip(self._shards, self._origins, strict=False)]
        return np.concatenate(parts) if parts else np.empty(0, UNIT)

    def pieces(self, limit: int, origin: int = 0) -> Pieces:
        """The pieces of `units` as a source; `origin` is the number of the first document."""
        return Pieces(self, limit, origin)

    def read(self, unit: Sequence[int]) -> Document:
        """Read the piece of one row of `units`; its sentences are read-only views [T] of uint16 or uint32."""
        document, first, end, begin, tokens = map(int, unit)
        shard = self._shards[bisect_right(self._origins, document) - 1]
        return shard.read(document, first, end, begin, tokens)

    def __iter__(self) -> Iterator[Document]:
        """The whole documents, in order."""
        for unit in self.units(np.iinfo(np.int64).max).tolist():
            yield self.read(unit)

    def unigrams(self) -> np.ndarray:
        """[V] int64: the count of each id."""
        counts = np.zeros(self.vocabulary, np.int64)
        for shard in self._shards:
            for begin in range(0, len(shard.tokens), CHUNK):
                counts += np.bincount(shard.tokens[begin : begin + CHUNK], minlength=self.vocabulary)
        return counts

    def check_ids(self) -> None:
        """Raises UnmaskError, which names the first file with an id beyond the vocabulary."""
        for shard in self._shards:
            largest = int(shard.tokens.max())
            if largest >= self.vocabulary:
                raise UnmaskError(
                    f"{shard.path} has the id {largest}, but the vocabulary has {self.vocabulary} ids; build it again."
                )

    def __reduce__(self) -> tuple[Callable[[Path, str], Split], tuple[Path, str]]:
        return _reopen, (self.folder, self.name)


class Pieces:
    """A split as a source: a unit is a document, or a piece of at most `limit` tokens of a longer one. Its cost is its
    number of tokens."""

    def __init__(self, split: Split, limit: int, origin: int) -> None:
        self.split, self.origin, self.table = split, origin, split.units(limit)
        self.cost = self.table["tokens"].astype(np.int64)

    def read(self, unit: int) -> Document:
        """Read a piece; `index` is the number of its document."""
        document = self.split.read(self.table[unit].item())
        return Document(document.sentences, self.origin + document.index) if self.origin else document


def build(
    documents: Documents,
    out: Path | str,
    *,
    tokenizer: Tokenizer | None = None,
    learn: Learn = Tokenizer.train,
    vocabulary_size: int = 8192,
    cased: bool = False,
    strip_accents: bool = False,
    heldout: float = 0.02,
    workers: int = 1,
    shard_tokens: int = 50_000_000,
    progress: Progress | None = None,
) -> Corpus:
    """Write a corpus folder from documents: learn the vocabulary, then convert sentences to ids.

    documents      a list, or a function that returns a new iterator; read twice, or once with a given tokenizer
    out            the folder, which must be empty or not exist; it appears only when it is complete
    tokenizer      the tokenizer; None: one of `vocabulary_size` pieces is learned
    learn          the function that trains the tokenizer: WordPiece by default, or for instance `characters.train`
    heldout        share of documents, chosen by the hash of their text, in the split "heldout" (of a single document,
                   its last sentences); the vocabulary is not learned from them
    workers        number of processes that encode; 1 encodes in a background thread, with the tokenizer's threads
    shard_tokens   approximate number of tokens of a file
    progress       called with (name of the stage, number done, total number or None)

    Copies of documents are dropped. Memory is bounded, apart from about 100 bytes a document, to detect copies, and 8
    bytes a sentence of the open shard. Raises UnmaskError if there is no text or `out` cannot be written.
    """
    out = Path(out).absolute()
    if not 0 <= heldout < 1:
        raise UnmaskError(f"The share of held-out documents must be at least 0 and below 1, not {heldout}.")
    if tokenizer is None:
        refuse_single_pass(documents)
    report = progress or _silent
    options = {
        "tokenizer": "learned" if tokenizer is None else "given",
        "vocabulary_size": vocabulary_size if tokenizer is None else tokenizer.size,
        "cased": cased if tokenizer is None else tokenizer.cased,
        "strip_accents": strip_accents if tokenizer is None else None,
        "heldout": heldout,
        "shard_tokens": shard_tokens,
    }
    with workspace(out) as folder:
        total = None
        if tokenizer is None:
            texts = _Texts(deal(_fresh(documents), heldout, Tally()), report)
            tokenizer = learn(texts, vocabulary_size, cased=cased, strip_accents=strip_accents)
            total = texts.read
        names = tokenizer.save(folder)
        tally = Tally()
        encoded = ordered(Encode(folder), batches(deal(_fresh(documents), heldout, tally)), _pool_size(workers))
        facts = _write(encoded, folder, tokenizer, shard_tokens, lambda done: report("documents", done, total))
        facts["files"] |= {name: describe(folder / name) for name in names}
        seal(folder, TEXTS, VERSION, {**facts, **asdict(tally), "options": options})
    return Corpus(out)


class _Texts:
    """The texts from which the vocabulary is learned, for one pass; `read` counts all documents, held-out ones too."""

    def __init__(self, dealt: Iterator[tuple[TextDocument, str]], report: Progress) -> None:
        self.dealt, self.report, self.read = dealt, report, 0

    def __iter__(self) -> Iterator[str]:
        for document, split in self.dealt:
            self.read += 1
            if self.read % 1_000 == 0:
                self.report("vocabulary", self.read, None)
            if split == TRAIN:
                yield document.text
        self.report("vocabulary", self.read, self.read)


def _write(
    encoded: Iterable[Encoded], folder: Path, tokenizer: Tokenizer, limit: int, report: Callable[[int], None]
) -> dict[str, Any]:
    """Write the shards, and return their entries for the manifest."""
    writers = {name: Writer(folder, name, tokenizer.size, limit) for name in (TRAIN, HELDOUT)}
    counts = np.zeros(tokenizer.size, np.int64)  # counts of the training tokens
    sources: Counter[str] = Counter()
    done = 0
    try:
        for batch in encoded:
            for split, source, tokens, lengths in batch:
                writers[split].add(tokens, lengths)
                sources[source] += 1
                if split == TRAIN:
                    counts += np.bincount(tokens, minlength=tokenizer.size)
            done += len(batch.splits)
            report(done)
        for writer in writers.values():
            writer.close()
    finally:
        for writer in writers.values():
            writer.abandon()
    if not counts.any():
        raise UnmaskError("There is no text to build a corpus from: every document is empty.")
    return {
        "vocabulary": tokenizer.size,
        "fingerprint": tokenizer.fingerprint,
        "pad": tokenizer.pad,
        "splits": {name: writer.facts() for name, writer in writers.items()},
        "unknown_rate": counts[tokenizer.unknown] / counts.sum(),
        "unigram_entropy": entropy(counts),
        "sources": sources_by_size(sources),
        "files": {name: fact for writer in writers.values() for name, fact in writer.files.items()},
    }


def _reopen(folder: Path, name: str) -> Split:
    return Split(folder, name, read_manifest(folder, TEXTS, VERSION))


def _fresh(documents: Documents) -> Iterable[TextDocument]:
    return documents() if callable(documents) else documents


def _pool_size(workers: int) -> int:
    return workers if workers > 1 else 0


def _silent(stage: str, done: int, total: int | None) -> None:
    pass

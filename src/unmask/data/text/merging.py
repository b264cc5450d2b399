"""Merge of the parts of a corpus: copies of all parts are found, documents are divided into splits, shards are written.

The order of the documents is that of the parts, so the result does not depend on the number of parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.text.building import (
    HELDOUT,
    TRAIN,
    Encode,
    Tally,
    deal,
    digest_of,
    divided,
    entropy,
    normal,
    sources_by_size,
)
from unmask.data.text.parts import Taken, TextPart
from unmask.data.text.shards import Writer
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files import describe, writing

AT_ONCE = 1 << 19  # digests that are compared in memory, about 50 MB
MOST_RANGES = 512  # files that are open at once
COUNTED = 1 << 20  # tokens that are counted at once

_KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<u8")])


def merge(
    parts: Sequence[TextPart],
    folder: Path,
    *,
    heldout: float,
    shard_tokens: int,
    report: Callable[[int, int], None],
) -> dict[str, Any]:
    """Write the shards of a corpus and its tokenizer into a folder, and return the entries of its manifest.

    parts   in order, of one vocabulary; the options are those of `corpus.build`
    report  called with the number of documents so far, and of all

    Memory: one shard of a part, the bounds of the open shards, and a byte a document in a file that is mapped. Raises
    UnmaskError for a part that is damaged, and if all documents are empty.
    """
    tokenizer, names = parts[0].tokenizer(folder)
    tally = Tally(*(sum(part.manifest[name] for part in parts) for name in ("duplicates", "empty")))
    kept = first_ones(parts, folder)
    count = int(np.count_nonzero(kept))
    tally.duplicates += len(kept) - count
    if count == 1 and heldout > 0:
        dealt = _divided(parts, folder, heldout, tally)
    else:
        dealt = deal(_documents(parts, kept), heldout)
    facts = _write(dealt, folder, tokenizer, shard_tokens, lambda done: report(done, count))
    facts["files"] |= {name: describe(folder / name) for name in names}
    return facts | asdict(tally)


def first_ones(parts: Sequence[TextPart], folder: Path) -> np.ndarray:
    """[D] bool: whether a document of the parts is the first one with its digest.

    The digests are written to files in `folder` by range, and those of each range are sorted in memory.
    """
    total = sum(part.documents for part in parts)
    ranges = min(-(-total // AT_ONCE), MOST_RANGES)
    if not total:
        return np.zeros(0, bool)
    first, flags = 0, folder / "kept"
    places = [folder / f"digests-{i:03d}" for i in range(ranges)]
    with writing(folder):
        files = [open(place, "wb") for place in places]  # noqa: SIM115 (closed below)
        try:
            for digests in (found for part in parts for found in part.digests()):
                keys = np.empty(len(digests), _KEY)
                keys["high"], keys["low"] = digests["high"], digests["low"]
                keys["number"] = np.arange(first, first + len(keys))
                owners = ((keys["high"] >> 48) * ranges >> 16).astype(np.int64)
                for i in np.unique(owners).tolist():
                    files[i].write(keys[owners == i].tobytes())
                first += len(keys)
        finally:
            for file in files:
                file.close()
        kept = np.memmap(flags, bool, "w+", shape=(total,))
        for place in places:
            keys = np.fromfile(place, _KEY)
            place.unlink()
            keys = keys[np.lexsort((keys["number"], keys["low"], keys["high"]))]
            new = np.ones(len(keys), bool)
            new[1:] = (keys["high"][1:] != keys["high"][:-1]) | (keys["low"][1:] != keys["low"][:-1])
            kept[keys["number"]] = new
        flags.unlink()  # the map stays until it is released
    return kept


def _documents(parts: Sequence[TextPart], kept: np.ndarray) -> Iterator[tuple[bytes, Taken]]:
    first = 0
    for block in (block for part in parts for block in part.blocks()):
        end = first + len(block.sources)
        yield from block.take(np.flatnonzero(kept[first:end]))
        first = end


def _divided(parts: Sequence[TextPart], folder: Path, heldout: float, tally: Tally) -> Iterator[tuple[Taken, str]]:
    only = next(document for part in parts if (document := part.only()) is not None)
    encode = Encode(folder)
    for document, split in divided(only, heldout, tally):
        for _, source, tokens, lengths in encode([(digest_of(normal(document.text)), document)]):
            yield (source, tokens, lengths), split


def _write(
    dealt: Iterable[tuple[Taken, str]], folder: Path, tokenizer: Tokenizer, limit: int, report: Callable[[int], None]
) -> dict[str, Any]:
    """Write the shards, and return their entries for the manifest."""
    writers = {name: Writer(folder, name, tokenizer.size, limit) for name in (TRAIN, HELDOUT)}
    counts = _Counts(tokenizer.size)  # of the training tokens
    sources: Counter[str] = Counter()
    done = 0
    try:
        for done, ((source, tokens, lengths), split) in enumerate(dealt, 1):
            if len(tokens):
                writers[split].add(tokens, lengths)
                sources[source] += 1
                if split == TRAIN:
                    counts.add(tokens)
            if done % 1_000 == 0:
                report(done)
        report(done)
        for writer in writers.values():
            writer.close()
    finally:
        for writer in writers.values():
            writer.abandon()
    found = counts.total()
    if not found.any():
        raise UnmaskError("There is no text to build a corpus from: every document is empty.")
    return {
        "vocabulary": tokenizer.size,
        "fingerprint": tokenizer.fingerprint,
        "pad": tokenizer.pad,
        "splits": {name: writer.facts() for name, writer in writers.items()},
        "unknown_rate": found[tokenizer.unknown] / found.sum(),
        "unigram_entropy": entropy(found),
        "sources": sources_by_size(sources),
        "files": {name: fact for writer in writers.values() for name, fact in writer.files.items()},
    }


class _Counts:
    """Counts of ids [V]; many short documents are counted at once."""

    def __init__(self, vocabulary: int) -> None:
        self.counts = np.zeros(vocabulary, np.int64)
        self._waiting: list[np.ndarray] = []
        self._size = 0

    def add(self, tokens: np.ndarray) -> None:
        self._waiting.append(tokens)
        self._size += len(tokens)
        if self._size >= COUNTED:
            self.total()

    def total(self) -> np.ndarray:
        if self._waiting:
            self.counts += np.bincount(np.concatenate(self._waiting), minlength=len(self.counts))
            self._waiting, self._size = [], 0
        return self.counts

"""Steps of building a corpus: a folder that appears whole or not at all, documents dealt to splits, text to ids."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import platform
import re
import shutil
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np

from unmask.data.text.reading import TextDocument
from unmask.data.text.sentences import sentences
from unmask.data.text.shards import token_type
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files import MANIFEST, check_replaceable, writing

TRAIN, HELDOUT = "train", "heldout"
BATCH_CHARACTERS = 1 << 18  # of text that one call of the encoder takes


@contextlib.contextmanager
def workspace(out: Path) -> Iterator[Path]:
    """A temporary folder beside `out` that takes its place when the block ends well and vanishes when it does not.

    Left-overs of builds that were killed on this host are removed first. Raises UnmaskError where `out` holds
    anything, or where nothing can be written.
    """
    refuse_taken(out)
    remove_stale(out)
    partial = partial_of(out)
    try:
        with writing(out):
            partial.mkdir(parents=True)
        yield partial
        refuse_taken(out)
        with writing(out):
            if out.exists():
                out.rmdir()
            os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_taken(out: Path) -> None:
    """Raises UnmaskError where `out` is a file, a folder that is not empty, or one that no other can replace."""
    with writing(out):
        if not out.exists() or (out.is_dir() and not any(out.iterdir())):
            check_replaceable(out)
            return
    if (out / MANIFEST).is_file():
        raise UnmaskError(f"{out} already holds a corpus; choose another folder, or delete it to build it again.")
    raise UnmaskError(f"{out} already exists and is not empty; choose another folder for the corpus.")


def remove_stale(out: Path) -> None:
    """Remove temporary folders of builds of `out` whose process, on this host, lives no more."""
    prefix = _partial(out)
    for path in out.parent.glob(f"{glob.escape(prefix)}*"):
        process = path.name.removeprefix(prefix)
        # A folder with the number of this very process is older than it: numbers are used again, in containers soon.
        if process.isdecimal() and (int(process) == os.getpid() or not _alive(int(process))):
            shutil.rmtree(path, ignore_errors=True)


def partial_of(out: Path) -> Path:
    """Where this process builds what will be at `out`: a hidden sibling."""
    return out.parent / f"{_partial(out)}{os.getpid()}"


def _partial(out: Path) -> str:
    return f".{out.name}.partial-{platform.node()}-"


def _alive(process: int) -> bool:
    if os.name != "posix":
        return True  # elsewhere signal 0 is no harmless question
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@dataclass
class Tally:
    """What happened to the documents that were read; divided: sentences that the only one gave to be held out."""

    duplicates: int = 0
    empty: int = 0
    divided: int = 0


def deal(documents: Iterable[TextDocument], heldout: float, tally: Tally) -> Iterator[tuple[TextDocument, str]]:
    """Every document that is not empty once, with the split that it goes to.

    A document is held out where the hash of its text falls below the share `heldout`: the same text goes to the
    same split in every corpus. Where chance holds out fewer than two of at least eight documents (one of at least
    two), those with the smallest hashes are; where it holds out all, the last one is trained on. Of a single document
    the last sentences are held out, that share of them and one at least. Copies that differ in case or whitespace
    alone count as duplicates. Memory: about 100 bytes a document, for its hash in a set.
    """
    seen: set[bytes] = set()
    waiting: list[tuple[bytes, TextDocument]] = []  # the two smallest hashes of the training part so far
    kept: list[TextDocument] = []  # the held-out document that was read last, until there is one to train on
    found = 0
    for document in documents:
        digest = _digest(document.text)
        if digest is None:
            tally.empty += 1
        elif digest in seen:
            tally.duplicates += 1
        elif int.from_bytes(digest[:8], "big") < heldout * 2**64:
            seen.add(digest)
            found += 1
            kept.append(document)
            if waiting or len(kept) > 1:
                yield kept.pop(0), HELDOUT
        else:
            seen.add(digest)
            while kept:
                yield kept.pop(), HELDOUT
            insort(waiting, (digest, document), key=itemgetter(0))
            if len(waiting) > 2:
                yield waiting.pop()[1], TRAIN
    if len(seen) == 1 and heldout > 0:
        yield from _divided(waiting[0][1] if waiting else kept[0], heldout, tally)
        return
    wanted = 0 if heldout <= 0 else 2 if len(seen) >= 8 else 1 if len(seen) >= 2 else 0
    for i, (_, document) in enumerate(waiting):
        yield document, HELDOUT if i < wanted - found else TRAIN
    for document in kept:
        yield document, TRAIN


def _divided(document: TextDocument, heldout: float, tally: Tally) -> Iterator[tuple[TextDocument, str]]:
    """The only document in two, or whole where it is one sentence."""
    found = sentences(document.text)
    tally.divided = min(max(1, round(len(found) * heldout)), len(found) - 1)
    end = len(found) - tally.divided
    for part, split in ((found[:end], TRAIN), (found[end:], HELDOUT)):
        if part:  # blank lines: its sentences stay what they are
            yield TextDocument("\n\n".join(part), document.source), split


def _digest(text: str) -> bytes | None:
    """Hash of a text but for case and whitespace; None where nothing is left."""
    words = text.casefold().split()
    if not words:
        return None
    return hashlib.blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def batches(dealt: Iterable[tuple[TextDocument, str]]) -> Iterator[list[tuple[str, str, str]]]:
    """(text, split, source) of documents, in lists of about BATCH_CHARACTERS."""
    batch, size = [], 0
    for document, split in dealt:
        batch.append((document.text, split, _file_of(document.source)))
        size += len(document.text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclass
class Encoded:
    """Ids of some documents.

    tokens     [T] ids of all sentences of all documents
    lengths    [S] tokens of each sentence, none of it 0
    counts     [D] sentences of each document
    splits     [D] split of each document
    sources    [D] where each document came from
    """

    tokens: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    splits: list[str]
    sources: list[str]

    def __iter__(self) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
        """(split, source, tokens [T of it], lengths [S of it]) of each document that has any tokens."""
        sentence = token = 0
        for split, source, count in zip(self.splits, self.sources, self.counts.tolist(), strict=True):
            lengths = self.lengths[sentence : sentence + count]
            end = token + int(lengths.sum())
            if end > token:
                yield split, source, self.tokens[token:end], lengths
            sentence, token = sentence + count, end


class Encode:
    """Documents -> sentences -> ids. To another process it carries the folder of the tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = Tokenizer.load(folder)

    def __reduce__(self) -> tuple[type[Encode], tuple[Path]]:
        return Encode, (self.folder,)

    def __call__(self, batch: list[tuple[str, str, str]]) -> Encoded:
        texts, splits, sources = map(list, zip(*batch, strict=True))
        split = [sentences(text) for text in texts]
        space = self.tokenizer.separator
        ids = self.tokenizer.ids([space * (i > 0) + s for document in split for i, s in enumerate(document)])
        lengths = np.array([len(x) for x in ids], np.int64)
        owner = np.repeat(np.arange(len(texts)), [len(document) for document in split])
        tokens = np.concatenate(ids) if ids else np.empty(0, np.int32)
        counts = np.bincount(owner[lengths > 0], minlength=len(texts))
        return Encoded(tokens.astype(token_type(self.tokenizer.size)), lengths[lengths > 0], counts, splits, sources)


def _file_of(source: str) -> str:
    """`notes.txt` of `notes.txt:17`."""
    return re.sub(r":\d+$", "", source)


def sources_by_size(sources: Counter[str], limit: int = 100) -> dict[str, int]:
    """Documents of each source, largest first; beyond `limit` sources the rest is one entry, ''."""
    largest = dict(sources.most_common(limit))
    rest = sources.total() - sum(largest.values())
    return largest | ({"": rest} if rest else {})


def entropy(counts: np.ndarray) -> float:
    """Entropy in nats of the distribution that `counts` [V] describes."""
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum())


def refuse_single_pass(documents: object) -> None:
    """Raises UnmaskError where `documents` can be read only once."""
    if isinstance(documents, Iterator):
        raise UnmaskError(
            "A corpus reads its documents twice, for the vocabulary and for the tokens: "
            "pass a list or a function that returns a fresh iterator, or pass a tokenizer."
        )

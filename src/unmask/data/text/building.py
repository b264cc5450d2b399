"""Steps of building a corpus: create the folder atomically, assign documents to splits, convert text to ids."""

from __future__ import annotations

import hashlib
import re
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

TRAIN, HELDOUT = "train", "heldout"
BATCH_CHARACTERS = 1 << 18  # approximate number of characters for one call of the encoder


@dataclass
class Tally:
    """Counts of documents.

    duplicates  copies, which are dropped
    empty       documents without words, which are dropped
    divided     sentences of a single document that are held out
    """

    duplicates: int = 0
    empty: int = 0
    divided: int = 0


def deal(documents: Iterable[TextDocument], heldout: float, tally: Tally) -> Iterator[tuple[TextDocument, str]]:
    """Yield every non-empty document once, with the name of its split.

    A document is held out if the hash of its text is below the share `heldout`, so that a text is in the same split in
    every corpus. If that holds out fewer than two of at least eight documents (one of at least two), the documents with
    the smallest hashes are held out; if it holds out all, the last one is used for training. Of a single document, this
    share of its sentences, at least one, is held out from its end. Copies that differ only in case or whitespace are
    duplicates. Memory: about 100 bytes a document, for its hash in a set.
    """
    seen: set[bytes] = set()
    waiting: list[tuple[bytes, TextDocument]] = []  # the two training documents with the smallest hashes so far
    kept: list[TextDocument] = []  # the last held-out document, until there is a training document
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
    """The only document, divided in two, or whole if it has one sentence."""
    found = sentences(document.text)
    tally.divided = min(max(1, round(len(found) * heldout)), len(found) - 1)
    end = len(found) - tally.divided
    for part, split in ((found[:end], TRAIN), (found[end:], HELDOUT)):
        if part:  # blank lines, so that the sentences are found again
            yield TextDocument("\n\n".join(part), document.source), split


def _digest(text: str) -> bytes | None:
    """Hash of a text, ignoring case and whitespace; None if it has no words."""
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
    lengths    [S] number of tokens of each sentence, at least 1
    counts     [D] number of sentences of each document
    splits     [D] split of each document
    sources    [D] source of each document
    """

    tokens: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    splits: list[str]
    sources: list[str]

    def __iter__(self) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
        """(split, source, tokens [T], lengths [S]) of each document with tokens."""
        sentence = token = 0
        for split, source, count in zip(self.splits, self.sources, self.counts.tolist(), strict=True):
            lengths = self.lengths[sentence : sentence + count]
            end = token + int(lengths.sum())
            if end > token:
                yield split, source, self.tokens[token:end], lengths
            sentence, token = sentence + count, end


class Encode:
    """Converts documents to ids, sentence by sentence. When pickled, it has only the folder of the tokenizer."""

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
    """The file of a source: `notes.txt:17` -> `notes.txt`."""
    return re.sub(r":\d+$", "", source)


def sources_by_size(sources: Counter[str], limit: int = 100) -> dict[str, int]:
    """Number of documents of each source, largest first; '' has the number of all sources after the first `limit`."""
    largest = dict(sources.most_common(limit))
    rest = sources.total() - sum(largest.values())
    return largest | ({"": rest} if rest else {})


def entropy(counts: np.ndarray) -> float:
    """Entropy in nats of the distribution that `counts` [V] describes."""
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum())


def refuse_single_pass(documents: object) -> None:
    """Raises UnmaskError if `documents` can be read only once."""
    if isinstance(documents, Iterator):
        raise UnmaskError(
            "A corpus reads its documents twice, for the vocabulary and for the tokens: "
            "pass a list or a function that returns a new iterator, or pass a tokenizer."
        )

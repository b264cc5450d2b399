"""Steps of building a corpus: digests of documents, their splits, their ids."""

from __future__ import annotations

import hashlib
import re
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import numpy as np

from unmask.data.text.reading import TextDocument
from unmask.data.text.sentences import sentences
from unmask.data.text.shards import token_type
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError

Item = TypeVar("Item")

TRAIN, HELDOUT = "train", "heldout"
Progress = Callable[[str, int, int | None], None]
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


def deal(documents: Iterable[tuple[bytes, Item]], heldout: float) -> Iterator[tuple[Item, str]]:
    """Yield every document with the name of its split. The documents are distinct, with their digests.

    A document is held out if its digest is below the share `heldout`, so that a text is in the same split in every
    corpus. If that holds out fewer than two of at least eight documents (one of at least two), the documents with the
    smallest digests are held out; if it holds out all, the last one is used for training.
    """
    waiting: list[tuple[bytes, Item]] = []  # the two training documents with the smallest digests so far
    kept: list[Item] = []  # the last held-out document, until there is a training document
    count = found = 0
    for count, (digest, document) in enumerate(documents, 1):  # noqa: B007 (`count` is read below)
        if int.from_bytes(digest[:8], "big") < heldout * 2**64:
            found += 1
            kept.append(document)
            if waiting or len(kept) > 1:
                yield kept.pop(0), HELDOUT
        else:
            while kept:
                yield kept.pop(), HELDOUT
            insort(waiting, (digest, document), key=itemgetter(0))
            if len(waiting) > 2:
                yield waiting.pop()[1], TRAIN
    wanted = 0 if heldout <= 0 else 2 if count >= 8 else 1 if count >= 2 else 0
    for i, (_, document) in enumerate(waiting):
        yield document, HELDOUT if i < wanted - found else TRAIN
    for document in kept:
        yield document, TRAIN


def divided(document: TextDocument, heldout: float, tally: Tally) -> Iterator[tuple[TextDocument, str]]:
    """The only document of a corpus, divided in two, or whole if it has one sentence: the share `heldout` of its
    sentences, at least one, is held out from its end."""
    found = sentences(document.text)
    tally.divided = min(max(1, round(len(found) * heldout)), len(found) - 1)
    end = len(found) - tally.divided
    for part, split in ((found[:end], TRAIN), (found[end:], HELDOUT)):
        if part:  # blank lines, so that the sentences are found again
            yield TextDocument("\n\n".join(part), document.source), split


def normal(text: str) -> bytes:
    """The text without its case and its whitespace: the same for copies of a document, and empty without words."""
    return " ".join(text.casefold().split()).encode("utf-8", "surrogatepass")


def digest_of(content: bytes) -> bytes:
    """The hash of 16 bytes by which copies of a document are found, of its `normal` text."""
    return hashlib.blake2b(content, digest_size=16).digest()


def batches(documents: Iterable[tuple[bytes, TextDocument]]) -> Iterator[list[tuple[bytes, TextDocument]]]:
    """Documents and their digests, in lists of about BATCH_CHARACTERS."""
    batch, size = [], 0
    for digest, document in documents:
        batch.append((digest, document))
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
    digests    [D] digest of each document
    sources    [D] source of each document, without numbers of lines
    """

    tokens: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    digests: list[bytes]
    sources: list[str]

    def __iter__(self) -> Iterator[tuple[bytes, str, np.ndarray, np.ndarray]]:
        """(digest, source, tokens [T], lengths [S]) of each document; documents without tokens too."""
        sentence = token = 0
        for digest, source, count in zip(self.digests, self.sources, self.counts.tolist(), strict=True):
            lengths = self.lengths[sentence : sentence + count]
            end = token + int(lengths.sum())
            yield digest, source, self.tokens[token:end], lengths
            sentence, token = sentence + count, end


class Encode:
    """Converts documents to ids, sentence by sentence. When pickled, it has only the folder of the tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = Tokenizer.load(folder)

    def __reduce__(self) -> tuple[type[Encode], tuple[Path]]:
        return Encode, (self.folder,)

    def __call__(self, batch: list[tuple[bytes, TextDocument]]) -> Encoded:
        split = [sentences(document.text) for _, document in batch]
        space = self.tokenizer.separator
        ids = self.tokenizer.ids([space * (i > 0) + s for document in split for i, s in enumerate(document)])
        lengths = np.array([len(x) for x in ids], np.int64)
        owner = np.repeat(np.arange(len(batch)), [len(document) for document in split])
        tokens = np.concatenate(ids) if ids else np.empty(0, np.int32)
        return Encoded(
            tokens.astype(token_type(self.tokenizer.size)),
            lengths[lengths > 0],
            np.bincount(owner[lengths > 0], minlength=len(batch)),
            [digest for digest, _ in batch],
            [_file_of(document.source) for _, document in batch],
        )


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


def refuse_share(heldout: float) -> None:
    """Raises UnmaskError if no corpus can hold out this share of its documents."""
    if not 0 <= heldout < 1:
        raise UnmaskError(f"The share of held-out documents must be at least 0 and below 1, not {heldout}.")


def refuse_size(shard_tokens: int) -> None:
    """Raises UnmaskError if no shard can have this number of tokens."""
    if shard_tokens < 1:
        raise UnmaskError(f"--shard-tokens must be at least 1, not {shard_tokens}.")

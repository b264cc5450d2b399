"""Packed rows of text: shards -> pieces of documents -> rows of one length, for pre-training and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.data.collate import pack
from unmask.data.files.corpora import Folder
from unmask.data.loader import Collated, EqualRows, Loader
from unmask.data.order import SeededBlocks, mixture
from unmask.data.text.corpus import Pieces, Split
from unmask.errors import UnmaskError
from unmask.types import Batch, Document, Example, concatenate

Sample = Callable[[Sequence[Document], int, np.random.Generator], list[Example]]
Corrupt = Callable[[Batch, np.random.Generator], Batch]

UNIT_TOKENS = 4_096  # largest number of tokens of a piece of a document
BLOCK_TOKENS = 65_536  # approximate number of tokens of a block


@dataclass(frozen=True)
class PackedRows:
    """The rows of a block of documents: sampled, packed, shuffled, corrupted.

    sample      documents, length, generator -> examples of at most `length` tokens
    corrupt     packed rows, generator -> the same rows with targets
    length      tokens of a row
    pad         id of the padding token
    vocabulary  number of ids
    folder      folder of the corpus, for error messages
    """

    sample: Sample
    corrupt: Corrupt
    length: int
    pad: int
    vocabulary: int
    folder: Path | Folder

    def __call__(self, documents: list[Document], rng: np.random.Generator) -> Batch:
        """Raises UnmaskError for ids beyond the vocabulary."""
        examples = self.sample(documents, self.length, rng)
        batch = pack(examples, self.length, self.pad)
        if not examples:
            return batch
        largest = int(batch.tokens.numpy().max())
        if largest >= self.vocabulary:
            raise UnmaskError(
                f"A block of {self.folder} has the id {largest}, but its vocabulary has "
                f"{self.vocabulary} ids: the corpus is damaged, or the sampler belongs to another tokenizer."
            )
        return self.corrupt(batch.take(rng.permutation(len(batch.tokens))), rng)


def stream(
    splits: Sequence[Split],
    *,
    sample: Sample,
    corrupt: Corrupt,
    length: int,
    cut: EqualRows,
    seed: int = 0,
    workers: int = 0,
    alpha: float = 0.5,
    window: int | None = None,
) -> Loader:
    """The endless rows of a pre-training run, from the splits of one or more corpora.

    sample, corrupt, length  as in `PackedRows`; with worker processes they must be picklable
    cut                      rows of a step, and those of this rank
    alpha                    exponent of the corpus sizes, which increases the share of small corpora, see `mixture`
    window                   number of shards that are mixed at a time, see `SeededBlocks`; None: all

    Raises UnmaskError if the corpora have different tokenizers or no text, or an argument is out of range.
    """
    rows = packed(splits, sample=sample, corrupt=corrupt, length=length, seed=seed, alpha=alpha, window=window)
    return Loader(rows, cut=cut, workers=workers)


def packed(
    splits: Sequence[Split],
    *,
    sample: Sample,
    corrupt: Corrupt,
    length: int,
    seed: int = 0,
    alpha: float = 1.0,
    window: int | None = None,
    unit: int = UNIT_TOKENS,
    block: int = BLOCK_TOKENS,
) -> Collated:
    """The blocks of `stream`.

    unit   largest number of tokens of a piece of a document
    block  approximate number of tokens of a block
    """
    order = drawn(splits, limit=max(unit, length), seed=seed, alpha=alpha, block=block, window=window)
    first = splits[0]
    return Collated(order, PackedRows(sample, corrupt, length, first.pad, first.vocabulary, first.folder))


def drawn(
    splits: Sequence[Split], *, limit: int, seed: int, alpha: float, block: int, window: int | None = None
) -> SeededBlocks:
    """The order of the pieces, of at most `limit` tokens, of mixed splits; document numbers continue across splits.

    Raises UnmaskError if the corpora have different tokenizers or no text.
    """
    if not splits or not any(split.tokens for split in splits):
        raise UnmaskError("There is no text to train on: the corpus, or its split, is empty.")
    for split in splits:
        if split.fingerprint != splits[0].fingerprint:
            raise UnmaskError(
                f"{splits[0].folder} and {split.folder} were built with different tokenizers and cannot be mixed; "
                "build one with the tokenizer of the other."
            )
    pieces, documents = list[Pieces](), 0
    for split in splits:
        pieces.append(split.pieces(limit, documents))
        documents += split.documents
    shares = mixture([split.tokens for split in splits], alpha)
    return SeededBlocks(pieces, shares, seed=seed, block=block, window=window)


def fixed(
    splits: Sequence[Split],
    *,
    sample: Sample,
    corrupt: Corrupt,
    length: int,
    rows: int,
    limit_rows: int | None = None,
    seed: int = 0,
) -> list[Batch]:
    """Batches of `rows` rows for evaluation: at most `limit_rows` rows of one epoch, always the same.

    The last batch may have fewer rows; splits without tokens give an empty list.
    """
    if not any(split.tokens for split in splits):
        return []
    build = packed(splits, sample=sample, corrupt=corrupt, length=length, seed=seed)
    parts: list[Batch] = []
    total = 0
    for block in range(build.order.blocks):
        if limit_rows is not None and total >= limit_rows:
            break
        parts += build((0, block))
        total += len(parts[-1].tokens)
    whole, end = concatenate(parts), total if limit_rows is None else min(total, limit_rows)
    return [whole.rows(begin, min(begin + rows, end)) for begin in range(0, end, rows)]

"""Rows that continue from batch to batch, from shards, for models with a memory.

Shapes: B rows, T tokens of a row, U documents of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from unmask.data.loader import EqualRows, Loader, Place
from unmask.data.order import Order
from unmask.data.text.corpus import Split
from unmask.data.text.stream import drawn
from unmask.errors import UnmaskError
from unmask.types import Batch, Target

HELDOUT_STEPS = 8  # smallest number of segments of a held-out row, so that the memory has an effect


class Line(NamedTuple):
    """The concatenated documents of an epoch; each is a start token and its tokens.

    units   [U] numbers of the documents in the source
    begins  [U + 1] int64: where each document begins, and the end of the last one
    """

    units: np.ndarray
    begins: np.ndarray

    @property
    def tokens(self) -> int:
        return int(self.begins[-1])


class Continued:
    """Blocks in which row i continues row i of the previous block: a block is a step.

    The documents of an epoch are concatenated in an order that depends only on (seed, epoch). The result is cut into
    equally long stretches, one for each row of a step over all ranks, and each row reads its stretch segment by
    segment. (The rest after the last whole segment of a stretch is not read; it is another text in each epoch.) So the
    steps are the same for any number of ranks.

    A document begins with `start`, and its last target is `end`. `Batch.positions` count from the beginning of the
    document, or of the stretch if the document begins before it: the number of earlier tokens of the document in the
    row.
    """

    def __init__(self, order: Order, *, start: int, end: int, length: int, rows: EqualRows) -> None:
        """Take the documents of an order; its blocks are ignored.

        start, end  ids before the first token of a document and after its last one
        length      T, tokens of a segment
        rows        rows of a step, and those of this rank

        Raises UnmaskError if there are too few tokens for this number of rows.
        """
        if length < 1:
            raise UnmaskError(f"Rows need at least 1 token, not {length}.")
        self.order, self.start, self.end, self.length, self.rows = order, start, end, length, rows
        self.line = lru_cache(maxsize=2)(self._line)
        self.framed = lru_cache(maxsize=2 * rows.rows)(self._framed)
        if not self.count(0):
            raise UnmaskError(
                f"An epoch of {self.line(0).tokens:,} tokens is too short for {rows.rows * rows.ranks} rows of "
                f"{length} tokens each: use fewer or shorter rows, or more text."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return _continued, (self.order, self.start, self.end, self.length, self.rows)  # without the caches

    def count(self, epoch: int) -> int:
        """Number of segments of a stretch, which is the same for all rows of an epoch."""
        return self.line(epoch).tokens // (self.rows.rows * self.rows.ranks * self.length)

    def __call__(self, place: Place) -> list[Batch]:
        """The rows of this rank in a step of an epoch: [B, T] tokens, positions, streams and the targets "next"."""
        epoch, step = place
        line, stretch, rows = self.line(epoch), self.count(epoch) * self.length, self.rows.rows
        tokens, values, positions = (np.empty((rows, self.length), np.int64) for _ in range(3))
        for row in range(rows):
            first = (self.rows.rank * rows + row) * stretch
            here = first + step * self.length
            filled = 0
            while filled < self.length:
                number = int(np.searchsorted(line.begins, here + filled, side="right")) - 1
                framed = self.framed(int(line.units[number]))
                place_in = here + filled - int(line.begins[number])
                count = min(self.length - filled, len(framed) - 1 - place_in)
                to = slice(filled, filled + count)
                tokens[row, to] = framed[place_in : place_in + count]
                values[row, to] = framed[place_in + 1 : place_in + count + 1]
                positions[row, to] = np.arange(place_in, place_in + count) - max(0, first - int(line.begins[number]))
                filled += count
        batch = Batch(
            torch.from_numpy(tokens),
            positions=torch.from_numpy(positions),
            targets={"next": Target(torch.arange(tokens.size), torch.from_numpy(values.reshape(-1)))},
            streams=torch.arange(rows),
        )
        return self.rows.micro_batches(batch)

    def _line(self, epoch: int) -> Line:
        units, _ = self.order.epoch(epoch)
        return Line(units, np.concatenate([[0], np.cumsum(self.order.source.cost[units] + 1)]))

    def _framed(self, unit: int) -> np.ndarray:
        sentences = self.order.source.read(unit).sentences
        return np.concatenate([[self.start], *sentences, [self.end]]).astype(np.int64)


def _continued(order: Order, start: int, end: int, length: int, rows: EqualRows) -> Continued:
    return Continued(order, start=start, end=end, length=length, rows=rows)


def segments(
    splits: Sequence[Split],
    *,
    start: int,
    end: int,
    length: int,
    cut: EqualRows,
    seed: int = 0,
    workers: int = 0,
    alpha: float = 0.5,
    window: int | None = None,
) -> Loader:
    """Endless rows that continue from batch to batch, from the splits of one or more corpora, mixed as by
    `stream.stream`.

    Raises UnmaskError if the corpora have different tokenizers, or are too short for this number of rows.
    """
    whole = int(np.iinfo(np.int64).max)  # documents are not cut, because rows must read them in order
    order = drawn(splits, limit=whole, seed=seed, alpha=alpha, block=whole, window=window)
    return Loader(Continued(order, start=start, end=end, length=length, rows=cut), workers=workers)


def fixed(
    splits: Sequence[Split], *, start: int, end: int, length: int, rows: int, limit_rows: int, seed: int = 0
) -> list[Batch]:
    """Consecutive batches for evaluation: about `limit_rows` rows in all, always the same. Splits with fewer tokens
    than a row give an empty list.

    rows  largest number of rows of a batch; fewer if the rows would otherwise be too short for the memory to have an
          effect
    """
    tokens = sum(split.tokens + split.documents for split in splits)
    if tokens < length:
        return []
    own = max(1, min(rows, min(limit_rows, tokens // length) // HELDOUT_STEPS))
    build = segments(splits, start=start, end=end, length=length, cut=EqualRows(own), seed=seed, alpha=1.0).blocks
    steps = min(build.count(0), max(1, limit_rows // own))
    return [batch for step in range(steps) for batch in build((0, step))]

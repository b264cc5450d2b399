"""Rows that go on, from batch to batch, where they ended: shards -> segments, for models with a memory.

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

HELDOUT_STEPS = 8  # segments of a held-out row, at least, so that its memory is of use


class Line(NamedTuple):
    """The documents of an epoch, one behind the other, as what is read: a token that begins, and its own tokens.

    units   [U] their numbers in the source
    begins  [U + 1] int64 where each begins in the line; the last one is where all end
    """

    units: np.ndarray
    begins: np.ndarray

    @property
    def tokens(self) -> int:
        return int(self.begins[-1])


class Continued:
    """Blocks in which row i goes on where row i of the block before ended: a block is a step.

    The documents of an epoch, in an order that depends on (seed, epoch) alone, lie in one line. It is cut into as many
    equally long stretches as there are rows in a step, those of all ranks, and each row reads its stretch segment by
    segment (what is left behind the last whole segment of a stretch is another text in each epoch). So any number of
    ranks sees the same steps.

    A document is read from `start`, and its last target is `end`. `Batch.positions` count from its beginning, or from
    that of the stretch where it lies across: how many of the tokens before it in its row are of its own text.
    """

    def __init__(self, order: Order, *, start: int, end: int, length: int, rows: EqualRows) -> None:
        """Take the documents of an order, whatever its blocks.

        start, end  ids before the first token of a document and after its last one
        length      T, tokens of a segment
        rows        of a step, and of this rank

        Raises UnmaskError where the documents are too short for so many rows.
        """
        if length < 1:
            raise UnmaskError(f"There cannot be rows of {length} tokens.")
        self.order, self.start, self.end, self.length, self.rows = order, start, end, length, rows
        self.line = lru_cache(maxsize=2)(self._line)
        self.framed = lru_cache(maxsize=2 * rows.rows)(self._framed)
        if not self.count(0):
            raise UnmaskError(
                f"An epoch of {self.line(0).tokens:,} tokens is too short for {rows.rows * rows.ranks} rows that each "
                f"go on by {length} of them: take fewer or shorter rows, or more text."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return _continued, (self.order, self.start, self.end, self.length, self.rows)  # caches stay behind

    def count(self, epoch: int) -> int:
        """Segments of a stretch, which all rows of an epoch have in common."""
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
) -> Loader:
    """Rows that go on, without end, from the splits of one or more corpora that are mixed as by `stream.stream`.

    Raises UnmaskError where the corpora do not fit together, or are too short for so many rows.
    """
    whole = int(np.iinfo(np.int64).max)  # documents are not cut: their pieces are to be read one after the other
    order = drawn(splits, limit=whole, seed=seed, alpha=alpha, block=whole)
    return Loader(Continued(order, start=start, end=end, length=length, rows=cut), workers=workers)


def fixed(
    splits: Sequence[Split], *, start: int, end: int, length: int, rows: int, limit_rows: int, seed: int = 0
) -> list[Batch]:
    """Batches to evaluate on, one after the other: about `limit_rows` rows in all, always the same.

    rows  at a time, at most; fewer where the text would be over too soon to make use of a memory. Text shorter than a
          row gives an empty list
    """
    tokens = sum(split.tokens + split.documents for split in splits)
    if tokens < length:
        return []
    own = max(1, min(rows, min(limit_rows, tokens // length) // HELDOUT_STEPS))
    build = segments(splits, start=start, end=end, length=length, cut=EqualRows(own), seed=seed, alpha=1.0).blocks
    steps = min(build.count(0), max(1, limit_rows // own))
    return [batch for step in range(steps) for batch in build((0, step))]

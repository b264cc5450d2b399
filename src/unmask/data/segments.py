"""Segments: shards -> rows that go on, from batch to batch, where they ended; for models with a memory.

Shapes: B rows, T tokens of a row, U documents of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from unmask.data.corpus import Split
from unmask.data.stream import Order, Step
from unmask.errors import UnmaskError
from unmask.types import Batch, Target

HELDOUT_STEPS = 8  # segments of a held-out row, at least, so that its memory is of use


class Line(NamedTuple):
    """The documents of an epoch, one behind the other, as what is read: a token that begins, and its own tokens.

    owners, units  [U] corpus and entry in its `units` of each document
    begins         [U + 1] int64 where each begins in the line; the last one is where all end
    """

    owners: np.ndarray
    units: np.ndarray
    begins: np.ndarray

    @property
    def tokens(self) -> int:
        return int(self.begins[-1])


class Segments:
    """Rows of a run in which row i of a batch goes on where row i of the batch before ended, without end.

    The documents of an epoch, in an order that depends on (seed, epoch) alone, lie in one line. It is cut into as many
    equally long stretches as there are rows in a step, those of all ranks, and each row reads its stretch segment by
    segment (what is left behind the last whole segment of a stretch is another text in each epoch). So where a step
    stands in its epoch says all: resume takes constant time, and any number of ranks sees the same steps.

    A document is read from `start`, and its last target is `end`. `Batch.positions` count from its beginning, or from
    that of the stretch where it lies across: how many of the tokens before it in its row are of its own text.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        *,
        start: int,
        end: int,
        length: int,
        rows: int,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
        alpha: float = 0.5,
    ) -> None:
        """Mix the splits of one or more corpora, as `stream.Stream` does.

        start, end  ids before the first token of a document and after its last one
        length      T, tokens of a segment
        rows        of one rank in a step

        Raises UnmaskError where the corpora do not fit together, or are too short for so many rows.
        """
        if rows < 1 or length < 1 or not 0 <= rank < ranks:
            raise UnmaskError(f"There cannot be {rows} rows of {length} tokens, or rank {rank} of {ranks}.")
        self.start, self.end, self.length, self.rows, self.rank, self.ranks = start, end, length, rows, rank, ranks
        whole = np.iinfo(np.int64).max  # documents are not cut: their pieces are to be read one after the other
        self.order = Order(splits, seed=seed, alpha=alpha, limit=int(whole), block=int(whole))
        self.line = lru_cache(maxsize=2)(self._line)
        self.framed = lru_cache(maxsize=2 * rows)(self._framed)
        if not self.steps(0):
            raise UnmaskError(
                f"An epoch of {self.line(0).tokens:,} tokens is too short for {rows * ranks} rows that each go on by "
                f"{length} of them: take fewer or shorter rows, or more text."
            )

    def batches(self, position: Mapping[str, int] | None = None) -> Iterator[Step]:
        """Steps from a position (None: the beginning) on: {"epoch", "block", "row"}, of which `block` is the number of
        the step in its epoch. Raises UnmaskError for a position that this corpus cannot have given."""
        epoch, step, row = (0, 0, 0) if position is None else (position.get(k) for k in ("epoch", "block", "row"))
        if not (type(epoch) is type(step) is int and epoch >= 0 and 0 <= step < self.steps(epoch) and row == 0):
            raise UnmaskError(
                f"The position {dict(position or {})} does not belong to this corpus and these settings; "
                "resume with the ones that the run began with."
            )
        while True:
            batch = self.batch(epoch, step)
            epoch, step = (epoch, step + 1) if step + 1 < self.steps(epoch) else (epoch + 1, 0)
            yield Step(batch, {"epoch": epoch, "block": step, "row": 0})

    def steps(self, epoch: int) -> int:
        """Segments of a stretch, which all rows of an epoch have in common."""
        return self.line(epoch).tokens // (self.rows * self.ranks * self.length)

    def batch(self, epoch: int, step: int) -> Batch:
        """The rows of this rank in a step of an epoch: [B, T] tokens, positions, streams and the targets "next"."""
        line, stretch = self.line(epoch), self.steps(epoch) * self.length
        tokens, values, positions = (np.empty((self.rows, self.length), np.int64) for _ in range(3))
        for row in range(self.rows):
            first = (self.rank * self.rows + row) * stretch
            here = first + step * self.length
            filled = 0
            while filled < self.length:
                number = int(np.searchsorted(line.begins, here + filled, side="right")) - 1
                framed = self.framed(int(line.owners[number]), int(line.units[number]))
                place = here + filled - int(line.begins[number])
                count = min(self.length - filled, len(framed) - 1 - place)
                to = slice(filled, filled + count)
                tokens[row, to], values[row, to] = framed[place : place + count], framed[place + 1 : place + count + 1]
                positions[row, to] = np.arange(place, place + count) - max(0, first - int(line.begins[number]))
                filled += count
        target = Target(torch.arange(tokens.size), torch.from_numpy(values.reshape(-1)))
        return Batch(
            torch.from_numpy(tokens),
            positions=torch.from_numpy(positions),
            targets={"next": target},
            streams=torch.arange(self.rows),
        )

    def _line(self, epoch: int) -> Line:
        owners, units, _ = self.order.permutation(epoch)
        sizes = np.empty(len(units), np.int64)
        for owner, table in enumerate(self.order.units):
            sizes[owners == owner] = table["tokens"][units[owners == owner]]
        return Line(owners, units, np.concatenate([[0], np.cumsum(sizes + 1)]))

    def _framed(self, owner: int, unit: int) -> np.ndarray:
        document = self.order.splits[owner].read(self.order.units[owner][unit].item())
        return np.concatenate([[self.start], *document.sentences, [self.end]]).astype(np.int64)


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
    segments = Segments(splits, start=start, end=end, length=length, rows=own, seed=seed, alpha=1.0)
    return [segments.batch(0, step) for step in range(min(segments.steps(0), max(1, limit_rows // own)))]

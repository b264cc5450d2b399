"""Loader: turns blocks of units into an endless sequence of training steps, from any position.

The steps are the same for any number of workers; the ranks of a run share each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from unmask.data.order import Order
from unmask.data.parallel import ordered
from unmask.errors import UnmaskError
from unmask.types import Batch, concatenate

TOKENS_AT_ONCE = 16_384  # approximate number of tokens of a micro-batch
Place = tuple[int, int]
"""(epoch, block)."""


class Step(NamedTuple):
    """The micro-batches of this rank for one step, and the position {"epoch", "block", "row"} of the next step."""

    batches: list[Batch]
    position: dict[str, int]


class Blocks(Protocol):
    """The batches of each block, a pure function of (epoch, block)."""

    def count(self, epoch: int) -> int:
        """Number of blocks of an epoch."""

    def __call__(self, place: Place) -> list[Batch]:
        """The batches of a block."""


class Slice(NamedTuple):
    """The batches of a step, the block in which it ends, and the row of this block at which the next step begins; None:
    at the next block."""

    batches: list[Batch]
    place: Place
    row: int | None


Cut = Callable[[Iterable[tuple[Place, list[Batch]]], Place, int], Iterator[Slice]]
"""Cuts blocks into steps: (blocks, starting with the first; its place; the row at which to begin) -> the steps."""


class Collated:
    """The rows of a block: its units are divided into batches, read, and collated.

    order    the units of each block
    collate  (units, generator) -> a batch
    divide   the units [N] of a block -> the units of each batch of this rank; None: one batch of all units

    The units of a step do not depend on the number of ranks. If `divide` shares them between ranks, the random numbers
    of `collate` do: every rank has the generator of the block, and draws only for its own units.
    """

    def __init__(
        self,
        order: Order,
        collate: Callable[[list[Any], np.random.Generator], Batch],
        divide: Callable[[np.ndarray], list[np.ndarray]] | None = None,
    ) -> None:
        self.order, self.collate, self.divide = order, collate, divide

    def count(self, epoch: int) -> int:
        return self.order.blocks

    def __call__(self, place: Place) -> list[Batch]:
        rng, units = self.order.generator(*place), self.order.units(*place)
        parts = [units] if self.divide is None else self.divide(units)
        return [self.collate([self.order.source.read(unit) for unit in part.tolist()], rng) for part in parts]


@dataclass(frozen=True)
class MicroBatches:
    """A block is a step: rank r takes every `ranks`-th unit, starting with unit r, in micro-batches.

    sizes    [U] size of each unit
    at_once  approximate size of a micro-batch
    classes  [U] the class of each unit: neighbours of one class are shared out together, and a micro-batch has at least
             two classes if the share has; None: each unit alone
    """

    sizes: np.ndarray
    rank: int = 0
    ranks: int = 1
    at_once: int = TOKENS_AT_ONCE
    classes: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise UnmaskError(f"There is no rank {self.rank} of {self.ranks}.")

    def __call__(self, units: np.ndarray) -> list[np.ndarray]:
        least, groups = 1, np.arange(len(units))
        if self.classes is not None:
            least, groups = 2, np.cumsum(np.diff(self.classes[units], prepend=self.classes[units[0]]) != 0)
        # The same number on every rank: all ranks gather a sharded model together, once for each micro-batch.
        shares = [units[groups % self.ranks == rank] for rank in range(self.ranks)]
        most = max(math.ceil(int(self.sizes[share].sum()) / self.at_once) for share in shares)
        count = min(max((groups[-1] + 1) // self.ranks // least, 1), most)
        own = groups[groups % self.ranks == self.rank] // self.ranks
        begins = [part[0] for part in np.array_split(np.arange(own[-1] + 1), count)]
        return np.split(shares[self.rank], np.searchsorted(own, begins[1:]))


def whole_blocks(blocks: Iterable[tuple[Place, list[Batch]]], place: Place, row: int) -> Iterator[Slice]:
    """Each block is a step, for `MicroBatches` and for rows that continue from batch to batch."""
    if row:
        raise _foreign({"epoch": place[0], "block": place[1], "row": row})
    for place, batches in blocks:
        yield Slice(batches, place, None)


@dataclass(frozen=True)
class EqualRows:
    """A step has the next `rows * ranks` rows, across blocks, and rank r takes the r-th `rows` of them: the steps are
    the same for any number of ranks with the same total number of rows.

    micro  rows of a micro-batch; None: all rows of the rank
    """

    rows: int
    rank: int = 0
    ranks: int = 1
    micro: int | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or not 0 <= self.rank < self.ranks:
            raise UnmaskError(f"A step cannot have {self.rows} rows, or rank {self.rank} of {self.ranks}.")

    def __call__(self, blocks: Iterable[tuple[Place, list[Batch]]], place: Place, row: int) -> Iterator[Slice]:
        wanted, begin = self.rows * self.ranks, self.rank * self.rows
        first, parts = place, list[Batch]()
        taken = 0  # rows of this step so far, over all ranks
        for place, batches in blocks:
            block = concatenate(batches)
            rows = len(block.tokens)
            if row > rows or (row and place != first):
                raise _foreign({"epoch": first[0], "block": first[1], "row": row})
            while row < rows:
                count = min(wanted - taken, rows - row)
                low, high = max(begin, taken), min(begin + self.rows, taken + count)
                if low < high:
                    parts.append(block.rows(row + low - taken, row + high - taken))
                row, taken = row + count, taken + count
                if taken == wanted:
                    yield Slice(self.micro_batches(concatenate(parts)), place, row if row < rows else None)
                    parts, taken = [], 0
            row = 0

    def micro_batches(self, batch: Batch) -> list[Batch]:
        """The rows of this rank, cut into micro-batches."""
        if self.micro is None:
            return [batch]
        return [batch.rows(begin, begin + self.micro) for begin in range(0, self.rows, self.micro)]


class Loader:
    """An endless sequence of training steps, from any position.

    blocks   turns units into rows: `Collated`, `segments.Continued`
    cut      turns blocks into steps: `whole_blocks`, `EqualRows`
    workers  0: the next block is built in a background thread; N: in N processes, and `blocks` must be picklable. The
             steps are the same
    """

    def __init__(self, blocks: Blocks, *, cut: Cut = whole_blocks, workers: int = 0) -> None:
        """Raises UnmaskError for a number of workers below 0."""
        if workers < 0:
            raise UnmaskError(f"The number of workers must be at least 0, not {workers}.")
        self.blocks, self.cut, self.workers = blocks, cut, workers

    def steps(self, epoch: int = 0) -> int:
        """Number of blocks of an epoch, which is the number of steps if a block is a step."""
        return self.blocks.count(epoch)

    def batches(self, position: Mapping[str, Any] | None = None) -> Iterator[Step]:
        """Steps from a position; None: from the beginning.

        A position comes from a step of such a loader, or is {"step"}, as written by version 0.1, if a block is a step.
        Raises UnmaskError for a position that does not belong to this loader, and if a whole epoch has no row.
        """
        *place, row = self._parse(position)
        first = (place[0], place[1])
        for batches, (epoch, block), following in self.cut(self._built(first), first, row):
            if following is None:
                epoch, block = self._after(epoch, block)
            yield Step(batches, {"epoch": epoch, "block": block, "row": following or 0})

    def _built(self, first: Place) -> Iterator[tuple[Place, list[Batch]]]:
        """The blocks starting with `first`, without those that have no rows."""
        empty = 0
        for place, arrays in ordered(_Arrays(self.blocks), self._places(first), self.workers):
            if any(len(one.tokens) for one in arrays):
                empty = 0
                yield place, [one.map(torch.from_numpy) for one in arrays]
            elif (empty := empty + 1) >= self.blocks.count(place[0]):
                raise UnmaskError(f"A whole epoch of {empty:,} blocks has no row: there is not enough data; use more.")

    def _places(self, place: Place) -> Iterator[Place]:
        while True:
            yield place
            place = self._after(*place)

    def _after(self, epoch: int, block: int) -> Place:
        return (epoch, block + 1) if block + 1 < self.blocks.count(epoch) else (epoch + 1, 0)

    def _parse(self, position: Mapping[str, Any] | None) -> tuple[int, int, int]:
        if position is None:
            return 0, 0, 0
        found = [position.get(key) for key in ("epoch", "block", "row")]
        step = position.get("step")
        if found == [None] * 3 and type(step) is int and step >= 0:
            found = [*divmod(step, self.blocks.count(0)), 0]
        numbers = [value for value in found if type(value) is int and value >= 0]
        if len(numbers) != 3 or numbers[1] >= self.blocks.count(numbers[0]):
            raise _foreign(position)
        return numbers[0], numbers[1], numbers[2]


class _Arrays:
    """The place and the batches of a block, as NumPy arrays: they are sent between processes without PyTorch."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks

    def __call__(self, place: Place) -> tuple[Place, list[Batch]]:
        return place, [batch.map(torch.Tensor.numpy) for batch in self.blocks(place)]


def _foreign(position: Mapping[str, Any]) -> UnmaskError:
    return UnmaskError(
        f"The position {dict(position)} does not belong to these data and settings; "
        "resume with those that the run started with."
    )

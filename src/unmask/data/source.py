"""Source: a collection of units, with the cost of each and a method to read one.

Shapes: U units.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

Unit = TypeVar("Unit", covariant=True)


class Source(Protocol[Unit]):
    """A collection of units that are read one by one: pieces of documents, labelled rows, pairs, pictures, recordings.

    It determines neither their order (`order.py`) nor the batches (`loader.py`). With worker processes it must be
    picklable.
    """

    @property
    def cost(self) -> np.ndarray:
        """[U] int64: contribution of each unit to the size of a step, such as its number of tokens or patches."""

    def read(self, unit: int) -> Unit:
        """Read the unit with this number, from 0 to U - 1."""


@runtime_checkable
class Sharded(Protocol):
    """A split in shards, so that each process of a run can read some of them only.

    bytes  size of each shard
    near   whether all shards are on this machine
    """

    bytes: list[int]
    near: bool

    def partition(self, number: int, count: int) -> Any:
        """Every `count`-th shard, from shard `number` on."""


class Joined:
    """Several sources as one: the units of the first, then those of the second, and so on.

    sizes  number of units of each source
    """

    def __init__(self, sources: Sequence[Source[Any]]) -> None:
        self.sources = list(sources)
        self.sizes = [len(source.cost) for source in self.sources]
        self._begins = list(accumulate(self.sizes, initial=0))
        self._owners = np.repeat(np.arange(len(self.sources), dtype=np.uint16), self.sizes)
        costs = [np.asarray(source.cost, np.int64) for source in self.sources]
        self.cost = np.concatenate(costs) if costs else np.empty(0, np.int64)

    def read(self, unit: int) -> Any:
        """Read the unit from its source."""
        owner = int(self._owners[unit])
        return self.sources[owner].read(unit - self._begins[owner])


class Cropped:
    """Some units of a source, whose costs are limited.

    units  [U'] numbers of the units in the source
    most   largest cost of a unit; a reader crops larger ones to it
    """

    def __init__(self, source: Source[Any], units: np.ndarray, *, most: int) -> None:
        self.source, self.units = source, units
        self.cost = np.minimum(np.asarray(source.cost, np.int64)[units], most)

    def read(self, unit: int) -> Any:
        """Read the whole unit from the source."""
        return self.source.read(int(self.units[unit]))

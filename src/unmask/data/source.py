"""Source: what a run draws from; how many units there are, what each costs, and how one is read.

Shapes: U units.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import numpy as np

Unit = TypeVar("Unit", covariant=True)


class Source(Protocol[Unit]):
    """Units that are drawn one by one: pieces of documents, labelled rows, pairs, pictures, recordings.

    It says nothing of the order in which they are drawn (`order.py`), nor of the batches made of them (`loader.py`).
    With worker processes it must be picklable.
    """

    @property
    def cost(self) -> np.ndarray:
        """[U] int64: what each unit adds to the size of a step, such as its tokens, patches or frames."""

    def read(self, unit: int) -> Unit:
        """The unit of this number, from 0 to U - 1."""


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
        """The unit, as its own source reads it."""
        owner = int(self._owners[unit])
        return self.sources[owner].read(unit - self._begins[owner])

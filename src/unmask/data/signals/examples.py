"""SignalExamples: labelled records as examples, one for each window, which are prepared when they are read.

Shapes: R records, W windows of all records, P segments of a record, S samples of a segment, L leads, M targets.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from unmask.data.files.damage import damaged
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import SignalRow, windows
from unmask.errors import UnmaskError
from unmask.types import Example

KEPT = 1 << 30  # bytes of decoded records that stay in memory; further ones are decoded each time


def segments_of(row: SignalRow, processor: SignalProcessor) -> int:
    """P, at least 1: a record that is too short has one window, which says so when it is read. Raises UnmaskError,
    which names the row, for a file that is no record."""
    return max(1, processor.segments(row.count(processor.rate)))


def cut(rows: Sequence[SignalRow], processor: SignalProcessor, window: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The spans [W, 2] of windows of some records, as `reading.windows` cuts them, and their owners [W]. Raises
    UnmaskError as `segments_of`."""
    found = [windows(segments_of(row, processor), window, step) for row in rows]
    spans = np.concatenate([np.empty((0, 2), np.int64), *found])
    return spans, np.repeat(np.arange(len(rows)), [len(own) for own in found])


class SignalExamples(Sequence[Example]):
    """Windows of records, each with its targets. A slice is a view of the same windows. A record is normalised as a
    whole, before it is cut.

    name     name of the target
    spans    [W, 2] first segment of each window in its record, and that after the last one
    owners   [W] the record of each window, ascending
    targets  W pairs of the places [M] of the targets in a window, and their values [M]
    kept     bytes of records that may stay in memory
    """

    def __init__(
        self,
        rows: Sequence[SignalRow],
        processor: SignalProcessor,
        name: str,
        spans: np.ndarray,
        owners: np.ndarray,
        targets: Sequence[tuple[np.ndarray, np.ndarray]],
        *,
        kept: int = KEPT,
    ) -> None:
        self.rows, self.processor, self.name, self.targets = rows, processor, name, targets
        self.spans, self.owners = spans, owners
        self._numbers: Sequence[int] = range(len(self.spans))
        self._read: dict[int, np.ndarray] = {}
        self._room = [kept]
        self._lock = Lock()  # protects the two above: a loader and the threads of an evaluation read together

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def lengths(self) -> np.ndarray:
        """[W] int64: the segments of each window, by the headers of the files."""
        own = self.spans[list(self._numbers)]
        return np.asarray(own[:, 1] - own[:, 0])

    @property
    def seconds(self) -> np.ndarray:
        """[W, 2]: the begin and the end of each window in its record."""
        return self.spans[list(self._numbers)] * (self.processor.segment / self.processor.rate)

    def __getitem__(self, index: Any) -> Any:
        """An example, or a view of some of the windows for a slice. Raises UnmaskError, which names the record, if it
        cannot be decoded."""
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        number = self._numbers[index]
        record = int(self.owners[number])
        begin, end = (self.spans[number] * self.processor.segment).tolist()
        made = self.processor.segmented(self.record(record)[begin:end])
        return replace(made, targets={self.name: self.targets[number]})

    def take(self, indices: Sequence[int]) -> SignalExamples:
        """A view of the windows with these indices, in this order."""
        view = copy.copy(self)
        view._numbers = [self._numbers[i] for i in indices]
        return view

    def record(self, number: int) -> np.ndarray:
        """[P * S, L] float32: a record as the model reads it. Raises UnmaskError as `__getitem__`."""
        found = self._read.get(number)
        if found is None:
            row = self.rows[number]
            samples_NL = row.signal(self.processor.rate).samples
            try:
                found = self.processor.values(samples_NL)
            except UnmaskError as error:
                raise UnmaskError(f"{row.name}: {error}") from None
            with self._lock:
                if number not in self._read and found.nbytes <= self._room[0]:
                    self._room[0] -= found.nbytes
                    self._read[number] = found
        return found

    def check(self) -> None:
        """Decode every record, in several threads, so that a damaged one is found before a long run begins.

        Raises UnmaskError, which counts the damaged records, and names the first.
        """
        with ThreadPoolExecutor() as pool:
            broken = [error for error in pool.map(self._error, range(len(self.rows))) if error]
        if broken and len(self.rows) == 1:
            raise UnmaskError(broken[0])
        if broken:
            raise UnmaskError(f"{damaged(broken, len(self.rows), 'record')} Remove them from the rows.")

    def _error(self, number: int) -> str:
        try:
            self.record(number)
        except UnmaskError as error:
            return str(error)
        return ""

"""RecordingExamples: labelled recordings as examples, which are prepared when they are read.

Shapes: N recordings, M targets of one.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from unmask.data.files.damage import check_readable
from unmask.data.recordings.items import RECORDINGS
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording
from unmask.errors import Missing, UnmaskError
from unmask.types import Example

KEPT = 1 << 30  # bytes of decoded recordings that stay in memory; further ones are decoded each time


class RecordingExamples(Sequence[Example]):
    """Recordings with a target. A slice is a view of the same recordings. Longer ones are cut at the end.

    name     name of the target
    targets  of each recording, its places [M] and values, and maybe lengths, as in `Example.targets`
    longest  most frames of a recording
    kept     bytes of decoded recordings that may stay in memory
    once     numbers of recordings that never stay there, such as the windows of a long one

    Raises UnmaskError, which names the row, for a file whose header is damaged.
    """

    def __init__(
        self,
        rows: Sequence[Recording],
        processor: RecordingProcessor,
        name: str,
        targets: Sequence[tuple[np.ndarray, ...]],
        *,
        longest: int,
        kept: int = KEPT,
        once: Collection[int] = (),
    ) -> None:
        self.rows, self.processor, self.name, self.targets, self.longest = rows, processor, name, targets, longest
        self._frames = np.array([processor.frames(row.count(processor.rate)) for row in rows], np.int64)
        self._numbers: Sequence[int] = range(len(rows))
        self._decoded: dict[int, np.ndarray] = {}
        self._room, self._once = [kept], frozenset(once)
        self._lock = Lock()  # protects the two above: a loader and the threads of an evaluation read together

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def lengths(self) -> np.ndarray:
        """[N] int64: the frames of each recording, by the headers of the files."""
        return np.clip(self._frames[list(self._numbers)], 1, self.longest)

    @property
    def cut(self) -> tuple[int, ...]:
        """The recordings that are longer than allowed."""
        return tuple(np.flatnonzero(self._frames[list(self._numbers)] > self.longest).tolist())

    def __getitem__(self, index: Any) -> Any:
        """An example, or a view of some of the recordings for a slice."""
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        return self.example(index, self.samples(index))

    def take(self, indices: Sequence[int]) -> RecordingExamples:
        """A view of the recordings with these indices, in this order."""
        view = copy.copy(self)
        view._numbers = [self._numbers[i] for i in indices]
        return view

    def example(self, index: int, samples: np.ndarray) -> Example:
        """The example of these samples, which may be changed ones, with the target of a recording."""
        try:
            made = self.processor.example(samples)
        except UnmaskError as error:
            raise UnmaskError(f"{self.rows[self._numbers[index]].place}: {error}") from None
        return replace(made, targets={self.name: self.target(index)})

    def samples(self, index: int) -> np.ndarray:
        """[N] float32 at the rate of the processor. Raises UnmaskError, which names the recording, if it cannot be
        decoded."""
        number = self._numbers[index]
        found = self._decoded.get(number)
        if found is None:
            found = self.rows[number].samples(self.processor.rate, self.processor.samples(self.longest))
            if number in self._once:
                return found
            with self._lock:
                if number not in self._decoded and found.nbytes <= self._room[0]:
                    self._room[0] -= found.nbytes
                    self._decoded[number] = found
        return found

    def target(self, index: int) -> tuple[np.ndarray, ...]:
        """The target of a recording: places, values, and maybe lengths."""
        return self.targets[self._numbers[index]]

    def check(self) -> None:
        """Decode every recording, in several threads, so that a damaged one is found before a long run begins.

        Raises UnmaskError, which counts the damaged recordings, and names the first.
        """
        with ThreadPoolExecutor() as pool:
            check_readable(
                [error for error in pool.map(self._error, range(len(self))) if error], len(self), RECORDINGS.noun
            )

    def _error(self, index: int) -> str:
        try:
            self[index]
        except Missing:  # a package; the file may be valid
            raise
        except UnmaskError as error:
            return str(error)
        return ""

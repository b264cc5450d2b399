"""PictureExamples: labelled pictures as examples, which are prepared when they are read.

Shapes: N pictures, H height and W width in pixels, C channels.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture, check_readable
from unmask.errors import Missing, UnmaskError
from unmask.types import Example

KEPT = 1 << 30  # bytes of decoded pictures that stay in memory; further ones are decoded each time


class PictureExamples(Sequence[Example]):
    """Pictures with a target at their first place. A slice is a view of the same pictures.

    name    name of the target
    values  [N, 1] the target of each picture
    kept    bytes of decoded pictures that may stay in memory
    """

    def __init__(
        self, rows: Sequence[Picture], processor: ImageProcessor, name: str, values: np.ndarray, *, kept: int = KEPT
    ) -> None:
        self.rows, self.processor, self.name, self.values = rows, processor, name, values
        self._numbers: Sequence[int] = range(len(rows))
        self._decoded: dict[int, np.ndarray] = {}
        self._room = [kept]
        self._lock = Lock()  # protects the two above: a loader and the threads of an evaluation read together

    def __getstate__(self) -> dict[str, Any]:
        """Without the lock and the decoded pictures: a worker process has its own."""
        return {**vars(self), "_decoded": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state | {"_lock": Lock()})

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def lengths(self) -> np.ndarray:
        """[N] int64: the places of a picture, the same number for each."""
        return np.full(len(self), self.processor.length, np.int64)

    def __getitem__(self, index: Any) -> Any:
        """An example, or a view of some of the pictures for a slice."""
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        target = {self.name: (np.zeros(1, np.int64), self.values[self._numbers[index]])}
        return replace(self.processor.example(self.pixels(index)), targets=target)

    def take(self, indices: Sequence[int]) -> PictureExamples:
        """A view of the pictures with these indices, in this order."""
        view = copy.copy(self)
        view._numbers = [self._numbers[i] for i in indices]
        return view

    def pixels(self, index: int) -> np.ndarray:
        """[H, W, C] uint8. Raises UnmaskError, which names the picture, if it cannot be decoded."""
        number = self._numbers[index]
        found = self._decoded.get(number)
        if found is None:
            found = self.rows[number].pixels(self.processor.channels)
            with self._lock:
                if number not in self._decoded and found.nbytes <= self._room[0]:
                    self._room[0] -= found.nbytes
                    self._decoded[number] = found
        return found

    def value(self, index: int) -> np.ndarray:
        """The target of a picture, [1]."""
        found: np.ndarray = self.values[self._numbers[index]]
        return found

    def check(self) -> None:
        """Decode every picture, in several threads, so that a damaged one is found before a long run begins.

        Raises UnmaskError, which counts the damaged pictures, names the first, and says how to leave them out.
        """
        with ThreadPoolExecutor() as pool:
            check_readable([error for error in pool.map(self._error, range(len(self))) if error], len(self))

    def _error(self, index: int) -> str:
        try:
            self.pixels(index)
        except Missing:  # a package; the file may be valid
            raise
        except UnmaskError as error:
            return str(error)
        return ""

"""Numbers: vectors as the sources of models that write from them, in lines of text, and in arrays.

Shapes: P vectors, F numbers of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from unmask.data.subword_files import Side
from unmask.data.subwords import Subwords
from unmask.errors import UnmaskError, plural

SUFFIX = ".npy"
SHOWN = 40  # characters of a line that is shown


class Numbers(Subwords):
    """The vocabulary of a model that reads a vector and writes a text: its sources are lines of `features` numbers.

    What is read of a source is one item, the vector: [1, F]. Texts are written, and read again, with `target`.
    """

    def __init__(self, side: Side, features: int) -> None:
        super().__init__(side)
        self.features = features
        self._target = Subwords(side)

    def encode_all(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The vector of each line, [1, F] float32; [0, F] of an empty line. Raises UnmaskError for a line of anything
        else, quoting its beginning."""
        return [self._item(text) for text in texts]

    def closed(self, ids: np.ndarray, most: int) -> np.ndarray:
        """A vector as it is: nothing stands behind it."""
        return ids

    def pieces(self, ids: Iterable[int] | np.ndarray) -> list[str]:
        """The piece of each id of a text that is written. Raises UnmaskError for a source, which has none."""
        found = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
        if found.ndim > 1:
            raise UnmaskError("This model reads vectors, and a vector has no tokens to show.")
        return super().pieces(found)

    def shown(self, source: str) -> str:
        """The beginning of the line of numbers."""
        return source if len(source) <= SHOWN else f"{source[:SHOWN]}…"

    def lacking(self, ids: np.ndarray) -> int:
        """0: any number can be read."""
        return 0

    def _item(self, text: str) -> np.ndarray:
        if not text.strip():
            return np.empty((0, self.features), np.float32)
        found = vector(text)
        if found is None or len(found) != self.features:
            what = f"has {plural(len(found), 'number')}" if found is not None else "is no line of finite numbers"
            raise UnmaskError(
                f"The source '{self.shown(text)}' {what}, but the model reads vectors of {self.features:,}: give as "
                "many numbers a line, with spaces or commas between."
            )
        return found[None]


def vector(text: str) -> np.ndarray | None:
    """The numbers [F] float32 of a line, with spaces or commas between, in brackets or not; None where it is anything
    else, or where a number is not finite."""
    parts = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    try:
        values = [float(part) for part in parts]
    except ValueError:
        return None
    with np.errstate(over="ignore"):
        found = np.array(values, np.float32)
    return found if len(found) and np.isfinite(found).all() else None


def lines(path: Path) -> list[str]:
    """The rows of an array [P, F] in a .npy file, each as a line that `vector` reads.

    Raises UnmaskError for a file that holds something else, and for numbers that are not finite.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise UnmaskError(f"{path} is no array that NumPy can read; write it with numpy.save.") from None
    if array.ndim != 2 or array.dtype.kind not in "fiub" or not array.shape[1]:
        raise UnmaskError(
            f"{path} holds an array {list(array.shape)} of {array.dtype}, where a row of numbers for each text is "
            "wanted."
        )
    pattern = " ".join(["%.9g"] * array.shape[1])
    found = []
    for number, row in enumerate(array, 1):
        with np.errstate(over="ignore"):
            values = row.astype(np.float32).tolist()
        if not all(map(math.isfinite, values)):
            raise UnmaskError(f"Row {number:,} of {path} has numbers that are not finite; put numbers in their place.")
        found.append(pattern % tuple(values))
    return found

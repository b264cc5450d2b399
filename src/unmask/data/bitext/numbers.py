"""Numbers: vectors as sources of encoder–decoders, from lines of text and from arrays.

Shapes: P vectors, F numbers of each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from unmask.data.text.splitter import Encoding, Side
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, plural

SUFFIX = ".npy"
SHOWN = 40  # characters of a line in messages
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*", re.ASCII | re.IGNORECASE)
NO_TOKENS = "This model reads vectors, and a vector has no tokens to show."


class NoVector(UnmaskError):
    """A source is not a vector, or has another width; `place` is its index, from 0, among the given sources."""

    def __init__(self, what: str, place: int) -> None:
        super().__init__(what)
        self.place = place


class Numbers(Tokenizer):
    """The tokenizer of a model that generates a text from a vector: sources are lines of `features` numbers.

    A source becomes one item, the vector [1, F]. `target` is the tokenizer of the texts.
    """

    reads_texts = False

    def __init__(self, side: Side, features: int) -> None:
        super().__init__(side)
        self.features = features
        self._target = Tokenizer(side)

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[np.ndarray]:
        """The vector of each line, [1, F] float32; [0, F] for an empty line. Raises NoVector for any other line."""
        return [self._item(text, place) for place, text in enumerate(texts)]

    def closed(self, ids: np.ndarray, most: int) -> np.ndarray:
        """The vector, unchanged: no token follows it."""
        return ids

    def pieces(self, ids: Iterable[int] | np.ndarray) -> list[str]:
        """The piece of each id of a target text. Raises UnmaskError for a source, which has no pieces."""
        found = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
        if found.ndim > 1:
            raise UnmaskError(NO_TOKENS)
        return super().pieces(found)

    def shown(self, source: str) -> str:
        """The beginning of the line of numbers."""
        return source if len(source) <= SHOWN else f"{source[:SHOWN]}…"

    def lacking(self, ids: np.ndarray) -> int:
        """0: a vector has no unknown tokens."""
        return 0

    def encode(self, text: str, *, special: bool = True) -> Encoding:
        """Raises UnmaskError: a source has no pieces."""
        raise UnmaskError(NO_TOKENS)

    def _item(self, text: str, place: int) -> np.ndarray:
        if not text.strip():
            return np.empty((0, self.features), np.float32)
        found = vector(text)
        if found is None or len(found) != self.features:
            what = f"has {plural(len(found), 'number')}" if found is not None else "is not a line of finite numbers"
            raise NoVector(
                f"'{self.shown(text)}' {what}, but the model reads vectors of {self.features:,}: give that many "
                "numbers on each line, separated by spaces or commas.",
                place,
            )
        return found[None]


def vector(text: str) -> np.ndarray | None:
    """The numbers [F] float32 of a line, separated by spaces or commas, with or without brackets; None for any other
    line, and if a number is not finite."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    parts = text.split(",") if "," in text else text.split()  # "0,5 1,2" is not accepted
    if not all(map(_NUMBER.fullmatch, parts)):
        return None
    with np.errstate(over="ignore"):
        found = np.array(list(map(float, parts)), np.float32)
    return found if len(found) and np.isfinite(found).all() else None


def are_vectors(texts: Sequence[str]) -> bool:
    """Whether the first hundred texts are all vectors."""
    return all(vector(text) is not None for text in texts[:100])


def lines(path: Path) -> list[str]:
    """The rows of an array [P, F] in a .npy file, each as a line for `vector`.

    Raises UnmaskError if the file has no such array, and for numbers that are not finite.
    """
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except PermissionError:
        raise UnmaskError(f"{path} cannot be read: permission denied.") from None
    except Exception:  # a damaged header raises many kinds of errors
        raise UnmaskError(f"{path} is not an array that NumPy can read; write it with numpy.save.") from None
    if array.ndim != 2 or array.dtype.kind not in "fiub" or not array.shape[1]:
        raise UnmaskError(
            f"{path} has an array {list(array.shape)} of {array.dtype}, but it must have a row of numbers for each "
            "text."
        )
    pattern = " ".join(["%.9g"] * array.shape[1])
    found = []
    for number, row in enumerate(array, 1):
        with np.errstate(over="ignore"):
            values = row.astype(np.float32).tolist()
        if not all(map(math.isfinite, values)):
            raise UnmaskError(f"Row {number:,} of {path} has numbers that are not finite; replace them by finite ones.")
        found.append(pattern % tuple(values))
    return found

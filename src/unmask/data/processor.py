"""Processor: converts items (texts, pictures, recordings) to examples and batches for a model.

Shapes: B rows, T places of a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

from unmask.data import collate
from unmask.types import Batch, Example

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Region:
    """The part of an item that a place represents: a half-open range along each axis.

    unit   "characters" of a text, "pixels" of a picture (x, then y), or "seconds" of a recording
    begin  first value of each axis
    end    value after the last one of each axis
    """

    unit: str
    begin: tuple[float, ...]
    end: tuple[float, ...]


class Processor(ABC, Generic[Item]):
    """Converts items to examples and batches. A folder has the processor of its model; a tokenizer is the processor of
    texts.

    pad  padding in `Batch.tokens`: an id of the vocabulary, or `Kind.PADDING`
    """

    pad: int

    @abstractmethod
    def example(self, item: Item) -> Example:
        """Convert an item to a sequence [T], with the special places around it and without truncation.

        Raises UnmaskError for an item that the model cannot read.
        """

    def collate(self, examples: Sequence[Example]) -> Batch:
        """One example in each row [B, T], padded to the longest. Raises UnmaskError for an example without places."""
        return collate.pad(examples, self.pad, multiple=1)

    @abstractmethod
    def describe(self, item: Item, place: int) -> Region | None:
        """The part of an item that a place of its example represents; None for a special place, such as CLS.

        Raises UnmaskError for a place outside the example.
        """

    @property
    def fingerprint(self) -> str:
        """A string that is equal for processors that read items alike. By default the `repr`, which has all fields of a
        dataclass."""
        return repr(self)

    @abstractmethod
    def save(self, folder: Path, /) -> list[str]:
        """Write the files of the processor into a folder, and return their names."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, /) -> Self:
        """Load the processor of a folder. Raises UnmaskError if its files are missing or damaged."""

    def unread(self, examples: Sequence[Example]) -> str:
        """A sentence on the parts of the items that the processor cannot read, such as unknown words; else empty."""
        return ""

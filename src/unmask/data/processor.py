"""Processor: what stands between an item (a text, a picture, a recording) and a model.

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
    """The part of an item that a place stands for: a half-open range along each axis.

    unit   "characters" of a text, "pixels" of a picture (x, then y), or "seconds" of a recording
    begin  first value of each axis      end  the value behind the last one
    """

    unit: str
    begin: tuple[float, ...]
    end: tuple[float, ...]


class Processor(ABC, Generic[Item]):
    """Items in, batches out. A folder keeps the processor of its model; a tokenizer is the processor of texts.

    pad  what `Batch.tokens` has where nothing stands: an id of the vocabulary, or `Kind.PADDING`
    """

    pad: int

    @abstractmethod
    def example(self, item: Item) -> Example:
        """One item as a sequence [T], with the special places around it and without truncation.

        Raises UnmaskError for an item that the model cannot read.
        """

    def collate(self, examples: Sequence[Example]) -> Batch:
        """One example a row [B, T], padded to the longest one. Raises UnmaskError for an example without places."""
        return collate.pad(examples, self.pad, multiple=1)

    @abstractmethod
    def describe(self, item: Item, place: int) -> Region | None:
        """Which part of an item a place of its example stands for; None for a special place, such as CLS.

        Raises UnmaskError for a place outside the example.
        """

    @property
    def fingerprint(self) -> str:
        """What is equal for processors that read items alike. Here its `repr`, which tells all of a dataclass."""
        return repr(self)

    @abstractmethod
    def save(self, folder: Path, /) -> list[str]:
        """Write the files of the processor into a folder; returns their names."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, /) -> Self:
        """The processor whose files are in a folder. Raises UnmaskError where they are missing or damaged."""

    def unread(self, examples: Sequence[Example]) -> str:
        """One sentence on what of the items is not read, such as unknown words; empty where all is."""
        return ""

"""Encoded: labelled rows as sequences of ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from unmask.data.examples import Collate, PackedGroups, lengths_of
from unmask.data.labelled.rows import Row
from unmask.data.order import Classes
from unmask.data.processor import Processor
from unmask.types import Batch, Example


@dataclass(frozen=True)
class Encoded:
    """Rows as sequences of ids, in the order of the rows.

    examples  one for each row, or several: the windows of a long text, the choices of a question, the texts of a pair
    owners    [N] the row that each example belongs to, ascending
    rows      the rows that were encoded
    length    the longest sequence that was allowed, in tokens
    cut       indices of the rows that lost tokens
    split     number of rows that became several windows, without losing tokens
    together  whether the examples of a row must be in one batch, because the loss compares them
    classes   the classes of rows of which a batch must have several each, because the loss compares them; None: rows
              are drawn at random
    collate   makes the batches of training from the examples, such as augmented pictures; None: they are packed
    targets   adds targets to the batches of training; None: the examples have them all
    unit      what the places of these rows are called
    notes     sentences on rows that training leaves out, or that do not suit the processor
    """

    examples: Sequence[Example]
    owners: np.ndarray
    rows: Sequence[Row]
    length: int
    cut: tuple[int, ...] = ()
    split: int = 0
    together: bool = False
    classes: Classes | None = None
    collate: Collate | None = None
    targets: Callable[[Batch], Batch] | None = None
    unit: str = "tokens"
    notes: tuple[str, ...] = ()

    @property
    def lengths(self) -> np.ndarray:
        """[N] int64: the number of tokens of each example."""
        return lengths_of(self.examples)

    def completed(self, batch: Batch) -> Batch:
        """A batch of training with all its targets."""
        return batch if self.targets is None else self.targets(batch)

    def collating(self, pad: int) -> Collate:
        """Makes the batches of training; `pad` is the id of the padding token. Without `targets`, it can be pickled."""
        collate = self.collate or PackedGroups(pad)
        return collate if self.targets is None else lambda groups, rng: self.completed(collate(groups, rng))

    @property
    def notice(self) -> str:
        """One sentence on rows that did not fit; empty where all rows did."""
        if self.cut:
            share = f"{len(self.cut):,} of {len(self.rows):,} rows ({len(self.cut) / len(self.rows):.1%})"
            return f"{share} are longer than {self.length} {self.unit} and were cut."
        if self.split:
            share = f"{self.split:,} of {len(self.rows):,} rows ({self.split / len(self.rows):.1%})"
            return f"{share} are longer than {self.length} {self.unit} and were split into windows."
        return ""

    def said(self, processor: Processor[Any]) -> str:
        """Sentences on rows that did not fit or are left out, and on text that the processor did not read; empty if
        there are none."""
        return " ".join(filter(None, (self.notice, *self.notes, processor.unread(self.examples))))

    @cached_property
    def of_rows(self) -> list[slice]:
        """For each row, the slice of its examples."""
        ends = np.searchsorted(self.owners, np.arange(len(self.rows) + 1)).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

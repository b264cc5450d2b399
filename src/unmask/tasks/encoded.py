"""Encoded: labelled rows as sequences of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from unmask.data.rows import Row
from unmask.data.tokenizer import Tokenizer
from unmask.types import Example


@dataclass(frozen=True)
class Encoded:
    """Rows as sequences of ids, in the order of the rows.

    examples  one for each row, or several: the windows of a long text, the choices of a question, the texts of a pair
    owners    [N] the row that each example belongs to, ascending
    rows      what was encoded
    length    the longest sequence that was allowed, in tokens
    cut       numbers of the rows that lost tokens
    split     rows that became several windows, in which every token keeps its place
    together  whether the examples of a row must meet in one batch: the loss compares them
    """

    examples: list[Example]
    owners: np.ndarray
    rows: Sequence[Row]
    length: int
    cut: tuple[int, ...] = ()
    split: int = 0
    together: bool = False

    @property
    def notice(self) -> str:
        """One sentence on rows that did not fit; empty where all did."""
        if self.cut:
            share = f"{len(self.cut):,} of {len(self.rows):,} rows ({len(self.cut) / len(self.rows):.1%})"
            return f"{share} are longer than {self.length} tokens and were cut."
        if self.split:
            share = f"{self.split:,} of {len(self.rows):,} rows ({self.split / len(self.rows):.1%})"
            return f"{share} are longer than {self.length} tokens and were split into windows."
        return ""

    def said(self, tokenizer: Tokenizer) -> str:
        """What is to be said of rows that did not fit, and of words that the vocabulary lacks; empty where nothing."""
        return " ".join(filter(None, (self.notice, self._unread(tokenizer))))

    def _unread(self, tokenizer: Tokenizer) -> str:
        """One sentence where more than a token in a hundred stands for such words; else nothing."""
        if tokenizer.unknown in (tokenizer.pad, tokenizer.cls, tokenizer.sep):  # a vocabulary of bytes lacks nothing
            return ""
        unknown = sum(int((example.tokens == tokenizer.unknown).sum()) for example in self.examples)
        share = unknown / max(1, sum(len(example.tokens) for example in self.examples))
        return f"{share:.1%} of the tokens stand for words that the vocabulary lacks." if share > 0.01 else ""

    @cached_property
    def of_rows(self) -> list[slice]:
        """For each row, where its examples are."""
        ends = np.searchsorted(self.owners, np.arange(len(self.rows) + 1)).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

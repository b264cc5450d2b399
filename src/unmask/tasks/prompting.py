"""Prompting: rows of a task as texts that a language model continues with, and what it may answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from unmask.data.labelled.rows import Choices, Row
from unmask.errors import UnmaskError, unknown


class Prompting:
    """How rows of a task become prompts: here a text, or a pair of texts, and one of the labels.

    named  label -> what it is called
    """

    alone = "Text: {text}\nLabel: {answer}"
    paired = "First: {text}\nSecond: {pair}\nLabel: {answer}"

    def __init__(self, named: Mapping[str, str]) -> None:
        self.named = named

    @classmethod
    def of(cls, labels: Sequence[str], names: Mapping[str, str]) -> Self:
        """For rows with these labels, some of which have other names. Raises UnmaskError for names of other labels."""
        for label in names.keys() - set(labels):
            raise unknown("label in the rows, which --names calls", label, labels)
        return cls({label: names.get(label) or label for label in labels})

    def template(self, rows: Sequence[Row]) -> str:
        """The default template for these rows."""
        return self.paired if any(row.pair for row in rows) else self.alone

    def candidates(self, row: Row) -> list[str]:
        """What may be the answer to a row."""
        return list(self.named.values())

    def answer(self, row: Row) -> str:
        """The right one. Raises UnmaskError where a row to be shown has none."""
        if row.label not in self.named:
            raise unknown(
                f"label of the rows to answer, which {row.place} is to be shown beside:", row.label, self.named
            )
        return self.named[row.label]


class ChoicePrompting(Prompting):
    """A context, a question, and the choice behind it; each row brings its answers."""

    alone, paired = "{text} {answer}", "{text} {pair} {answer}"

    @classmethod
    def of(cls, labels: Sequence[str], names: Mapping[str, str]) -> Self:
        if names:
            raise UnmaskError("--names is for labels: a row with choices brings its answers with it.")
        return cls({})

    def candidates(self, row: Row) -> list[str]:
        assert isinstance(row, Choices)
        return list(row.choices)

    def answer(self, row: Row) -> str:
        assert isinstance(row, Choices)
        if not row.label.isdigit() or int(row.label) >= len(row.choices):
            raise UnmaskError(f"{row.place} has no right choice to show: {row.label!r}.")
        return row.choices[int(row.label)]

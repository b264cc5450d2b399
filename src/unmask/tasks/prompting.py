"""Prompting: rows of a task as prompts for a language model, and its possible answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from unmask.data.labelled.rows import Choices, Row
from unmask.errors import UnmaskError, unknown


class Prompting:
    """Turns rows of a task into prompts: here a text, or a pair of texts, and one of the labels.

    named  label -> its name in prompts
    """

    alone = "Text: {text}\nLabel: {answer}"
    paired = "First: {text}\nSecond: {pair}\nLabel: {answer}"

    def __init__(self, named: Mapping[str, str]) -> None:
        self.named = named

    @classmethod
    def of(cls, labels: Sequence[str], names: Mapping[str, str]) -> Self:
        """The prompts for rows with these labels, some with other names. Raises UnmaskError for names of unknown
        labels."""
        for label in names.keys() - set(labels):
            raise unknown("label in the rows, which --names calls", label, labels)
        return cls({label: names.get(label) or label for label in labels})

    def template(self, rows: Sequence[Row]) -> str:
        """The default template for these rows."""
        return self.paired if any(row.pair for row in rows) else self.alone

    def candidates(self, row: Row) -> list[str]:
        """The possible answers to a row."""
        return list(self.named.values())

    def answer(self, row: Row) -> str:
        """The correct answer. Raises UnmaskError for a row whose label is not among those of the rows to answer."""
        if row.label not in self.named:
            raise unknown(f"label of the rows to answer, for which {row.place} is an example:", row.label, self.named)
        return self.named[row.label]


class ChoicePrompting(Prompting):
    """A context, a question, and the choice after it; each row has its own answers."""

    alone, paired = "{text} {answer}", "{text} {pair} {answer}"

    @classmethod
    def of(cls, labels: Sequence[str], names: Mapping[str, str]) -> Self:
        if names:
            raise UnmaskError("--names is for labels, but rows with choices have their own answers: leave it out.")
        return cls({})

    def candidates(self, row: Row) -> list[str]:
        assert isinstance(row, Choices)
        return list(row.choices)

    def answer(self, row: Row) -> str:
        assert isinstance(row, Choices)
        if not row.label.isdigit() or int(row.label) >= len(row.choices):
            raise UnmaskError(f"{row.place} does not have the number of a choice as its label: {row.label!r}.")
        return row.choices[int(row.label)]

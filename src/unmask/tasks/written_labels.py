"""Written labels: several labels of a text, or none, as one text that a T5 writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from unmask import metrics
from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.tasks.labels import label_id
from unmask.tasks.written import Written, Wrote, odd, probability_of, squeezed

NONE = "no label"
"""The target of a text without labels."""
SIGNS = (",", ";", "|", "/")
"""Separators of labels; the first one that no label contains is used."""


class WrittenLabels(Written):
    """The written form of multi-label classification: the labels of a text in the order of the task, with a separator
    between them."""

    metric = "micro_f1"

    @classmethod
    def learned(cls, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> Self:
        return cls(
            name, dataset.ordered({label for row in train for label in row.labels}) if labels is None else labels
        )

    def __init__(self, name: str, labels: Sequence[str] = (), mean: float = 0.0) -> None:
        """Raises UnmaskError for labels without a possible separator, and for a label that reads "no label"."""
        super().__init__(name, labels, mean)
        sign = next((sign for sign in SIGNS if not any(sign in label for label in self.labels)), None)
        if sign is None:
            raise UnmaskError(
                f"Labels contain all of {' '.join(SIGNS)}, so none of these can separate two labels: rename some "
                "labels in the files."
            )
        if any(squeezed(label) == squeezed(NONE) for label in self.labels):
            raise UnmaskError(
                f"A label is '{NONE}', which is the target of a text without labels: rename it in the files."
            )
        self.sign = sign
        self._numbers = {label: i for i, label in enumerate(self.labels)}

    def target(self, row: Row) -> str:
        return f"{self.sign} ".join(self.labels[number] for number in self._of(row)) or NONE

    def fixed(self, rows: Sequence[Row]) -> Sequence[str]:
        several = [f"{self.sign} ".join(self.labels)] if len(self.labels) > 1 else []
        return (*self.labels, *several, *([NONE] if any(not row.labels for row in rows) else []))

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        """`answered` is the share of texts that consist of known labels, or are "no label"."""
        understood = [self.said(answer)[1] for answer in answers]
        return {**metrics.of_label_sets(self._sets(answers), self._true(rows)), "answered": float(np.mean(understood))}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        return metrics.per_label(self._sets(answers), self._true(rows), self.labels)

    def named(self, rows: Dataset, owner: str) -> Dataset:
        return rows

    def answer(self, row: Row, wrote: Sequence[Wrote]) -> dict[str, Any]:
        labels, understood = self.said(wrote[0].text)
        return {"labels": labels, **probability_of(wrote), **({} if understood else odd(wrote[0].text))}

    def said(self, answer: str) -> tuple[list[str], bool]:
        """The labels that a text names, in the order of the task; and whether it names nothing else."""
        if squeezed(answer) == squeezed(NONE):
            return [], True
        numbers = self._ids(answer.split(self.sign)).tolist()
        known = sorted({number for number in numbers if number < len(self.labels)})
        return [self.labels[number] for number in known], max(numbers) < len(self.labels)

    def _sets(self, answers: Sequence[str]) -> np.ndarray:
        """[N, C] bool: the labels that texts name."""
        return self._flags([[self._numbers[label] for label in self.said(answer)[0]] for answer in answers])

    def _true(self, rows: Sequence[Row]) -> np.ndarray:
        """[N, C] bool: the labels of rows."""
        return self._flags([self._of(row) for row in rows])

    def _of(self, row: Row) -> list[int]:
        """The numbers of a row's labels, in order. Raises UnmaskError for one that the task does not have."""
        return sorted(label_id(self._numbers, label, row) for label in row.labels)

    def _flags(self, sets: Sequence[Sequence[int]]) -> np.ndarray:
        flags = np.zeros((len(sets), len(self.labels)), bool)
        for row, numbers in zip(flags, sets, strict=True):
            row[numbers] = True
        return flags

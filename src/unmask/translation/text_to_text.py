"""Text-to-text: labelled rows as pairs of texts, of which a T5 writes the label (Raffel et al. 2020, section 2.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unmask import metrics
from unmask.data import dataset
from unmask.data.bitext import Bitext, Report
from unmask.data.dataset import Dataset
from unmask.data.rows import Row
from unmask.errors import UnmaskError

FAMILIES = ("classification", "regression")
STEP = 0.2  # what scores are rounded to, so that they are words (section 2.4, on STS-B)
FIELDS = {"qqp": ("question1", "question2"), "qnli": ("question", "sentence")}
WORDS = {
    "sst2": {"0": "negative", "1": "positive"},
    "cola": {"0": "unacceptable", "1": "acceptable"},
    "mrpc": {"0": "not_equivalent", "1": "equivalent"},
    "qqp": {"0": "not_duplicate", "1": "duplicate"},
}
"""Labels that are numbers in the files, as words (appendix D)."""


def check_family(family: str) -> None:
    """Raises UnmaskError for a task that is not answered in words here."""
    if family not in FAMILIES:
        raise UnmaskError(f"A T5 answers --task {' or '.join(FAMILIES)} in words; {family} is for encoders.")


class TextTask:
    """A task whose rows are read as text, and whose answers are written.

    family  "classification" or "regression"
    name    what stands before each text, such as "sst2"
    train   rows that say which labels there are; a score that cannot be read counts as their mean
    labels  as the files have them, in their order; None: those of `train`
    """

    def __init__(self, family: str, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> None:
        check_family(family)
        self.family, self.name, self.mean = family, name, 0.0
        self.labels: tuple[str, ...] = ()
        if family == "regression":
            self.mean = float(np.mean([float(row.label) for row in train]))
        else:
            known = dataset.ordered({row.label for row in train}) if labels is None else labels
            self.labels = tuple(self.word(label) for label in known)

    @property
    def metric(self) -> str:
        """What decides which weights are kept, where nothing else is said."""
        return "pearson" if self.family == "regression" else "accuracy"

    def source(self, row: Row) -> str:
        """sst2 sentence: … or mrpc sentence1: … sentence2: …"""
        if row.pair is None:
            return f"{self.name} sentence: {row.text}"
        first, second = FIELDS.get(self.name, ("sentence1", "sentence2"))
        return f"{self.name} {first}: {row.text} {second}: {row.pair}"

    def target(self, row: Row) -> str:
        """The label as text; a score to the nearest fifth."""
        if self.family == "regression":
            return f"{round(float(row.label) / STEP) * STEP:.1f}"
        return self.word(row.label)

    def word(self, label: str) -> str:
        """A label as it is written."""
        return WORDS.get(self.name, {}).get(label, label)

    def pairs(self, rows: Dataset) -> Bitext:
        """What is read and what is to be written, for every row."""
        report = Report(str(rows.path), len(rows))
        kept = list(rows)
        return Bitext([self.source(r) for r in kept], [self.target(r) for r in kept], report, list(range(len(kept))))

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of the task; `answered` is the share of answers that are one of the labels, or a number."""
        if self.family == "regression":
            numbers = [_number(answer) for answer in answers]
            said = np.array([self.mean if number is None else number for number in numbers])
            found = metrics.of_scores(said, np.array([float(row.label) for row in rows]))
            return {**found, "answered": float(np.mean([number is not None for number in numbers]))}
        said, true = self._ids(answers), self._ids([self.target(row) for row in rows])
        return {**metrics.of_classes(said, true, self.labels), "answered": float((said < len(self.labels)).mean())}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        """Label -> precision, recall, f1 and support; nothing of scores."""
        if self.family == "regression":
            return {}
        return metrics.per_class(self._ids(answers), self._ids([self.target(row) for row in rows]), self.labels)

    def _ids(self, answers: Sequence[str]) -> np.ndarray:
        """[N] numbers of labels, whatever their case; that of a text which is none of them lies behind the others."""
        ids: dict[str, int] = {label: i for i, label in enumerate(self.labels)}
        folded = {label.casefold(): i for label, i in ids.items()}
        return np.array([ids.get(answer, folded.get(answer.casefold(), len(ids))) for answer in answers])


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(" ", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None

"""Text-to-text: labelled rows as pairs of texts, of which a T5 writes the second (Raffel et al. 2020, section 2.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unmask import metrics
from unmask.data import dataset
from unmask.data.bitext import Bitext, Report
from unmask.data.dataset import Dataset
from unmask.data.rows import Choices, Question, Row
from unmask.errors import UnmaskError

FAMILIES = ("classification", "regression", "question-answering", "multiple-choice")
STEP = 0.2  # what scores are rounded to, so that they are words (section 2.4, on STS-B)
FIELDS = {"qqp": ("question1", "question2"), "qnli": ("question", "sentence")}
WORDS = {
    "sst2": {"0": "negative", "1": "positive"},
    "cola": {"0": "unacceptable", "1": "acceptable"},
    "mrpc": {"0": "not_equivalent", "1": "equivalent"},
    "qqp": {"0": "not_duplicate", "1": "duplicate"},
}
"""Labels that are numbers in the files, as words (appendix D)."""
NOTHING = "no answer"
"""What is written where the context does not answer the question (SQuAD 2.0), which the paper's tasks do not have."""


def check_family(family: str) -> None:
    """Raises UnmaskError for a task that is not answered in words here."""
    if family not in FAMILIES:
        raise UnmaskError(f"A T5 answers --task {', '.join(FAMILIES)} in words; {family} is for encoders.")


class TextTask:
    """Labels, written as words: classification.

    name    what stands before each text, such as "sst2"
    train   rows that say which labels there are
    labels  as the files have them, in their order; None: those of `train`
    metric  what decides which weights are kept, where nothing else is said
    """

    metric = "accuracy"

    def __init__(self, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> None:
        self.name = name
        known = dataset.ordered({row.label for row in train}) if labels is None else labels
        self.labels = tuple(self.word(label) for label in known)

    def source(self, row: Row) -> str:
        """sst2 sentence: … or mrpc sentence1: … sentence2: …"""
        if row.pair is None:
            return f"{self.name} sentence: {row.text}"
        first, second = FIELDS.get(self.name, ("sentence1", "sentence2"))
        return f"{self.name} {first}: {row.text} {second}: {row.pair}"

    def target(self, row: Row) -> str:
        """The label as text."""
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
        """The metrics of the task; `answered` is the share of answers that are such as the task asks for."""
        said, true = self._ids(answers), self._ids([self.target(row) for row in rows])
        return {**metrics.of_classes(said, true, self.labels), "answered": float((said < len(self.labels)).mean())}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        """Label -> precision, recall, f1 and support; nothing where there are no labels."""
        return metrics.per_class(self._ids(answers), self._ids([self.target(row) for row in rows]), self.labels)

    def _ids(self, answers: Sequence[str]) -> np.ndarray:
        """[N] numbers of labels, whatever their case; that of a text which is none of them lies behind the others."""
        ids: dict[str, int] = {label: i for i, label in enumerate(self.labels)}
        folded = {label.casefold(): i for label, i in ids.items()}
        return np.array([ids.get(answer, folded.get(answer.casefold(), len(ids))) for answer in answers])


class TextScores(TextTask):
    """Numbers, written to the nearest fifth. One that cannot be read counts as the mean of the training rows."""

    metric = "pearson"

    def __init__(self, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> None:
        super().__init__(name, train, ())
        self.mean = float(np.mean([float(row.label) for row in train]))

    def target(self, row: Row) -> str:
        return f"{round(float(row.label) / STEP) * STEP:.1f}"

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        numbers = [_number(answer) for answer in answers]
        said = np.array([self.mean if number is None else number for number in numbers])
        found = metrics.of_scores(said, np.array([float(row.label) for row in rows]))
        return {**found, "answered": float(np.mean([number is not None for number in numbers]))}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        return {}


class TextAnswers(TextTask):
    """Answers to questions, written as they stand in the context: the first annotated one, or that there is none."""

    metric = "f1"

    def __init__(self, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> None:
        super().__init__(name, train, ())

    def source(self, row: Row) -> str:
        """squad question: … context: … (appendix D.15)"""
        return f"{self.name} question: {row.text} context: {row.pair}"

    def target(self, row: Row) -> str:
        assert isinstance(row, Question)
        return next(iter(row.golds), NOTHING)

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        questions = [replace(row, id=str(i)) for i, row in enumerate(rows) if isinstance(row, Question)]
        said = {str(i): "" if _alike(answer, NOTHING) else answer for i, answer in enumerate(answers)}
        stands = [_inside(said[q.id], q.pair or "") for q in questions]
        return {**metrics.of_answers(said, questions), "answered": float(np.mean(stands))}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        return {}


class TextChoices(TextTask):
    """The right one of several texts, written as its number."""

    def __init__(self, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> None:
        most = max(len(row.choices) for row in train if isinstance(row, Choices))
        super().__init__(name, train, [str(i) for i in range(most)])

    def source(self, row: Row) -> str:
        """swag choice1: … choice2: … context: … question: …"""
        assert isinstance(row, Choices)
        texts = "".join(f"{self.word(str(i))}: {choice} " for i, choice in enumerate(row.choices))
        question = "" if row.pair is None else f" question: {row.pair}"
        return f"{self.name} {texts}context: {row.text}{question}"

    def word(self, label: str) -> str:
        return f"choice{int(label) + 1}"

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        found = super().scores(answers, rows)
        return {name: found[name] for name in ("accuracy", "answered")}


KINDS: dict[str, type[TextTask]] = dict(zip(FAMILIES, (TextTask, TextScores, TextAnswers, TextChoices), strict=True))


def text_task(family: str, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> TextTask:
    """A task of the toolkit as text. Raises UnmaskError for one that is not answered in words here."""
    check_family(family)
    return KINDS[family](name, train, labels)


def _alike(text: str, other: str) -> bool:
    return text.casefold().split() == other.casefold().split()


def _inside(text: str, context: str) -> bool:
    """Whether words stand in a context, whatever their case and spaces; nothing does."""
    return "".join(text.casefold().split()) in "".join(context.casefold().split())


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(" ", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None

"""Written: labelled rows as pairs of an input text and a target text, for a T5 (Raffel et al. 2020, section 2.4)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from unmask import metrics
from unmask.data.bitext.pairs import Bitext, Report
from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Choices, Question, Row
from unmask.data.text.splitter import shorten
from unmask.data.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from unmask.tasks.forms import Form
    from unmask.tasks.task import Task

STEP = 0.2  # scores are rounded to multiples of it, so that they are few words (section 2.4, on STS-B)
FIELDS = {"qqp": ("question1", "question2"), "qnli": ("question", "sentence")}
WORDS = {
    "sst2": {"0": "negative", "1": "positive"},
    "cola": {"0": "unacceptable", "1": "acceptable"},
    "mrpc": {"0": "not_equivalent", "1": "equivalent"},
    "qqp": {"0": "not_duplicate", "1": "duplicate"},
}
"""Labels that are numbers in the files, as words (appendix D)."""
CHOICE = re.compile(r"choice([0-9]{1,6})")
NOTHING = "no answer"
"""The target where the context does not answer the question (SQuAD 2.0), which the paper's tasks do not have."""


class Wrote(NamedTuple):
    """A text that a model wrote: its tokens, with the probability of each given those before it."""

    text: str
    pieces: Sequence[str]
    probabilities: Sequence[float]

    @property
    def probability(self) -> float:
        return math.prod(self.probabilities)


class Written:
    """The written form of classification: labels as words. `learned` makes one from training rows.

    name    prefix of each input, such as "sst2"
    labels  labels as target texts
    mean    mean score of the training rows
    task    the task that this is the written form of; the task sets it
    scoring fields of the options of that task with which its plain references are scored, for a fair comparison
    metric  the metric that chooses the best weights by default
    alone   the metric that says how right the answer to a single row is
    length  longest text in tokens, by default; None: as for encoders

    `answers` are the texts that a model wrote, one for each part of each row, in order.
    """

    task: ClassVar[type[Task]]
    scoring: ClassVar[dict[str, Any]] = {}
    metric = alone = "accuracy"
    length: int | None = None

    def __init__(self, name: str, labels: Sequence[str] = (), mean: float = 0.0) -> None:
        self.name, self.labels, self.mean = name, tuple(labels), mean

    @classmethod
    def learned(cls, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> Self:
        """The task of some training rows; `labels` as the files have them, in order; None: those of `train`."""
        known = dataset.ordered({row.label for row in train}) if labels is None else labels
        task = cls(name)
        return cls(name, [task.word(label) for label in known])

    @classmethod
    def check_vocabulary(cls, tokenizer: Tokenizer, folder: Path | str) -> None:
        """Raises UnmaskError for a vocabulary without the tokens that this form needs."""

    def settings(self) -> dict[str, Any]:
        """The settings that a folder keeps, for `text_to_text.remembered`."""
        return {"family": self.task.task_name, "name": self.name, "labels": list(self.labels), "mean": self.mean}

    def source(self, row: Row) -> str:
        """The input text: sst2 sentence: … or mrpc sentence1: … sentence2: …"""
        if row.pair is None:
            return f"{self.name} sentence: {row.text}"
        first, second = self._fields
        return f"{self.name} {first}: {row.text} {second}: {row.pair}"

    @property
    def _fields(self) -> tuple[str, str]:
        return FIELDS.get(self.name, ("sentence1", "sentence2"))

    def shortened(self, row: Row, ids: np.ndarray, room: int, tokenizer: Tokenizer) -> np.ndarray | None:
        """At most `room` of the ids [T] of a row's input: as for encoders, the longer text loses its end. None where
        the target would no longer be correct."""
        names = tokenizer.ids([self.source(replace(row, text="", pair=row.pair and ""))])[0]
        if 2 * len(names) > room:  # no text would be left, or not its name
            return None
        second = 0 if row.pair is None else len(tokenizer.ids([f" {self._fields[1]}: {row.pair}"])[0])
        return _without_ends(ids, second, *shorten([len(ids) - second, second], room))

    def target(self, row: Row) -> str:
        """The target text of a row."""
        return self.word(row.label)

    def word(self, label: str) -> str:
        """A label of the files as a target text."""
        return WORDS.get(self.name, {}).get(label, label)

    def fixed(self, rows: Sequence[Row]) -> Sequence[str]:
        """Target texts that do not depend on the input, which the vocabulary must be able to write."""
        return self.labels

    def longest(self, lengths: Sequence[int], tokenizer: Tokenizer) -> tuple[int, float | None]:
        """The most tokens to write, and the most for each input token (None: no such limit).

        lengths  lengths of the targets of the training rows, with their end
        """
        return max(lengths) + 1, None

    def sources(self, row: Row) -> list[str]:
        """The input texts of a row, which may have no label."""
        return [self.source(row)]

    def parts(self, row: Row) -> list[tuple[str, str]]:
        """The (input, target) pairs of a row: one, unless the row must be split."""
        return [(self.source(row), self.target(row))]

    def pairs(self, rows: Dataset) -> Bitext:
        """The inputs and targets of all parts of all rows."""
        found = [(number, *part) for number, row in enumerate(rows) for part in self.parts(row)]
        numbers, sources, targets = map(list, zip(*found, strict=True))
        return Bitext(sources, targets, Report(str(rows.path), len(rows)), numbers)

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of the task; `answered` is the share of answers that are valid for the task."""
        found, true = self._ids(answers), self._ids([self.target(row) for row in rows])
        return {**metrics.of_classes(found, true, self.labels), "answered": float((found < len(self.labels)).mean())}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        """Label -> precision, recall, f1 and support; empty without labels."""
        return metrics.per_class(self._ids(answers), self._ids([self.target(row) for row in rows]), self.labels)

    def named(self, rows: Dataset, owner: str) -> Dataset:
        """The rows with labels as target texts. Raises UnmaskError for a label that `owner` does not know."""
        as_written = tuple(replace(row, label=self.word(row.label)) for row in rows)
        return self.plain().named(replace(rows, rows=as_written), owner)

    def plain(self) -> Task:
        """The task, for its plain references."""
        return self.task.of_labels(self.labels)

    @property
    def form(self) -> Form:
        """How a request sends a row."""
        return self.task.form

    def by_row(self, answers: Sequence[str], rows: Sequence[Row]) -> list[list[str]]:
        """The texts for the parts of each row, of those for all parts."""
        remaining = iter(answers)
        return [[next(remaining) for _ in self.sources(row)] for row in rows]

    def compared(self, row: Row, texts: Sequence[str]) -> tuple[str, str, float]:
        """What a row has, what a model wrote for its parts, and how wrong that is: 0 if it is right."""
        return self.target(row), texts[0], 1 - self.scores(texts, [row])[self.alone]

    def answer(self, row: Row, wrote: Sequence[Wrote]) -> dict[str, Any]:
        """The answer to a row from the outputs of its parts, in the form of `Task.answer`. Its probability is the
        product over all tokens. For an invalid text, the text is the answer, with "answered": False."""
        text, likely = wrote[0].text, {"probability": wrote[0].probability}
        label = self.label(text)
        return {"label": text, **likely, "answered": False} if label is None else {"label": label, **likely}

    def label(self, answer: str) -> str | None:
        """The label that a text names; None for another text."""
        (number,) = self._ids([answer])
        return self.labels[number] if number < len(self.labels) else None

    def _ids(self, answers: Sequence[str]) -> np.ndarray:
        """[N] numbers of labels, whatever their case and spaces; for another text the number of labels."""
        ids: dict[str, int] = {label: i for i, label in enumerate(self.labels)}
        folded = {squeezed(label): i for label, i in ids.items()}
        return np.array([ids.get(answer, folded.get(squeezed(answer), len(ids))) for answer in answers])


class WrittenScores(Written):
    """The written form of regression: numbers, rounded to a fifth. A text that is not a number counts as the mean of
    the training rows."""

    metric = "pearson"

    @classmethod
    def learned(cls, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> Self:
        return cls(name, (), float(np.mean([float(row.label) for row in train])))

    def target(self, row: Row) -> str:
        return f"{round(float(row.label) / STEP) * STEP:.1f}"

    def fixed(self, rows: Sequence[Row]) -> Sequence[str]:
        return sorted({self.target(row) for row in rows})

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        numbers = [self.number(answer) for answer in answers]
        predicted = np.array([self.mean if number is None else number for number in numbers])
        found = metrics.of_scores(predicted, np.array([float(row.label) for row in rows]))
        return {**found, "answered": float(np.mean([number is not None for number in numbers]))}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        return {}

    def compared(self, row: Row, texts: Sequence[str]) -> tuple[str, str, float]:
        """The error is the difference of the scores."""
        number = self.number(texts[0])
        return row.label, texts[0], abs((self.mean if number is None else number) - float(row.label))

    def named(self, rows: Dataset, owner: str) -> Dataset:
        return self.plain().named(rows, owner)

    def answer(self, row: Row, wrote: Sequence[Wrote]) -> dict[str, Any]:
        text = wrote[0].text
        number = self.number(text)
        return {"score": self.mean, **odd(text)} if number is None else {"score": number, **probability_of(wrote)}

    def number(self, answer: str) -> float | None:
        """The number that a text states; None for another text."""
        try:
            number = float(answer.replace(" ", ""))
        except ValueError:
            return None
        return number if math.isfinite(number) else None


class WrittenAnswers(Written):
    """The written form of question answering: the first annotated answer, as in the context, or "no answer"."""

    metric = alone = "f1"

    @classmethod
    def learned(cls, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> Self:
        return cls(name)

    def source(self, row: Row) -> str:
        """The input text: squad question: … context: … (appendix D.15)"""
        return f"{self.name} question: {row.text} context: {row.pair}"

    def shortened(self, row: Row, ids: np.ndarray, room: int, tokenizer: Tokenizer) -> np.ndarray | None:
        """The context loses its end, but not the answer."""
        assert isinstance(row, Question)
        begin, answer = next(iter(row.answers), (0, ""))
        needed = replace(row, pair=(row.pair or "")[: begin + len(answer)])
        return ids[:room] if len(tokenizer.ids([self.source(needed)])[0]) <= room else None

    def target(self, row: Row) -> str:
        assert isinstance(row, Question)
        return next(iter(row.golds), NOTHING)

    def fixed(self, rows: Sequence[Row]) -> Sequence[str]:
        return (NOTHING,) if any(isinstance(row, Question) and not row.possible for row in rows) else ()

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        questions = [replace(row, id=str(i)) for i, row in enumerate(rows) if isinstance(row, Question)]
        texts = {str(i): "" if self.nothing(answer) else answer for i, answer in enumerate(answers)}
        inside = [squeezed(texts[q.id]) in squeezed(q.pair or "") for q in questions]
        return {**metrics.of_answers(texts, questions), "answered": float(np.mean(inside))}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        return {}

    def named(self, rows: Dataset, owner: str) -> Dataset:
        return rows

    def answer(self, row: Row, wrote: Sequence[Wrote]) -> dict[str, Any]:
        """The answer to a question, and its place in the context, if it has one."""
        text, probability = wrote[0].text, wrote[0].probability
        if self.nothing(text) or not text:
            return {"answer": "", "begin": None, "end": None, "probability": probability, "spans": []}
        place = self.place(text, row.pair or "")
        begin, end = place or (None, None)
        found = {"begin": begin, "end": end, "probability": probability}
        span = {"text": text, **found, "score": math.log(max(probability, 1e-300))}
        return {"answer": text, **found, "spans": [span], **({} if place else {"answered": False})}

    @staticmethod
    def nothing(answer: str) -> bool:
        """Whether a text is "no answer"."""
        return answer.casefold().split() == NOTHING.split()

    @staticmethod
    def place(answer: str, context: str) -> tuple[int, int] | None:
        """Begin and end, in characters, of the first occurrence of a text in a context, whatever their case and spaces;
        None where it does not occur."""
        wanted = squeezed(answer)
        kept = [(i, c) for i, whole in enumerate(context) if not whole.isspace() for c in whole.casefold()]
        begin = "".join(c for _, c in kept).find(wanted) if wanted else -1
        return None if begin < 0 else (kept[begin][0], kept[begin + len(wanted) - 1][0] + 1)


class WrittenChoices(Written):
    """The written form of multiple choice: the number of the correct choice."""

    @classmethod
    def learned(cls, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> Self:
        most = max(len(row.choices) for row in train if isinstance(row, Choices))
        return cls(name, [f"choice{i + 1}" for i in range(most)])

    def source(self, row: Row) -> str:
        """The input text: swag choice1: … choice2: … context: … question: …"""
        assert isinstance(row, Choices)
        texts = "".join(f"{self.word(str(i))}: {choice} " for i, choice in enumerate(row.choices))
        return f"{self.name} {texts}context: {row.text}{self._question(row)}"

    def _question(self, row: Row) -> str:
        return "" if row.pair is None else f" question: {row.pair}"

    def shortened(self, row: Row, ids: np.ndarray, room: int, tokenizer: Tokenizer) -> np.ndarray | None:
        """The context loses its end."""
        if len(tokenizer.ids([self.source(replace(row, text=""))])[0]) > room:
            return None
        question = len(tokenizer.ids([self._question(row)])[0])
        return _without_ends(ids, question, room - question, question)

    def word(self, label: str) -> str:
        return f"choice{int(label) + 1}"

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        pairs = [(self.choice(answer, row), row) for answer, row in zip(answers, rows, strict=True)]
        correct = [number is not None and number == int(row.label) for number, row in pairs]
        return {"accuracy": float(np.mean(correct)), "answered": float(np.mean([n is not None for n, _ in pairs]))}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        return {}

    def named(self, rows: Dataset, owner: str) -> Dataset:
        return rows

    def answer(self, row: Row, wrote: Sequence[Wrote]) -> dict[str, Any]:
        assert isinstance(row, Choices)
        choice = self.choice(wrote[0].text, row)
        if choice is None:
            return {"choice": None, **probability_of(wrote), **odd(wrote[0].text)}
        return {"choice": choice, "text": row.choices[choice], **probability_of(wrote)}

    def choice(self, answer: str, row: Row) -> int | None:
        """The number, from 0, of the choice that a text names; None for another text, and for a number out of range."""
        assert isinstance(row, Choices)
        found = CHOICE.fullmatch(squeezed(answer))
        number = int(found[1]) - 1 if found else -1
        return number if 0 <= number < len(row.choices) else None


def _without_ends(ids: np.ndarray, second: int, *kept: int) -> np.ndarray:
    """The first `kept` ids of each of two parts; the second part is the last `second` ids."""
    first = len(ids) - second
    return np.concatenate([ids[:first][: kept[0]], ids[first:][: kept[1]]])


def squeezed(text: str) -> str:
    """A text without spaces and in lower case: a vocabulary of word pieces writes b - per for B-PER."""
    return "".join(text.casefold().split())


def probability_of(wrote: Sequence[Wrote]) -> dict[str, Any]:
    """The probability of the first text that the model wrote."""
    return {"probability": wrote[0].probability}


def odd(text: str) -> dict[str, Any]:
    """The fields of an answer for an invalid text."""
    return {"text": text, "answered": False}

"""Text-to-text: labelled rows as pairs of texts, of which a T5 writes the second (Raffel et al. 2020, section 2.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unmask import metrics
from unmask.data import dataset
from unmask.data.bitext import Bitext, Report
from unmask.data.dataset import Dataset
from unmask.data.rows import Choices, Question, Row
from unmask.data.subwords import Subwords
from unmask.data.tokenizer_splitter import SENTINEL, SENTINELS, sentinel
from unmask.errors import UnmaskError

FAMILIES = ("classification", "regression", "question-answering", "multiple-choice", "tagging")
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
    length  longest text in tokens, where nothing else is said; None: as for encoders

    `answers` are texts as they were written, one for each part of each row, in order.
    """

    metric = "accuracy"
    length: int | None = None

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

    def parts(self, row: Row) -> list[tuple[str, str]]:
        """What is read of a row and what is to be written: one pair of texts, where it need not be split."""
        return [(self.source(row), self.target(row))]

    def pairs(self, rows: Dataset) -> Bitext:
        """What is read and what is to be written, for every part of every row."""
        found = [(number, *part) for number, row in enumerate(rows) for part in self.parts(row)]
        numbers, sources, targets = map(list, zip(*found, strict=True))
        return Bitext(sources, targets, Report(str(rows.path), len(rows)), numbers)

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


class TextTags(TextTask):
    """A tag for every word, behind the sentinel that stands before the word in what is read ("Sentinel + Tag", Raman
    et al. 2022, "Transforming Sequence Tagging Into A Seq2Seq Task", section 3).

    A sentence of more words than there are sentinels is read in parts. A word without an answer is outside of all
    spans, or wrong.
    """

    length = 512

    def __init__(self, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> None:
        known = dataset.ordered({tag for row in train for tag in row.tags}) if labels is None else labels
        super().__init__(name, train, known)
        rest = metrics.outside(self.labels)
        self.metric = "f1" if metrics.are_iob(self.labels) or rest else "accuracy"
        self.rest = rest or ""
        self._tags = {_squeezed(label): label for label in reversed(self.labels)} | {tag: tag for tag in self.labels}

    def parts(self, row: Row) -> list[tuple[str, str]]:
        """tagging sentence: <extra_id_0> Ada <extra_id_1> sings, of which <extra_id_0> B-PER <extra_id_1> O is written;
        before the sentence, where there is one, the predicate, with its sentinel."""
        return [(self._read(row, begin), self._written(row.tags, begin)) for begin in self._begins(row)]

    def source(self, row: Row) -> str:
        """The first part of a sentence."""
        return self._read(row, 0)

    def target(self, row: Row) -> str:
        return self._written(row.tags, 0)

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        said = self._sentences(answers, rows)
        found = metrics.of_tags(self._filled(said), [row.tags for row in rows], self.labels)
        return {**found, "answered": float(np.mean([tag is not None for tags in said for tag in tags]))}

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        said = self._filled(self._sentences(answers, rows))
        found = metrics.per_tag(said, [row.tags for row in rows], self.labels)
        return {tag: row for tag, row in found.items() if tag}

    def _begins(self, row: Row) -> range:
        return range(0, len(row.words), SENTINELS)

    def _read(self, row: Row, begin: int) -> str:
        marked = [f"{sentinel(i)} {word}" for i, word in enumerate(row.words[begin : begin + SENTINELS])]
        if row.predicate is None:
            return f"{self.name} sentence: {' '.join(marked)}"
        here = row.predicate - begin
        predicate = marked[here] if 0 <= here < len(marked) else row.words[row.predicate]
        return f"{self.name} predicate: {predicate} sentence: {' '.join(marked)}"

    @staticmethod
    def _written(tags: Sequence[str], begin: int) -> str:
        return " ".join(f"{sentinel(i)} {tag}" for i, tag in enumerate(tags[begin : begin + SENTINELS]))

    def _sentences(self, answers: Sequence[str], rows: Sequence[Row]) -> list[list[str | None]]:
        """The tag of each word of each row; None where it has no answer."""
        remaining, sentences = iter(answers), []
        for row in rows:
            tags: list[str | None] = []
            for begin in self._begins(row):
                found = self._answered(next(remaining))
                tags += [found.get(sentinel(i)) for i in range(min(SENTINELS, len(row.words) - begin))]
            sentences.append(tags)
        return sentences

    def _answered(self, answer: str) -> dict[str, str]:
        """Sentinel -> the tag behind it, where it is one; of two answers the first counts."""
        parts = SENTINEL.split(answer)[1:]  # what stands before the first sentinel answers nothing
        found: dict[str, str] = {}
        for mark, said in zip(parts[::2], parts[1::2], strict=True):
            tag = self._tags.get(said.strip(), self._tags.get(_squeezed(said)))
            if tag is not None:
                found.setdefault(mark, tag)
        return found

    def _filled(self, said: Sequence[Sequence[str | None]]) -> list[list[str]]:
        return [[self.rest if tag is None else tag for tag in tags] for tags in said]


KINDS: dict[str, type[TextTask]] = dict(
    zip(FAMILIES, (TextTask, TextScores, TextAnswers, TextChoices, TextTags), strict=True)
)


def text_task(family: str, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> TextTask:
    """A task of the toolkit as text. Raises UnmaskError for one that is not answered in words here."""
    check_family(family)
    return KINDS[family](name, train, labels)


def check_written(labels: Sequence[str], tokenizer: Subwords, folder: Path | str) -> None:
    """Raises UnmaskError where a vocabulary cannot write a label, or writes two alike: no answer could be right."""
    written: dict[str, str] = {}
    for label in labels:
        text = tokenizer.target.decode(tokenizer.target.encode(label))
        if _squeezed(text) != _squeezed(label):
            raise UnmaskError(
                f"The vocabulary of {folder} cannot write the label '{label}', of which '{text}' is left: call it "
                "otherwise in the files, or take a model whose vocabulary has its characters."
            )
        if (other := written.setdefault(text, label)) != label:
            raise UnmaskError(
                f"The vocabulary of {folder} writes the labels '{other}' and '{label}' alike, as '{text}': call one "
                "of them otherwise in the files."
            )


def check_sentinels(tokenizer: Subwords, folder: Path | str) -> None:
    """Raises UnmaskError for a vocabulary without the sentinels that words are told apart by."""
    if len(tokenizer.sentinels) < SENTINELS:
        raise UnmaskError(
            f"Tags are written behind {sentinel(0)} to {sentinel(SENTINELS - 1)}, which the vocabulary of {folder} "
            "does not have: take a T5 as it was pre-trained."
        )


def _alike(text: str, other: str) -> bool:
    return text.casefold().split() == other.casefold().split()


def _inside(text: str, context: str) -> bool:
    """Whether words stand in a context, whatever their case and spaces; nothing does."""
    return _squeezed(text) in _squeezed(context)


def _squeezed(text: str) -> str:
    """A text without its spaces, in small letters: a vocabulary of word pieces writes b - per for B-PER."""
    return "".join(text.casefold().split())


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(" ", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None

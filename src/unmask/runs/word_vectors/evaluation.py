"""Scores of word vectors: accuracy on analogy questions, and correlation with human similarity scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.lines import lines
from unmask.errors import UnmaskError, plural
from unmask.metrics.scores import of_scores
from unmask.runs.word_vectors.vectors import WordVectors

QUESTIONS = 64  # questions answered at a time
FREQUENT = 300_000  # most frequent words that take part in analogies, as is usual


@dataclass(frozen=True)
class Section:
    """Analogy questions of one kind. The question `a b c d` is: what is to c as b is to a? The answer is d.

    correct  number of questions answered correctly
    asked    number of questions whose four words all have vectors
    total    number of questions in the file
    """

    name: str
    correct: int
    asked: int
    total: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the accuracy on the questions asked (None if there are none), and their share of all."""
        accuracy = self.correct / self.asked if self.asked else None
        asked = self.asked / self.total if self.total else 0.0
        return {"section": self.name, "accuracy": accuracy, "correct": self.correct, "asked": self.asked,
                "total": self.total, "asked_share": asked}  # fmt: skip


@dataclass(frozen=True)
class Agreement:
    """The correlation of cosine similarities of pairs of words with human scores.

    spearman, pearson  correlations over the pairs that have vectors; 0 if there are none
    pairs, unknown     number of pairs in the file, and of pairs that have a word without a vector
    """

    spearman: float
    pearson: float
    pairs: int
    unknown: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the share of unknown pairs."""
        return {"spearman": self.spearman, "pearson": self.pearson, "pairs": self.pairs, "unknown": self.unknown,
                "unknown_share": self.unknown / self.pairs}  # fmt: skip


def analogies(
    vectors: WordVectors, path: str | Path, *, most: int = FREQUENT, encoding: str | None = None
) -> list[Section]:
    """The sections of a file in the format of `questions-words.txt`, and "total" last (Mikolov et al. 2013a, 4.1).

    most      only the first `most` words, which are the most frequent, can be in a question or an answer
    encoding  as for `data.files.lines.lines`

    Case is ignored; of words that differ only in case, the first one is used. The three words of a question are not
    candidates for its answer. Raises UnmaskError that names a line that is not a question.
    """
    folded = _Folded(vectors, most)
    read = _sections(Path(path), encoding)
    sections = [Section(name, *folded.answer(questions), len(questions)) for name, questions in read]
    if not sections:
        raise UnmaskError(f"{path} holds no questions.")
    correct, asked, total = (sum(getattr(s, name) for s in sections) for name in ("correct", "asked", "total"))
    return [*sections, Section("total", correct, asked, total)]


def agreement(
    vectors: WordVectors, path: str | Path, *, most: int = FREQUENT, encoding: str | None = None
) -> Agreement:
    """Agreement with a file of pairs and scores: two words and a number a line, separated by tabs, commas or spaces.

    The first line may name the columns; lines that begin with # are ignored. Case, `most` and `encoding` are as in
    `analogies`. Raises UnmaskError that names a line that is not a pair.
    """
    folded = _Folded(vectors, most)
    cosines, scores, pairs = [], [], 0
    for a, b, score in _pairs(Path(path), encoding):
        pairs += 1
        first, second = folded.index.get(a), folded.index.get(b)
        if first is not None and second is not None:
            cosines.append(float(folded.unit_VD[first] @ folded.unit_VD[second]))
            scores.append(score)
    if not pairs:
        raise UnmaskError(f"{path} holds no pairs.")
    found = of_scores(np.array(cosines), np.array(scores))
    return Agreement(found["spearman"], found["pearson"], pairs, pairs - len(scores))


class _Folded:
    """Vectors by words without case; of words that differ only in case, the vector of the first."""

    def __init__(self, vectors: WordVectors, most: int) -> None:
        self.unit_VD = vectors.unit(slice(most))
        self.index: dict[str, int] = {}
        self.fold = np.array([self.index.setdefault(_fold(w), i) for i, w in enumerate(vectors.words[:most])], np.int64)

    def answer(self, questions: Sequence[tuple[str, ...]]) -> tuple[int, int]:
        """Number of questions answered correctly, and number of questions whose words all have vectors."""
        known = [tuple(self.index[w] for w in q) for q in questions if all(w in self.index for w in q)]
        correct = 0
        for begin in range(0, len(known), QUESTIONS):
            words_Q4 = np.array(known[begin : begin + QUESTIONS])
            a_QD, b_QD, c_QD = (self.unit_VD[words_Q4[:, i]] for i in range(3))
            scores_QV = (b_QD - a_QD + c_QD) @ self.unit_VD.T
            for scores_V, words in zip(scores_QV, words_Q4[:, :3], strict=True):
                scores_V[words] = -np.inf
                while self.fold[best := int(scores_V.argmax())] in words and scores_V[best] > -np.inf:
                    scores_V[best] = -np.inf  # one of the three words in another case
            correct += int((self.fold[scores_QV.argmax(1)] == words_Q4[:, 3]).sum())
        return correct, len(known)


def _sections(path: Path, encoding: str | None) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Name and questions of each section; questions before the first name form a section of their own."""
    name = "questions"
    questions: list[tuple[str, ...]] = []
    for number, line in lines(path, encoding=encoding):
        words = tuple(_fold(line).split())
        if line.startswith(":"):
            if questions:
                yield name, questions
            name, questions = line[1:].strip(), []
        elif len(words) == 4:
            questions.append(words)
        elif words:
            raise UnmaskError(
                f"{path}:{number} has {plural(len(words), 'word')}; a question has four, a section begins with a colon."
            )
    if questions:
        yield name, questions


def _pairs(path: Path, encoding: str | None) -> Iterator[tuple[str, str, float]]:
    first = True
    for number, line in lines(path, encoding=encoding):
        fields = [field.strip() for field in _separated(line)]
        if line.startswith("#") or not any(fields):
            continue
        score = _finite(fields[2]) if len(fields) == 3 else None
        if score is not None:
            yield _fold(fields[0]), _fold(fields[1]), score
        elif not first or len(fields) < 3:
            raise UnmaskError(f"{path}:{number} is not two words and a number.")
        first = False


def _separated(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split(",") if "," in line else line.split()


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _fold(word: str) -> str:
    """A word without case, in capitals as in the reference implementation."""
    return word.upper()

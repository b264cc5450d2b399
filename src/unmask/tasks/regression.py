"""Regression: a score for a text or a pair.

Shapes: N rows, M targets, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from unmask import metrics
from unmask.data.labelled.dataset import Dataset, scores
from unmask.data.labelled.glue import Benchmark
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.tasks.lexical import regression
from unmask.tasks.lexical.references import PARTS, VECTORS, Vectors, regression_on_words
from unmask.tasks.reading import read_table
from unmask.tasks.rows import TextRows
from unmask.tasks.task import Say, Score, Task
from unmask.tasks.texts import TextOptions, TextTask
from unmask.tasks.written import WrittenScores
from unmask.types import Batch, Head, Loss


class Regression(TextTask):
    """Predict a score for a text or a pair: squared error of one output at [CLS], as BERT does for STS-B."""

    task_name = name = "regression"
    heads: Mapping[str, Head] = {"regression": Head("sequence", 1)}
    metric = "pearson"
    outcomes = "score"
    rows_class = TextRows
    options_class = TextOptions
    panel, gives = "classify", "a score"
    rows_are = "texts with a score"
    references_are = f"ridge regression on {PARTS}"
    written = WrittenScores

    @classmethod
    def read_rows(cls, path: Path, rows: TextRows, *, scoring: bool = False) -> Dataset:
        return read_table(path, cls.task_name, rows)

    @classmethod
    def fits(cls, rows: Dataset) -> bool:
        return not rows.tagged and not rows.several

    @classmethod
    def learns(cls, benchmark: Benchmark) -> bool:
        return not benchmark.labels

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: TextOptions, say: Say, *, held_out: bool = False) -> Task:
        train = sets["train"]
        values, *_ = [scores(rows) for rows in sets.values()]
        low, high = min(values), max(values)
        if low == high:
            raise UnmaskError(f"{train.path} has a single score, {low:g}: there is nothing to learn.")
        say(f"Scores from {low:g} to {high:g}, {np.mean(values):.3g} on average.")
        if max(abs(low), abs(high)) > 20:
            say("Scores this large are learned slowly; divide them so that they are between 0 and about 5.")
        return cls(options.long)

    def value(self, row: Row) -> np.ndarray:
        return np.array([float(row.label) if row.label else 0.0], np.float32)

    def squash(self, logits: Tensor) -> Tensor:
        return logits

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Sum of squared errors; the metric `error` sums their absolute values."""
        target = batch.targets[self.name]
        errors = model.answer(self.name, hidden_BTD, target.places, batch).float().squeeze(-1) - target.values.float()
        return Loss(errors.square().sum(), errors.numel(), {"error": errors.detach().abs().sum()})

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        true = np.array([float(row.label) for row in rows])
        found = metrics.of_scores(np.concatenate(answers)[:, 0].astype(np.float64), true)
        return {**found, "loss": found["rmse"] ** 2}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        mean = float(np.mean([float(row.label) for row in train]))
        return metrics.of_scores(np.full(len(rows), mean), np.array([float(row.label) for row in rows]))

    def is_collapsed(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> bool:
        """Whether the predicted scores differ by less than a hundredth of their size, but those of the rows by more."""
        return _alike(np.concatenate(answers)) and not _alike(np.array([float(row.label) for row in rows]))

    def named(self, rows: Dataset, owner: str) -> Dataset:
        scores(rows)
        return rows

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, vectors) for name, vectors in VECTORS.items()}

    def _reference(self, train: Sequence[Row], vectors: Vectors) -> Score:
        true = np.concatenate([self.value(row) for row in train])
        answers = regression_on_words(train, vectors, lambda found: regression.scores(found, true))
        return lambda rows: self.metrics(answers(rows), rows)

    def divergence(self, student_MC: Tensor, teacher_MC: Tensor, batch: Batch, temperature: float) -> Tensor:
        """The squared error: a score has no probability to soften."""
        return (student_MC - teacher_MC).square().sum()

    def answer(self, row: Row, found: np.ndarray) -> dict[str, Any]:
        """{"score"}"""
        return {"score": float(found[0, 0])}

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        return f"{answer['score']:.3f}  {text}"


def _alike(scores: np.ndarray) -> bool:
    """Whether scores differ by less than a hundredth of their size."""
    return bool(np.ptp(scores) < 0.01 * max(1.0, np.abs(scores).max()))

"""OneScore: tasks with one number for each row, whatever the rows are.

Shapes: N rows, M targets, C outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from unmask import metrics
from unmask.data.labelled.dataset import Dataset, scores
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.tasks.task import Say, Task
from unmask.types import Batch, Loss


class OneScore(Task):
    """Predict the score of a row: squared error of one output, as BERT does for STS-B.

    centre, scale  the model learns (score - centre) / scale
    """

    metric = "pearson"
    outcomes = "score"
    gives = "a score"
    centre, scale = 0.0, 1.0

    @classmethod
    def scores_of(cls, sets: Mapping[str, Dataset], say: Say) -> list[float]:
        """The training scores; their range is reported with `say`. Raises UnmaskError where there is only one, and for
        labels of any set that are no numbers."""
        train = sets["train"]
        values, *_ = [scores(rows) for rows in sets.values()]
        low, high = min(values), max(values)
        if low == high:
            raise UnmaskError(f"{train.path} has a single score, {low:g}: there is nothing to learn.")
        say(f"Scores from {low:g} to {high:g}, {np.mean(values):.3g} on average.")
        return values

    def value(self, row: Row) -> np.ndarray:
        return np.array([float(row.label) if row.label else 0.0], np.float32)

    def squash(self, logits: Tensor) -> Tensor:
        return logits * self.scale + self.centre

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Sum of squared errors in units of `scale`; the metric `error` sums their absolute values."""
        target = batch.targets[self.name]
        wanted_M = (target.values.float() - self.centre) / self.scale
        errors_M = model.answer(self.name, hidden_BTD, target.places, batch).float().squeeze(-1) - wanted_M
        return Loss(errors_M.square().sum(), errors_M.numel(), {"error": errors_M.detach().abs().sum()})

    def found_scores(self, answers: Sequence[Any]) -> np.ndarray:
        """[N] float64: the scores in some answers."""
        return np.concatenate(answers)[:, 0].astype(np.float64)

    def metrics(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, float]:
        """As `metrics.of_scores`; `loss` is the mean squared error in units of `scale`."""
        found = metrics.of_scores(self.found_scores(answers), np.array([float(row.label) for row in rows]))
        return {**found, "loss": (found["rmse"] / self.scale) ** 2}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        mean = float(np.mean([float(row.label) for row in train]))
        return metrics.of_scores(np.full(len(rows), mean), np.array([float(row.label) for row in rows]))

    def is_collapsed(self, answers: Sequence[Any], rows: Sequence[Row]) -> bool:
        """Whether the predicted scores differ by less than a hundredth of their size, but those of the rows by more."""
        return _alike(self.found_scores(answers)) and not _alike(np.array([float(row.label) for row in rows]))

    def named(self, rows: Dataset, owner: str) -> Dataset:
        scores(rows)
        return rows

    def divergence(self, student_MC: Tensor, teacher_MC: Tensor, batch: Batch, temperature: float) -> Tensor:
        """The squared error: a score has no probability to soften."""
        return (student_MC - teacher_MC).square().sum()

    def answer(self, row: Row, found: Any) -> dict[str, Any]:
        """{"score"}"""
        return {"score": float(self.found_scores([found])[0])}

    def compared(self, row: Row, found: Any) -> tuple[str, str, float]:
        """The error is the difference of the scores."""
        score = self.answer(row, found)["score"]
        return row.label, f"{score:.3f}", abs(score - float(row.label))

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        return f"{answer['score']:.3f}  {text}"


def _alike(scores: np.ndarray) -> bool:
    """Whether scores differ by less than a hundredth of their size."""
    return bool(np.ptp(scores) < 0.01 * max(1.0, np.abs(scores).max()))

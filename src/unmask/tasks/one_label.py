"""OneLabel: tasks with one label for each row, whatever the rows are.

Shapes: N rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from unmask import metrics
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.recordings.segments import Framed
from unmask.errors import UnmaskError
from unmask.kernels.linear import Logits
from unmask.tasks.balance import ClassLoss
from unmask.tasks.labels import (
    SHOWN,
    different,
    example,
    label_id,
    mean_cross_entropy,
    right_and_wrong,
)
from unmask.tasks.reading import with_labels
from unmask.tasks.task import Task
from unmask.types import Head, Loss


class OneLabel(Task):
    """Predict which of the labels a row has: cross-entropy at the first place of its sequence.

    weighing  weights of classes in the loss, or the focal loss; None: plain cross-entropy
    """

    one_label = True
    gives = "labels"

    def __init__(self, labels: Sequence[str], *, weighing: ClassLoss | None = None) -> None:
        self.labels = different(labels)
        self.heads: Mapping[str, Head] = {self.name: Head("sequence", len(self.labels))}
        self.metric = "accuracy"
        self.weighing = weighing
        self._ids = {label: i for i, label in enumerate(self.labels)}

    def value(self, row: Row) -> np.ndarray:
        return np.array([label_id(self._ids, row.label, row) if row.label else 0])

    def of_answers(self, logits: Tensor | Logits, values_M: Tensor) -> Loss:
        if self.weighing is None:
            return super().of_answers(logits, values_M)
        return self.weighing((logits.made() if isinstance(logits, Logits) else logits).float(), values_M)

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        return self.scores(*self._arrays(answers, rows))

    def scores(self, probabilities: np.ndarray, true: np.ndarray) -> dict[str, float]:
        """The metrics of probabilities [N, C] for true classes [N]."""
        found = metrics.of_classes(probabilities.argmax(1), true, self.labels)
        return {**found, "loss": mean_cross_entropy(probabilities, true)}

    @property
    def notice(self) -> str:
        return f"f1 is that of the label {self.labels[1]}." if len(self.labels) == 2 else ""

    def report(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        probabilities, true = self._arrays(answers, rows)
        return metrics.per_class(probabilities.argmax(1), true, self.labels)

    def confusion(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, dict[str, int]]:
        probabilities, true = self._arrays(answers, rows)
        return metrics.confusion(probabilities.argmax(1), true, self.labels)

    def drawn(self, row: Row) -> np.ndarray | None:
        """A row as a picture [H, W, C] uint8; None for one that cannot be shown as a picture."""
        return None

    def examples(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The most confident mistakes, then rows with a correct answer, SHOWN of each at most."""
        probabilities, true = self._arrays(answers, rows)
        shown = list[dict[str, Any]]()
        for i in right_and_wrong(probabilities, true, SHOWN):
            if (pixels_HWC := self.drawn(rows[i])) is None:
                break
            label, predicted = self.labels[true[i]], self.labels[probabilities[i].argmax()]
            shown.append(example(rows[i], label, predicted, float(probabilities[i].max()), pixels_HWC))
        return shown

    def framed(self, rows: Sequence[Row], processor: Any) -> list[Framed]:
        """The frames of recordings that lie in the times of rows. Raises UnmaskError for rows without times."""
        raise UnmaskError("Only recordings have frames with times: leave --pooling frames out.")

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        commonest = np.bincount(self._true(train), minlength=len(self.labels)).argmax()
        true = self._true(rows)
        return metrics.of_classes(np.full(len(true), commonest), true, self.labels)

    def is_collapsed(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> bool:
        probabilities, true = self._arrays(answers, rows)
        return len(set(probabilities.argmax(1).tolist())) == 1 and len(set(true.tolist())) > 1

    def _true(self, rows: Sequence[Row]) -> np.ndarray:
        return np.array([label_id(self._ids, row.label, row) for row in rows])

    def _arrays(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities [N, C] and true class ids [N]."""
        return np.concatenate(answers), self._true(rows)

    def named(self, rows: Dataset, owner: str) -> Dataset:
        return with_labels(rows, self.labels, owner)

    def answer(self, row: Row, found: np.ndarray) -> dict[str, Any]:
        """{"label", "probability", "scores": {label: probability}}"""
        scores = {label: float(p) for label, p in zip(self.labels, found[0], strict=True)}
        label = self.labels[int(found[0].argmax())]
        return {"label": label, "probability": scores[label], "scores": scores}

    def compared(self, row: Row, found: Any) -> tuple[str, str, float] | None:
        """The error is the probability of the wrong label."""
        answer = self.answer(row, found)
        return row.label, answer["label"], 0.0 if answer["label"] == row.label else answer["probability"]

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        return f"{answer['label']}  {answer['probability']:.3f}  {text}"

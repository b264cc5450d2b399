"""Classification: one label for a text or a pair.

Shapes: N rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from unmask import metrics
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.glue import Benchmark
from unmask.data.labelled.rows import Row
from unmask.models.model import Model
from unmask.tasks.balance import ClassLoss, Weighing
from unmask.tasks.labels import different, label_id, mean_cross_entropy, one_class
from unmask.tasks.lengths import Long
from unmask.tasks.lexical import regression
from unmask.tasks.lexical.references import PARTS, VECTORS, Vectors, regression_on_words
from unmask.tasks.prompting import Prompting
from unmask.tasks.reading import counts_of, labels_of, read_table, with_labels
from unmask.tasks.rows import TextRows
from unmask.tasks.task import Say, Score, Task
from unmask.tasks.texts import TextOptions, TextTask
from unmask.tasks.written import Written
from unmask.types import Batch, Head, Loss


@dataclass(frozen=True, kw_only=True)
class ClassificationRows(TextRows):
    """Texts, or pairs of them, with one label.

    stratify  hold out of each class its share, not rows at random
    """

    stratify: bool = True

    LEARNING: ClassVar[tuple[str, ...]] = (*TextRows.LEARNING, "stratify")
    BEFORE: ClassVar[dict[str, Any]] = {"stratify": False}


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(Weighing, TextOptions):
    """What a classifier is learned with."""


class Classification(TextTask):
    """Which of the labels a text, or a pair of texts, has: cross-entropy at [CLS].

    weighing  how much each class, and what is right already, counts in the loss
    """

    task_name = name = "classification"
    rows_class = ClassificationRows
    options_class = ClassificationOptions
    one_label = True
    panel, gives = "classify", "labels"
    rows_are = "texts with a label"
    references_are = f"logistic regression on {PARTS}"
    written = Written
    prompting = Prompting

    @classmethod
    def read_rows(cls, path: Path, rows: ClassificationRows, *, scoring: bool = False) -> Dataset:
        return read_table(path, cls.task_name, rows)

    @classmethod
    def fits(cls, rows: Dataset) -> bool:
        return not rows.tagged and not rows.several

    @classmethod
    def learns(cls, benchmark: Benchmark) -> bool:
        return bool(benchmark.labels)

    @classmethod
    def learned(
        cls, sets: Mapping[str, Dataset], options: ClassificationOptions, say: Say, *, held_out: bool = False
    ) -> Task:
        labels = labels_of(sets, say, held_out=held_out)
        if len(only := sets["dev"].labels) == 1:
            say(f"Every dev row has the label {only[0]}, so that their scores tell nothing about the others.")
        weighing = options.weighing(counts_of(sets["train"], labels))
        return cls(labels, weighing=weighing, long=options.long)

    def __init__(self, labels: Sequence[str], *, weighing: ClassLoss | None = None, long: Long = "truncate") -> None:
        super().__init__(long)
        self.labels = different(labels)
        self.heads: Mapping[str, Head] = {self.name: Head("sequence", len(self.labels))}
        self.metric = "accuracy"
        self.weighing = weighing
        self._ids = {label: i for i, label in enumerate(self.labels)}

    def value(self, row: Row) -> np.ndarray:
        return np.array([label_id(self._ids, row.label, row) if row.label else 0])

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        if self.weighing is None:
            return super().score(model, hidden_BTD, batch)
        target = batch.targets[self.name]
        return self.weighing(model.answer(self.name, hidden_BTD, target.places, batch).float(), target.values)

    def normalise(self, answer: np.ndarray) -> np.ndarray:
        return np.asarray(answer / answer.sum(-1, keepdims=True))

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        probabilities, true = self._arrays(answers, rows)
        return {
            **metrics.of_classes(probabilities.argmax(1), true, self.labels),
            "loss": mean_cross_entropy(probabilities, true),
        }

    def report(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        probabilities, true = self._arrays(answers, rows)
        return metrics.per_class(probabilities.argmax(1), true, self.labels)

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        commonest = np.bincount(self._true(train), minlength=len(self.labels)).argmax()
        true = self._true(rows)
        return metrics.of_classes(np.full(len(true), commonest), true, self.labels)

    def is_collapsed(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> bool:
        return one_class(answers) and len(set(self._true(rows))) > 1

    def _true(self, rows: Sequence[Row]) -> np.ndarray:
        return np.array([label_id(self._ids, row.label, row) for row in rows])

    def _arrays(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities [N, C] and true class ids [N]."""
        return np.concatenate(answers), self._true(rows)

    def named(self, rows: Dataset, owner: str) -> Dataset:
        return with_labels(rows, self.labels, owner)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, vectors) for name, vectors in VECTORS.items()}

    def _reference(self, train: Sequence[Row], vectors: Vectors) -> Score:
        true, count = self._true(train), len(self.labels)
        answers = regression_on_words(train, vectors, lambda found: regression.classes(found, true, count))
        return lambda rows: self.metrics(answers(rows), rows)

    def answer(self, row: Row, found: np.ndarray) -> dict[str, Any]:
        """{"label", "probability", "scores": {label: probability}}"""
        scores = {label: float(p) for label, p in zip(self.labels, found[0], strict=True)}
        label = self.labels[int(found[0].argmax())]
        return {"label": label, "probability": scores[label], "scores": scores}

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        return f"{answer['label']}  {answer['probability']:.3f}  {text}"

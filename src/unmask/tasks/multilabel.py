"""Multi-label classification: any number of labels for a text, or none.

Shapes: N rows, M texts of a batch, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import metrics
from unmask.data.labelled.dataset import Dataset, separator_in
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.tasks.balance import Weighing
from unmask.tasks.labels import different, label_id
from unmask.tasks.lengths import Long
from unmask.tasks.lexical import regression
from unmask.tasks.lexical.references import PARTS, VECTORS, Vectors, regression_on_words
from unmask.tasks.reading import counts_of, labels_of, read_table, table, with_labels
from unmask.tasks.rows import TextRows
from unmask.tasks.task import Say, Score, Task
from unmask.tasks.texts import TextOptions, TextTask
from unmask.tasks.written_labels import WrittenLabels
from unmask.types import Batch, Head, Loss


@dataclass(frozen=True, kw_only=True)
class MultiLabelRows(TextRows):
    """Texts, or pairs of them, with any number of labels.

    several  separator of the labels of a text in one cell, such as |
    """

    several: str | None = None


@dataclass(frozen=True, kw_only=True)
class MultiLabelOptions(Weighing, TextOptions):
    """Options for the training of a classifier with several labels."""

    def positive(self, counts: Sequence[int], rows: int) -> tuple[float, ...] | None:
        """For each label, the number of texts without it for each text with it, as a weight of the latter; None for
        equal weights. Raises UnmaskError for the focal loss."""
        if self.balance == "focal":
            raise UnmaskError("The focal loss is for one label a text; use --balance weights for several.")
        if self.balance == "none":
            return None
        return tuple((rows - count) / max(1, count) for count in counts)


class MultiLabel(TextTask):
    """Predict which labels a text has, any number of them or none: binary cross-entropy for each label.

    A label is predicted if its probability is above 0.5. Every label of every text is a target, as in
    `BertForSequenceClassification`; `positive` [C] multiplies the loss where a text has the label.
    """

    task_name = name = "multilabel"
    also_called = ("multi-label", "multilabel-classification", "multi-label-classification")
    metric = "micro_f1"
    outcomes = "several"
    rows_class = MultiLabelRows
    options_class = MultiLabelOptions
    panel, gives = "classify", "several labels"
    pipeline = "text-classification"
    rows_are = "several labels for a text"
    references_are = f"logistic regression, one for each label, on {PARTS}"
    written = WrittenLabels

    @classmethod
    def read_rows(cls, path: Path, rows: MultiLabelRows, *, scoring: bool = False) -> Dataset:
        found = table(path, rows)
        if cls.fits(found) or found.tagged:
            return read_table(path, cls.task_name, rows)
        if marked := separator_in(found):
            mark, cell = marked
            raise UnmaskError(f"Cells of {path} such as '{cell}' seem to have several labels: set --several '{mark}'.")
        raise UnmaskError(
            f"{path} has texts with one label, which {cls.task_name} cannot use: set --several to the separator of "
            "labels, or choose another --task."
        )

    @classmethod
    def fits(cls, rows: Dataset) -> bool:
        return rows.several

    @classmethod
    def learned(
        cls, sets: Mapping[str, Dataset], options: MultiLabelOptions, say: Say, *, held_out: bool = False
    ) -> Task:
        labels, train = labels_of(sets, say, held_out=held_out, several=True), sets["train"]
        positive = options.positive(counts_of(train, labels), len(train))
        return cls(labels, positive=positive, long=options.long)

    def __init__(
        self, labels: Sequence[str], *, positive: Sequence[float] | None = None, long: Long = "truncate"
    ) -> None:
        super().__init__(long)
        self.labels = different(labels)
        self.heads: Mapping[str, Head] = {self.name: Head("sequence", len(self.labels))}
        self.positive = positive
        self._ids = {label: i for i, label in enumerate(self.labels)}

    def value(self, row: Row) -> np.ndarray:
        """[C]: 1 for each label that the row has."""
        value = np.zeros(len(self.labels), np.int64)
        value[[label_id(self._ids, label, row) for label in row.labels]] = 1
        return value

    def places(self, batch: Batch) -> Tensor:
        return batch.targets[self.name].places[:: len(self.labels)].contiguous()

    def squash(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        logits_MC = model.answer(self.name, hidden_BTD, self.places(batch), batch).float()
        true_MC = batch.targets[self.name].values.view_as(logits_MC)
        weights = None if self.positive is None else logits_MC.new_tensor(self.positive)
        losses_MC = F.binary_cross_entropy_with_logits(logits_MC, true_MC.float(), reduction="none", pos_weight=weights)
        correct = ((logits_MC.detach() > 0) == (true_MC > 0)).sum()
        return Loss(losses_MC.sum(), true_MC.numel(), {"correct": correct})

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        probabilities, true = np.concatenate(answers).astype(np.float64), self._true(rows)
        chosen = np.clip(np.where(true, probabilities, 1 - probabilities), 1e-12, 1)
        return {**metrics.of_label_sets(probabilities > 0.5, true), "loss": float(-np.log(chosen).mean())}

    def report(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        return metrics.per_label(np.concatenate(answers) > 0.5, self._true(rows), self.labels)

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """The metrics of one answer: all labels that more than half of the training rows have."""
        usual = self._true(train).mean(0) > 0.5
        return metrics.of_label_sets(np.tile(usual, (len(rows), 1)), self._true(rows))

    def is_collapsed(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> bool:
        predicted, true = np.concatenate(answers) > 0.5, self._true(rows)
        return bool((predicted == predicted[:1]).all() and (true != true[:1]).any())

    def _true(self, rows: Sequence[Row]) -> np.ndarray:
        """[N, C] bool: the labels of the rows."""
        return np.stack([self.value(row) for row in rows]) > 0

    def named(self, rows: Dataset, owner: str) -> Dataset:
        return with_labels(rows, self.labels, owner)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, vectors) for name, vectors in VECTORS.items()}

    def _reference(self, train: Sequence[Row], vectors: Vectors) -> Score:
        true = np.stack([self.value(row) for row in train])
        answers = regression_on_words(train, vectors, lambda found: regression.label_sets(found, true))
        return lambda rows: self.metrics(answers(rows), rows)

    def log_probabilities(self, logits_MC: Tensor, batch: Batch) -> Tensor:
        """[2, M, C]: the log probabilities of yes and of no, for each label."""
        return torch.stack([F.logsigmoid(logits_MC), F.logsigmoid(-logits_MC)])

    def answer(self, row: Row, found: np.ndarray) -> dict[str, Any]:
        """{"labels": those above 0.5, "scores": {label: probability}}"""
        scores = {label: float(p) for label, p in zip(self.labels, found[0], strict=True)}
        return {"labels": [label for label, p in scores.items() if p > 0.5], "scores": scores}

    def compared(self, row: Row, found: np.ndarray) -> tuple[str, str, float]:
        """The error is the number of labels that are missing or too many."""
        predicted = [label for label, p in zip(self.labels, found[0], strict=True) if p > 0.5]
        expected = [label for label in self.labels if label in row.labels]
        return ", ".join(expected), ", ".join(predicted), float(len({*expected} ^ {*predicted}))

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        if "scores" not in answer:  # a text that was written: one probability for all
            return f"{', '.join(answer['labels']) or 'no label'}  {answer['probability']:.3f}  {text}"
        labels = ", ".join(f"{label} {answer['scores'][label]:.3f}" for label in answer["labels"])
        return f"{labels or 'no label'}  {text}"

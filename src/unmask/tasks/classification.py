"""Classification of texts and pairs: one label, several labels, or a score.

Shapes: N rows, M targets, C outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from unmask import metrics
from unmask.data.rows import Row
from unmask.data.tokenizer import Tokenizer
from unmask.models.model import Model
from unmask.tasks.balance import ClassLoss
from unmask.tasks.lengths import Long, frames
from unmask.tasks.task import Encoded, Task, different, label_id, mean_cross_entropy, one_class
from unmask.types import Batch, Example, Head, Loss


class TextTask(Task):
    """A task that answers once for a text or a pair, at its [CLS] (Devlin et al. 2018, section 4.1).

    long  what becomes of texts that do not fit; windows are trained on one by one, and their answers are averaged, or
          the largest of each output taken
    """

    def __init__(self, long: Long = "truncate") -> None:
        self.long = long

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        firsts = tokenizer.ids([row.text for row in rows])
        paired = [i for i, row in enumerate(rows) if row.pair is not None]
        seconds = dict(zip(paired, tokenizer.ids([rows[i].pair or "" for i in paired]), strict=True))
        examples: list[Example] = []
        owners: list[int] = []
        cut: list[int] = []
        split = 0
        for i, (row, first) in enumerate(zip(rows, firsts, strict=True)):
            framed = frames(tokenizer, first, seconds.get(i), length, self.long, row.place or f"Text {i + 1}")
            if len(framed) > 1:
                split += 1
            elif len(framed[0][0]) == length < len(tokenizer.join(first, seconds.get(i))[0]):
                cut.append(i)
            value = self.value(row)
            target = (np.zeros(len(value), np.int64), value)
            examples += [Example(tokens, segments, {self.name: target}) for tokens, segments in framed]
            owners += [i] * len(framed)
        return Encoded(examples, np.array(owners, np.int64), rows, length, cut=tuple(cut), split=split)

    def value(self, row: Row) -> np.ndarray:
        """The label of a row as the values of its target; 0 where it has none."""
        raise NotImplementedError

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Any:
        """[1, C]: of several windows their mean, or the largest of each output."""
        found = np.concatenate(parts)
        if len(found) == 1:
            return found
        merged = found.max(0, keepdims=True) if self.long == "window-max" else found.mean(0, keepdims=True)
        return self.normalise(merged)

    def normalise(self, answer: np.ndarray) -> np.ndarray:
        """The largest outputs over windows as an answer again [1, C]."""
        return answer

    def settings(self) -> dict[str, Any]:
        return {} if self.long == "truncate" else {"long": self.long}


class Classification(TextTask):
    """Which of the labels a text, or a pair of texts, has: cross-entropy at [CLS].

    weighing  how much each class, and what is right already, counts in the loss
    """

    name = "classification"

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


class MultiLabel(TextTask):
    """Which labels a text has, each for itself: any number of them, also none. Binary cross-entropy for each.

    The model says a label where its probability is above 0.5. Every label of every text is a target, as in
    `BertForSequenceClassification`; `positive` [C] multiplies the loss where a text has the label.
    """

    name = "multilabel"
    metric = "micro_f1"

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
        """Each label that more than half of the training rows have."""
        usual = self._true(train).mean(0) > 0.5
        return metrics.of_label_sets(np.tile(usual, (len(rows), 1)), self._true(rows))

    def is_collapsed(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> bool:
        said, true = np.concatenate(answers) > 0.5, self._true(rows)
        return bool((said == said[:1]).all() and (true != true[:1]).any())

    def _true(self, rows: Sequence[Row]) -> np.ndarray:
        """[N, C] bool."""
        return np.stack([self.value(row) for row in rows]) > 0


class Regression(TextTask):
    """A score for a text or a pair: squared error of one output at [CLS], as BERT does for STS-B."""

    name = "regression"
    heads: Mapping[str, Head] = {"regression": Head("sequence", 1)}
    metric = "pearson"

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
        """Scores that differ by less than a hundredth of their size, though those of the rows do not."""
        return _alike(np.concatenate(answers)) and not _alike(np.array([float(row.label) for row in rows]))


def _alike(scores: np.ndarray) -> bool:
    """Whether scores differ by less than a hundredth of their size."""
    return bool(np.ptp(scores) < 0.01 * max(1.0, np.abs(scores).max()))

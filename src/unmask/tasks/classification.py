"""Classification: one label for a text or a pair.

Shapes: N rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.glue import Benchmark
from unmask.data.labelled.rows import Row
from unmask.tasks.balance import ClassLoss, Weighing
from unmask.tasks.lengths import Long
from unmask.tasks.lexical import regression
from unmask.tasks.lexical.references import PARTS, VECTORS, Vectors, regression_on_words
from unmask.tasks.one_label import OneLabel
from unmask.tasks.prompting import Prompting
from unmask.tasks.reading import SHOWN, counts_of, labels_of, read_table
from unmask.tasks.registry import task_learned_by, task_with_vectors
from unmask.tasks.rows import TextRows
from unmask.tasks.task import Say, Score, Task
from unmask.tasks.texts import TextOptions, TextTask
from unmask.tasks.written import Written


@dataclass(frozen=True, kw_only=True)
class ClassificationRows(TextRows):
    """Texts, or pairs of them, with one label.

    stratify  hold out the same share of each class, instead of random rows
    """

    stratify: bool = True

    LEARNING: ClassVar[tuple[str, ...]] = (*TextRows.LEARNING, "stratify")
    BEFORE: ClassVar[dict[str, Any]] = {"stratify": False}


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(Weighing, TextOptions):
    """Options for the training of a classifier."""


class Classification(OneLabel, TextTask):
    """Predict which of the labels a text, or a pair of texts, has: cross-entropy at [CLS].

    weighing  weights of classes in the loss, or the focal loss; None: plain cross-entropy
    """

    task_name = name = "classification"
    also_called = ("text-classification", "sequence-classification", "sentiment", "sentiment-analysis", "intent", "nli")
    rows_class = ClassificationRows
    options_class = ClassificationOptions
    panel = "classify"
    pipeline, estimator = "text-classification", "classifier"
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
        # Said first, because a dev row with another number is refused next.
        say(_of_scores(dataset.classes(sets["train"]), sets["train"]))
        labels = labels_of(sets, say, held_out=held_out)
        if len(only := sets["dev"].labels) == 1:
            say(f"Every dev row has the label {only[0]}, so the dev scores say nothing about other labels.")
        weighing = options.weighing(counts_of(sets["train"], labels))
        return cls(labels, weighing=weighing, long=options.long)

    def __init__(self, labels: Sequence[str], *, weighing: ClassLoss | None = None, long: Long = "truncate") -> None:
        OneLabel.__init__(self, labels, weighing=weighing)
        TextTask.__init__(self, long)

    def normalise(self, answer: np.ndarray) -> np.ndarray:
        return np.asarray(answer / answer.sum(-1, keepdims=True))

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, vectors) for name, vectors in VECTORS.items()}

    def _reference(self, train: Sequence[Row], vectors: Vectors) -> Score:
        true, count = self._true(train), len(self.labels)
        answers = regression_on_words(train, vectors, lambda found: regression.classes(found, true, count))
        return lambda rows: self.metrics(answers(rows), rows)


def _of_scores(labels: Collection[str], train: Dataset) -> str:
    """A sentence, with other tasks, for labels that seem to be scores; empty for any others."""
    numbers = [dataset.number(label) for label in labels]
    if len(labels) <= SHOWN or None in numbers or all(float(x or 0).is_integer() for x in numbers):
        return ""
    others = f"for scores use --task {task_learned_by('regressor')}"
    if train[0].pair is not None:
        others += f", for vectors of pairs --task {task_with_vectors()}"
    return f"The rows have {len(labels)} labels, all of them numbers: {others}."

"""Regression: a score for a text or a pair.

Shapes: N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.glue import Benchmark
from unmask.data.labelled.rows import Row
from unmask.tasks.lexical import regression
from unmask.tasks.lexical.references import PARTS, VECTORS, Vectors, regression_on_words
from unmask.tasks.one_score import OneScore
from unmask.tasks.reading import read_table
from unmask.tasks.rows import TextRows
from unmask.tasks.task import Say, Score, Task
from unmask.tasks.texts import TextOptions, TextTask
from unmask.tasks.written import WrittenScores
from unmask.types import Head


class Regression(OneScore, TextTask):
    """Predict a score for a text or a pair: squared error of one output at [CLS], as BERT does for STS-B."""

    task_name = name = "regression"
    heads: Mapping[str, Head] = {"regression": Head("sequence", 1)}
    rows_class = TextRows
    options_class = TextOptions
    panel = "classify"
    pipeline, estimator = "text-classification", "regressor"
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
        values = cls.scores_of(sets, say)
        if max(map(abs, values)) > 20:
            say("Scores this large are learned slowly; divide them so that they are between 0 and about 5.")
        return cls(options.long)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, vectors) for name, vectors in VECTORS.items()}

    def _reference(self, train: Sequence[Row], vectors: Vectors) -> Score:
        true = np.concatenate([self.value(row) for row in train])
        answers = regression_on_words(train, vectors, lambda found: regression.scores(found, true))
        return lambda rows: self.metrics(answers(rows), rows)

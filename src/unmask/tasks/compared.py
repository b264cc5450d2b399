"""Compared: tasks that give each item a vector, so that items of one class lie close to each other.

Shapes: N rows, E numbers of a vector, k items of a row.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from unmask import metrics
from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, plural
from unmask.models.model import Model
from unmask.tasks import vector_scores
from unmask.tasks.rows import Rows
from unmask.tasks.task import Curve, Say, Task

RATES = np.geomspace(1e-4, 1.0, 81)  # false accept rates of the curve in a report


@dataclass(frozen=True, kw_only=True)
class RowsOfClasses(Rows):
    """Items with a class. Without dev rows, a tenth of the classes is held out."""

    def hold_out(self, whole: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset, str]:
        return *dataset.hold_out_classes(whole, count, rng), "whole classes"


class Compared(Task):
    """A vector of length 1 for each item. Two items are compared by their cosine.

    item       what an item is called
    threshold  the cosine from which two items count as one class: where both kinds of errors were equally frequent on
               the dev rows (`fitted`); None: unknown

    The answer to a row is an array [k, E], for its one or two items. Classes of rows that are scored may be new.
    """

    gives_vectors = True
    item: ClassVar[str]
    threshold: float | None = None
    _notice = ""

    def check_teachable(self) -> None:
        raise UnmaskError(
            f"{self.task_name} cannot be learned from a teacher: vectors have no probabilities to soften."
        )

    @classmethod
    def say_classes(cls, sets: Mapping[str, Dataset], say: Say) -> None:
        """Say how many items and classes each set has. Raises UnmaskError for a set that cannot be compared."""
        known = set(dataset.classes(sets["train"]))
        for name, rows in sets.items():
            single = check_classes(rows, cls.item)
            new = "" if name == "train" else f", {len(set(rows.labels) - known):,} of them not in training"
            say(f"{name}: {plural(len(rows), cls.item)} of {plural(len(rows.labels), 'class', 'classes')}{new}.")
            if single:
                say(f"{name}: {single}")

    def for_rows(self, rows: Dataset, folder: Path, model: Model | None = None) -> Task:
        other = copy.copy(self)
        other._notice = check_classes(rows, self.item)
        return other

    @property
    def notice(self) -> str:
        return self._notice

    def squash(self, logits: Tensor) -> Tensor:
        """The outputs scaled to length 1."""
        return F.normalize(logits, dim=-1)

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        return self.scores(np.concatenate(answers), rows)

    def scores(self, units_NE: np.ndarray, rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of vectors of length 1."""
        raise NotImplementedError

    def curves(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, Curve]:
        curve = curve_of(np.concatenate(answers), rows)
        points = [[float(far), curve.tar_at(far)] for far in RATES]
        return {"ROC": {"x": "false accept rate", "y": "true accept rate", "log_x": True, "points": points}}

    def fitted(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> None:
        self.threshold = curve_of(np.concatenate(answers), rows).equal_error[1]

    def settings(self) -> dict[str, Any]:
        return {} if self.threshold is None else {"threshold": self.threshold}

    def answer(self, row: Row, found: np.ndarray) -> dict[str, Any]:
        """{"embedding": [numbers]} for one item; for two {"similarity"}, the cosine, and if the threshold is known
        {"same", "threshold"}."""
        answer = vector_scores.answer(found)
        if len(found) == 1 or self.threshold is None:
            return answer
        return {**answer, "same": answer["similarity"] >= self.threshold, "threshold": self.threshold}

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        shown = vector_scores.render(text, answer)
        return f"{'same' if answer['same'] else 'different'}  {shown}" if "same" in answer else shown


def classes_of(rows: Sequence[Row]) -> np.ndarray:
    """[N] the class of each row, from 0."""
    return np.unique([row.label for row in rows], return_inverse=True)[1].astype(np.int64)


def check_classes(rows: Dataset, item: str) -> str:
    """A sentence on classes with one item; empty if there are none. Raises UnmaskError for items of one class alone,
    and if no class has two items."""
    counts = rows.histogram()
    single = [label for label, count in counts.items() if count == 1]
    if len(counts) < 2 or len(single) == len(counts):
        several = plural(len(counts) - len(single), "class", "classes")
        raise UnmaskError(
            f"{rows.path} has {plural(len(counts), 'class', 'classes')}, and {several} with two {item}s or more: "
            f"at least two classes are needed, and one of them with two {item}s."
        )
    if not single:
        return ""
    of = f"{len(single):,} of {plural(len(counts), 'class', 'classes')}"
    return f"{of} have one {item}, which is compared with the others, but has none of its class to find."


def curve_of(units_NE: np.ndarray, rows: Sequence[Row]) -> metrics.Roc:
    """The curve of all pairs of items."""
    return metrics.roc(*metrics.pairs_of(units_NE, classes_of(rows)))

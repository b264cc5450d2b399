"""Stars, a task in one file: how many has a text, where an answer is worse the further it is off?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.tasks.reading import labels_of
from unmask.tasks.rows import Rows, TaskOptions
from unmask.tasks.task import Say
from unmask.tasks.texts import TextTask
from unmask.types import Batch, Head, Loss


@dataclass(frozen=True, kw_only=True)
class StarRows(Rows):
    """mark  what stands for a star"""

    mark: str = "*"


@dataclass(frozen=True, kw_only=True)
class StarOptions(TaskOptions):
    """power  of the distance between what is said and what is so (Hou et al. 2016)"""

    power: float = 2.0


class Stars(TextTask):
    task_name, name, metric, gives, panel = "stars", "classification", "closeness", "stars", "classify"
    rows_class, options_class, rows_are = StarRows, StarOptions, "stars and a text"

    def __init__(self, labels: Sequence[str], *, power: float = 2.0) -> None:
        super().__init__()
        self.labels, self.heads, self.power = tuple(labels), {self.name: Head("sequence", len(labels))}, power

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        lines = [line.partition(" ") for line in path.read_text().splitlines()]
        for number, (marks, *_) in enumerate(lines, 1):
            if set(marks) != {rows.mark}:
                raise UnmaskError(f"{path}:{number} does not begin with {rows.mark}: say what it is with --mark.")
        found = tuple(Row(text, label=str(len(marks))) for marks, _, text in lines)
        return Dataset(path, found, {"text": "behind the stars", "label": "their number"})

    @classmethod
    def learned(cls, sets: Any, options: Any, say: Say, *, held_out: bool = False) -> Stars:
        return cls(labels_of(sets, say, held_out=held_out), power=options.power)

    def value(self, row: Row) -> np.ndarray:
        return np.array([self.labels.index(row.label) if row.label else 0])

    def score(self, model: Any, hidden_BTD: Tensor, batch: Batch) -> Loss:
        target = batch.targets[self.name]
        said_MC = model.answer(self.name, hidden_BTD, target.places, batch).softmax(-1)
        off_MC = (said_MC - F.one_hot(target.values, len(self.labels))).cumsum(-1)
        return Loss(off_MC.abs().pow(self.power).sum(), len(said_MC))

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        off = np.concatenate(answers).argmax(-1) - np.concatenate([self.value(row) for row in rows])
        return {"closeness": 1 - float(np.abs(off).mean()) / len(self.labels)}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        middle = np.eye(len(self.labels))[[int(np.median([self.value(row) for row in train]))]]
        return self.metrics([middle] * len(rows), rows)

    def settings(self) -> dict[str, Any]:
        return {"power": self.power}

    def answer(self, row: Row, found: np.ndarray) -> dict[str, Any]:
        return {"stars": int(self.labels[found[0].argmax()])}

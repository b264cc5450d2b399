"""A second task beside the first: both share one model, and each has a head and labelled rows of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unmask.config import Config
from unmask.data.labelled.dataset import Dataset
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives import Objective
from unmask.tasks.encoded import Encoded
from unmask.tasks.reading import read_sets
from unmask.tasks.registry import task_named
from unmask.tasks.task import Say, Task
from unmask.types import Batch, Loss


@dataclass(frozen=True, kw_only=True)
class Second(Config):
    """A second task that is learned at the same time (Caruana 1997, "Multitask learning").

    second_train   file of its training rows; None: there is no second task
    second_dev     file of its dev rows; without it, a tenth of its training rows is held out
    second_task    the task, another one than the first; needed for these rows
    second_label   column of its labels, if it does not have the usual name
    second_weight  of its mean loss, beside 1 for that of the first task
    """

    second_train: Path | None = None
    second_dev: Path | None = None
    second_task: str | None = None
    second_label: str | None = None
    second_weight: float = 1.0

    @property
    def kind(self) -> type[Task]:
        """The task. Raises UnmaskError for an unknown one, and for none."""
        if self.second_task is None:
            raise UnmaskError("Say what the second rows are labelled for: --second-task NAME.")
        return task_named(self.second_task)

    def sets(self, say: Say, rng: np.random.Generator, *, allow_overlap: bool = False) -> dict[str, Dataset]:
        """The training and dev rows; empty without a second task. Raises UnmaskError for settings without rows, for
        rows of another task and, unless `allow_overlap`, for dev rows that are also training rows."""
        if self.second_train is None:
            if self.replace(second_task=None) != Second():
                raise UnmaskError("A second task needs rows of its own: give --second-train FILE.")
            if self.second_task is not None:
                say("The first task is learned alone: --second-train FILE gives the rows of the second one.")
            return {}
        rows = self.kind.rows_class().override({"train": self.second_train, "dev": self.second_dev})
        rows = rows.replace(allow_overlap=allow_overlap)
        rows = rows.override({"label": self.second_label}) if self.second_label is not None else rows
        return read_sets(self.kind.task_name, rows, lambda sentence: say(f"Second task: {sentence}"), rng)

    def learned(self, sets: Mapping[str, Dataset], say: Say) -> Task:
        """The task for its rows. Raises UnmaskError for rows that cannot be learned from."""
        return self.kind.learned(sets, self.kind.options_class(), say, held_out=self.second_dev is None)


class TwoTasks(Objective):
    """The mean loss of a task plus a weighted mean loss of a second one. A batch has rows of both data sets, in the
    proportion of their sizes; each row has targets of its own task alone.

    first, second  the task whose dev score decides which weights are kept, and the other one
    weight         of the loss of the second task

    Raises UnmaskError for two tasks of the same kind, whose heads would have one name, and a weight that is not above
    0.
    """

    def __init__(self, first: Task, second: Task, weight: float = 1.0) -> None:
        if not weight > 0:
            raise UnmaskError(f"--second-weight must be above 0, not {weight}.")
        if first.heads.keys() & second.heads.keys():
            raise UnmaskError(f"The second task must be another one than {first.task_name}: set --second-task.")
        self.first, self.second = first, second
        self.name = first.name
        self.heads = {**first.heads, **second.heads}
        self._weights = {**first.weights, **{name: weight * x for name, x in second.weights.items()}}

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights

    def together(self, encoded: Encoded, added: Encoded) -> Encoded:
        """The training rows of both tasks. Raises UnmaskError for rows that make their own batches."""
        if any(rows.collate or rows.together for rows in (encoded, added)):
            raise UnmaskError("Two tasks share batches of texts and of tagged words, not of other rows.")
        return replace(
            encoded,
            examples=[*encoded.examples, *added.examples],
            owners=np.concatenate([encoded.owners, len(encoded.rows) + added.owners]),
            rows=[*encoded.rows, *added.rows],
        )

    @contextmanager
    def projecting(self, model: Model, seed: int = 0) -> Iterator[None]:
        """Does nothing: both heads stay."""
        yield

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        hidden_BTD = model(batch)
        asked = (task for task in (self.first, self.second) if task.name in batch.targets)
        return {task.name: task.score(model, hidden_BTD, batch) for task in asked}


def alone(model: Model, task: Task) -> Model:
    """A model with the heads of one of the tasks; it shares all parts and parameters with this one."""
    other = model.without_heads()
    other.heads.update({name: model.heads[name] for name in task.heads})
    return other

"""Configs whose fields depend on a task: its rows, and its options for training or scoring."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from unmask.config import Config
from unmask.tasks.registry import in_form, is_usual, meaningless, own_values, taking, task_named, task_on, usual_task
from unmask.tasks.rows import Rows
from unmask.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """A config that names a task. Its `rows`, and its `options` if it has any, are of the classes of that task, and
    change with it when the task is replaced.

    task  the task that the rows are labelled for; default: the first of the registry

    Raises UnmaskError for a task that does not exist, and for a field that is set but that the task does not use.
    """

    task: str = field(default_factory=usual_task)
    rows: Rows = field(default_factory=Rows)

    CLASSES: ClassVar[Mapping[str, str]] = {"rows": "rows_class"}
    """Field -> the attribute of the task that holds its class."""

    def __post_init__(self) -> None:
        kind = task_named(self.task)
        for name, attribute in self.CLASSES.items():
            object.__setattr__(self, name, in_form(getattr(self, name), getattr(kind, attribute), self.task))

    @classmethod
    def of_run(cls, values: Mapping[str, Any]) -> Self:
        """The config of a run from its folder, which may be older than some fields."""
        rows = values.get("rows")
        if isinstance(rows, Mapping):
            before = task_named(str(values.get("task", usual_task()))).rows_class.BEFORE
            values = {**values, "rows": {**before, **rows}}
        return cls.from_dict(values)

    def replace(self, **changes: Any) -> Self:
        base = self
        if "task" in changes:
            base = dataclasses.replace(self, task=str(changes["task"]))
        for name in self.CLASSES:
            if isinstance(value := changes.get(name), Mapping):
                changes[name] = own_values(value, type(getattr(base, name)), base.task)
        return super(TaskConfig, base).replace(**changes)

    def each_fold(self) -> list[Self]:
        """A config for each fold of the rows, for folds that are tested in turn; one at least, whose rows say what is
        wrong with the number."""
        return [self.replace(rows={"fold": fold}) for fold in range(1, max(1, self.rows.folds or 0) + 1)]

    def override(self, changes: Mapping[str, Any], **others: str) -> Self:
        rest = {name: value for name, value in changes.items() if name != "task"}
        train = changes.get("train", changes.get("rows.train", self.rows.train))
        task = task_on(str(changes.get("task", self.task)), None if train is None else Path(train))
        base = self if task == self.task else self.replace(task=task)
        places = base.places()
        for name in rest:
            *path, last = others.get(name.replace("-", "_"), name).replace("-", "_").split(".")
            known = any(place == ".".join([*path, last]) or place.split(".")[-1] == last for place in places)
            if not known and ".".join(path) in ("", *self.CLASSES) and taking(last, self.CLASSES.values()):
                raise meaningless(last, base.task, self.CLASSES.values())
        return super(TaskConfig, base).override(rest, **others)


def without_usual(values: Mapping[str, Any], config: TaskConfig) -> dict[str, Any]:
    """Values by dotted names, without default values of fields of other tasks, which runs of version 0.1 kept."""
    places = config.places()
    return {
        name: value
        for name, value in values.items()
        if name in places or name.partition(".")[0] not in config.CLASSES or not is_usual(name.split(".")[-1], value)
    }


def scored_rows(task: type[Task], given: Rows | Mapping[str, Any] | None) -> Rows:
    """The config for reading the rows of a file that are scored.

    given  a config, or fields by their names on the command line

    Raises UnmaskError for a field that the task does not use.
    """
    if not isinstance(given, Mapping):
        return in_form(given or Rows(), task.rows_class, task.task_name)
    usual = task.rows_class()
    for name in given:
        takers = taking(name.replace("-", "_"), ("rows_class",))
        if takers and task.task_name not in takers:
            raise meaningless(name, task.task_name, ("rows_class",))
    return usual.override(given)

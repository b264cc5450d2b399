"""The registry: which tasks there are, which of them takes a field, and which one a folder was fine-tuned for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from unmask.config import Config, typed
from unmask.data.labelled.dataset import Dataset
from unmask.errors import UnmaskError, kind_of, unknown
from unmask.models.model import Model
from unmask.tasks.task import Task

C = TypeVar("C", bound=Config)

TASKS: dict[str, type[Task]] = {}
"""Name on the command line and in run.json -> task; `unmask.tasks` fills it, a line for each."""

REMEMBERED = "task"
"""Name among the settings of a folder of the task that its head does not tell."""


def usual_task() -> str:
    """The task where none is named: the first."""
    return next(iter(TASKS))


def task_named(name: str) -> type[Task]:
    """Raises UnmaskError for a name that no task has, naming the nearest."""
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]


BOTH = ("rows_class", "options_class")
"""Attributes of a task that have its fields."""


def taking(field: str, classes: Iterable[str] = BOTH) -> list[str]:
    """The tasks that have a field in one of these classes."""
    return [name for name, task in TASKS.items() if any(hasattr(getattr(task, one)(), field) for one in classes)]


def meaningless(field: str, task: str, classes: Iterable[str] = BOTH) -> UnmaskError:
    """A field that means nothing to a task, but something to others."""
    flag = "--" + field.replace("_", "-")
    return UnmaskError(f"{flag} is for --task {' or '.join(taking(field, classes))}; {task} has no use for it.")


def task_fitting(rows: Dataset) -> type[Task]:
    """The task of the rows of a table, by what they have."""
    return next(task for task in TASKS.values() if task.fits(rows))


# ------------------------------------------------------------------------------------------------ folders


def task_of(model: Model, labels: Sequence[str] = (), settings: Mapping[str, Any] | None = None) -> Task:
    """The task that a model was fine-tuned for, from its head and what its folder remembers (`Loaded`).

    Raises UnmaskError where it has no head for labelled rows, and for settings that are not those of its task.
    """
    kind = task_found(list(model.heads), settings)
    if kind is None:
        heads = ", ".join(model.heads) or "none"
        raise UnmaskError(f"The model has no head for labelled rows (heads: {heads}); fine-tune it first.")
    if "labels" not in get_type_hints(kind.__init__):
        return kind.of_folder(model, (), _settings(kind, settings))
    outputs = int(list(model.heads[kind.name].parameters())[-1].shape[0])
    named = tuple(labels) or tuple(f"LABEL_{i}" for i in range(outputs))
    return kind.of_folder(model, named, _settings(kind, settings))


def settings_of(task: Task) -> dict[str, Any]:
    """What a folder must remember for `task_of` to find the task again: its settings, and its name unless it is the
    one that its head tells."""
    owner = next((kind for kind in TASKS.values() if kind.name == task.name), None)
    named = {} if owner is None or type(task) is owner else {REMEMBERED: type(task).task_name}
    return {**named, **task.settings()}


def task_found(heads: Collection[str], settings: Any) -> type[Task] | None:
    """The task of a folder with these heads and settings (`Loaded`); None: it was fine-tuned for none. What a folder
    says of itself comes before what its heads tell."""
    said = settings.get(REMEMBERED) if isinstance(settings, Mapping) else None
    if said is not None:
        if said not in list(TASKS):
            raise unknown("task, which config.json (unmask_task) names,", str(said), TASKS)
        return TASKS[said]
    fitting = [task for task in TASKS.values() if task.is_of(heads, settings)]
    return min(fitting, key=lambda task: task.name in heads, default=None)


def _settings(kind: type[Task], given: Any) -> dict[str, Any]:
    """Settings from a file, as the arguments of a task. Raises UnmaskError for what is not one, or of a wrong type."""
    place = f"Settings of {kind.__name__} (unmask_task in config.json)"
    if given is not None and not isinstance(given, Mapping):
        raise UnmaskError(f"{place} must be a JSON object, not {kind_of(given)}.")
    hints = get_type_hints(kind.__init__)
    known = {name: hint for name, hint in hints.items() if name not in ("labels", "return")}
    values = {name: value for name, value in (given or {}).items() if name != REMEMBERED}
    for name in values.keys() - known.keys():
        raise unknown(f"setting of {kind.__name__} (unmask_task in config.json)", str(name), known)
    return {name: typed(value, known[name], f"{place}: {name}") for name, value in values.items()}


# ------------------------------------------------------------------------------------------------ fields


def in_form(given: Config, wanted: type[C], task: str) -> C:
    """The values of a config in the class that a task has for them. Raises UnmaskError for a value that is not the
    usual one, of a field that means nothing to the task."""
    if type(given) is wanted:
        return given
    return wanted(**own_values(vars(given), wanted, task, type(given)()))


def own_values(
    values: Mapping[str, Any], wanted: type[Config], task: str, usual: Config | None = None
) -> dict[str, Any]:
    """Of some values, by the names of their fields, those of a class of a task. Others are dropped where they are the
    usual ones, in `usual` or else in a task that has them, for runs of version 0.1 kept the fields of all tasks.

    Raises UnmaskError for any other value.
    """
    known = {f.name for f in fields(wanted)}
    for name, value in values.items():
        if name not in known and not is_usual(name, value, usual):
            raise meaningless(name, task) if taking(name) else unknown(f"field of {wanted.__name__}", name, known)
    return {name: value for name, value in values.items() if name in known}


def is_usual(name: str, value: Any, usual: Config | None = None) -> bool:
    """Whether a field has its default: in the config that the value is from, else in one of the tasks."""
    configs: list[Config] = [usual] if usual is not None else []
    if usual is None:
        configs = [config for task in TASKS.values() for config in (task.rows_class(), task.options_class())]
    return any(hasattr(config, name) and getattr(config, name) == value for config in configs)

"""The registry of tasks: all tasks by name, the tasks that have a field, and the task of a fine-tuned folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from unmask.config import Config, typed
from unmask.data.labelled.dataset import Dataset
from unmask.errors import UnmaskError, kind_of, unknown
from unmask.models.model import Model, ModelConfig
from unmask.tasks.rows import TaskOptions
from unmask.tasks.task import Task

C = TypeVar("C", bound=Config)

TASKS: dict[str, type[Task]] = {}
"""Name on the command line and in run.json -> task; `unmask.tasks` fills it."""

REMEMBERED = "task"
"""The setting of a folder that names its task, if its head does not determine it."""


def usual_task() -> str:
    """The default task: the first."""
    return next(iter(TASKS))


def task_learned_by(estimator: str) -> str:
    """The name of the task that an estimator of scikit-learn of a kind learns (`Task.estimator`)."""
    return next(name for name, task in TASKS.items() if task.estimator == estimator)


def task_with_vectors() -> str:
    """The name of the first task that gives vectors (`Task.gives_vectors`)."""
    return next(name for name, task in TASKS.items() if task.gives_vectors)


def task_named(name: str) -> type[Task]:
    """The task of this name. Raises UnmaskError for an unknown one, with the task that is also called that
    (`Task.also_called`), or that of the nearest name."""
    if name in TASKS:
        return TASKS[name]
    usual = name.lower().replace("_", "-").replace(" ", "-")
    meant = next((own for own, task in TASKS.items() if usual == own or usual in task.also_called), None)
    if meant is not None:
        raise UnmaskError(f"There is no task '{name}': it is called '{meant}' here.")
    raise unknown("task", name, TASKS)


def task_on(name: str, path: Path | None) -> str:
    """The name of a task for the data in a file or folder: that of a task on recordings, where the data are recordings
    and `name` is that of the same task on texts."""
    known = [task for task in TASKS.values() if task.general == name]
    found = known and path is not None and path.exists() and next((task for task in known if task.holds(path)), None)
    return found.task_name if found else name


def task_of_page(name: str, page: ModelConfig) -> str:
    """The name of a task for a new model of this page: that of a task on what it reads, where `name` is that of the
    same task on texts."""
    fitting = (task.task_name for task in TASKS.values() if task.general == name and task.items in page.offers)
    return next(fitting, name)


BOTH = ("rows_class", "options_class")
"""Attributes of a task that hold the classes with its fields."""


def taking(field: str, classes: Iterable[str] = BOTH) -> list[str]:
    """The names of the tasks that have a field in one of these classes."""
    return [name for name, task in TASKS.items() if any(hasattr(getattr(task, one)(), field) for one in classes)]


def meaningless(field: str, task: str, classes: Iterable[str] = BOTH) -> UnmaskError:
    """The error for a field that a task does not have, but others do."""
    flag = "--" + field.replace("_", "-")
    return UnmaskError(f"{flag} is for --task {' or '.join(taking(field, classes))}; {task} has no use for it.")


def task_with(options: TaskOptions) -> str:
    """The name of the first task with these options."""
    return next(name for name, task in TASKS.items() if task.options_class is type(options))


def task_fitting(rows: Dataset) -> type[Task]:
    """The first task that the rows of a table fit."""
    return next(task for task in TASKS.values() if task.fits(rows))


# ------------------------------------------------------------------------------------------------ folders


def task_of(model: Model, labels: Sequence[str] = (), settings: Mapping[str, Any] | None = None) -> Task:
    """The task that a model was fine-tuned for, from its head, labels and settings (`Loaded`).

    Raises UnmaskError for a model without a head for labelled rows, and for settings that its task does not have.
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
    """The settings that a folder keeps so that `task_of` finds the task: those of the task, and its name if its head
    does not determine it."""
    owner = next((kind for kind in TASKS.values() if kind.name == task.name), None)
    named = {} if owner is None or type(task) is owner else {REMEMBERED: type(task).task_name}
    return {**named, **task.settings()}


def task_found(heads: Collection[str], settings: Any) -> type[Task] | None:
    """The task of a folder with these heads and settings (`Loaded`); None if it was not fine-tuned for a task. A name
    in the settings has precedence over the heads."""
    named = settings.get(REMEMBERED) if isinstance(settings, Mapping) else None
    if named is not None:
        if named not in list(TASKS):
            raise unknown("task, which config.json (unmask_task) names,", str(named), TASKS)
        return TASKS[named]
    fitting = [task for task in TASKS.values() if task.is_of(heads, settings)]
    return min(fitting, key=lambda task: task.name in heads, default=None)


def _settings(kind: type[Task], given: Any) -> dict[str, Any]:
    """Settings from a file, as the arguments of a task. Raises UnmaskError for an unknown one, or a wrong type."""
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
    """The values of a config in the class that a task has for them. Raises UnmaskError for a field that the task does
    not have and whose value is not its default."""
    if type(given) is wanted:
        return given
    return wanted().replace(**own_values(vars(given), wanted, task, type(given)()))


def own_values(
    values: Mapping[str, Any], wanted: type[Config], task: str, usual: Config | None = None
) -> dict[str, Any]:
    """Those of some values, by the names of their fields, that a class of a task has. Other values are dropped if they
    are defaults, in `usual` or else in a task that has them, because runs of version 0.1 kept the fields of all tasks.

    Raises UnmaskError for any other value of another task; names that no task has are kept, and refused by the class.
    """
    known = {f.name for f in fields(wanted)}
    kept = {name: value for name, value in values.items() if name in known or not is_usual(name, value, usual)}
    if other := next((name for name in kept if name not in known and taking(name)), None):
        raise meaningless(other, task)
    return kept


def is_usual(name: str, value: Any, usual: Config | None = None) -> bool:
    """Whether a field has its default: in the config that the value is from, else in one of the tasks, now or in
    version 0.1."""
    configs: list[Config] = [usual] if usual is not None else []
    if usual is None:
        configs = [config for task in TASKS.values() for config in (task.rows_class(), task.options_class())]
    now = any(hasattr(config, name) and getattr(config, name) == value for config in configs)
    then = (task.options_class.BEFORE for task in TASKS.values())
    return now or (usual is None and any(name in before and before[name] == value for before in then))

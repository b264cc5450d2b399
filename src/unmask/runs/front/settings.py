"""Settings: keywords of a function, and fields, as changes to a config."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from unmask.config import INSTEAD, SAME, Config
from unmask.errors import unknown
from unmask.runs.finetuning import FineTuning
from unmask.tasks.registry import TASKS

NAMES = {"learning_rate": "lr"}


def changes_of(
    function: Callable[..., Any], given: Mapping[str, Any], fields: Mapping[str, Any], configs: Iterable[Config]
) -> dict[str, Any]:
    """The given settings by the names of fields.

    given    values of the function's own keywords; those that are None are left out
    fields   the other keywords; a name may have `__` for the dot
    configs  all that may have the fields

    Raises UnmaskError for a misspelt keyword of the function; the config answers misspelt fields.
    """
    own = [name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD]
    found = {NAMES.get(name, name): value for name, value in given.items() if value is not None}
    changes = {name.replace("__", "."): value for name, value in fields.items()}
    places = [place for config in configs for place in config.places()]
    known = {*places, *(place.rpartition(".")[2] for place in places), *SAME, *INSTEAD}
    for name in changes.keys() - known:
        if difflib.get_close_matches(name, own, n=1, cutoff=0.8):
            raise unknown(f"keyword of {function.__name__}:", name, own)
    return found | changes


def of_tasks() -> list[FineTuning]:
    """A config of fine-tuning for each task, which together have all fields of labelled rows."""
    return [FineTuning().replace(task=name) for name in TASKS]

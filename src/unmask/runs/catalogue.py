"""Catalogues of named configs: functions without arguments that return a config, in the order of their modules.

`recipes.py`, `supervised_recipes.py` and `translation/systems.py` are such modules: `bert_mini` is the name bert-mini.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from unmask.errors import unknown


def functions(modules: Iterable[Mapping[str, Any]], returned: str) -> dict[str, Callable[[], Any]]:
    """Name -> function, of the public functions of some modules that take no arguments and return this config.

    modules   the names of each module, as of `vars`
    returned  the annotation of the result, as it is written
    """
    return {
        name.replace("_", "-"): function
        for module in modules
        for name, function in module.items()
        if inspect.isfunction(function)
        and not name.startswith("_")
        and function.__annotations__ == {"return": returned}
    }


def introductions(found: Mapping[str, Callable[[], Any]]) -> dict[str, str]:
    """Name -> the first paragraph of the documentation, as one line."""
    return {
        name: " ".join((inspect.getdoc(function) or "").split("\n\n", 1)[0].split()) for name, function in found.items()
    }


def find(found: Mapping[str, Callable[[], Any]], name: str, what: str) -> Any:
    """The config of a name. Raises UnmaskError, with the nearest name of such a `what`, if it does not exist."""
    if name not in found:
        raise unknown(what, name, found)
    return found[name]()

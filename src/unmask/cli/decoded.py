"""`corpus build` and `corpus check` of items that are decoded: pictures, recordings, records of sensors."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from unmask.cli.ending import suggest


def build(make: Callable[..., Any], items: Any, options: argparse.Namespace, names: Sequence[str], recipe: str) -> None:
    """Build a corpus, and say which command trains on it.

    make    the function that builds it from `items`
    names   of the options that it takes; those that are not given have its defaults
    recipe  that trains on it
    """
    from unmask.train.display import progress

    with progress() as show:
        built = make(items, Path(options.out), workers=options.workers or 1, progress=show, **_given(options, names))
    print(built.summary())
    suggest(f"pretrain {recipe} --corpus {options.out} --out runs/mine --minutes 30")


def check(inspect: ModuleType, items: Any, options: argparse.Namespace, names: Sequence[str] = ()) -> None:
    """Print what `inspect.check` finds in `items`; `names` as in `build`."""
    from unmask.train.display import progress

    chosen = {"workers": options.workers or 1, **_given(options, names)}
    if options.json:
        print(json.dumps(inspect.check(items, **chosen).to_dict(), indent=2, ensure_ascii=True))
        return
    with progress() as show:
        report = inspect.check(items, progress=show, **chosen)
    print(inspect.render(report))


def _given(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(options, name)) is not None}

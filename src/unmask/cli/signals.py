"""`unmask corpus` for records of sensors: the options, and the functions that its verbs call for them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

OPTIONS = ("rate", "longest", "record")
FORMS = "folder or table"


def shared_options(sub: Any) -> None:
    """The options of `corpus build` and `corpus check` that are for records alone."""
    sub.add_argument("--record", metavar="NAME", help="records: the column of a table that has files or bytes")


def held(path: Path, options: argparse.Namespace) -> bool:
    """Whether the data at a path are records."""
    from unmask.data.signals.reading import are_signals

    return options.record is not None or are_signals(path)


def build(options: argparse.Namespace) -> None:
    """`corpus build` of records."""
    from unmask.data.signals import building
    from unmask.train.display import progress

    names = ("rate", "longest", "most_damaged")
    chosen = {name: value for name in names if (value := getattr(options, name)) is not None}
    items = _items(options)
    with progress() as show:
        built = building.build(items, Path(options.out), workers=options.workers, progress=show, **chosen)
    print(built.summary())
    print(f"Next: unmask pretrain masked-signal --data {options.out} --out runs/mine --minutes 10")


def check(options: argparse.Namespace) -> None:
    """`corpus check` of records."""
    from unmask.data.signals import inspect
    from unmask.train.display import progress

    chosen = {name: value for name in ("rate", "longest") if (value := getattr(options, name)) is not None}
    items = _items(options)
    if options.json:
        report = inspect.check(items, workers=options.workers, **chosen)
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=True))
        return
    with progress() as show:
        report = inspect.check(items, workers=options.workers, progress=show, **chosen)
    print(inspect.render(report), file=sys.stdout)


def _items(options: argparse.Namespace) -> Any:
    from unmask.data.signals.items import items_of

    return items_of(Path(options.data[0]), record=options.record, label=options.label, encoding=options.encoding)

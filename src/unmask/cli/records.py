"""`unmask corpus` for records of sensors: the options, and the functions that its verbs call for them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.cli import decoded

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
    from unmask.data.signals.building import build

    decoded.build(build, _items(options), options, ("rate", "longest", "most_damaged"), "masked-signal")


def check(options: argparse.Namespace) -> None:
    """`corpus check` of records."""
    from unmask.data.signals import inspect

    decoded.check(inspect, _items(options), options, ("rate", "longest"))


def _items(options: argparse.Namespace) -> Any:
    from unmask.data.signals.items import items_of

    return items_of(Path(options.data[0]), record=options.record, label=options.label, encoding=options.encoding)

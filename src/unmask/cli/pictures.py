"""`unmask corpus` for pictures: the options, and the functions that its verbs call if the data are pictures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.cli import decoded

OPTIONS = ("side", "picture")
FORMS = "folder, table or IDX file"


def add_options(sub: Any) -> None:
    """The options of `corpus build` that are for pictures alone."""
    sub.add_argument(
        "--side", type=int, metavar="N", help="pictures: resize them so that the shorter side has at most N pixels"
    )


def shared_options(sub: Any) -> None:
    """The options of `corpus build` and `corpus check` that are for pictures alone."""
    sub.add_argument("--picture", metavar="NAME", help="pictures: the column of a table that has files or bytes")


def held(path: Path, options: argparse.Namespace) -> bool:
    """Whether the data at a path are pictures."""
    from unmask.data.pictures.items import holds_pictures

    return holds_pictures(path, picture=options.picture, column=options.column)


def build(options: argparse.Namespace) -> None:
    """`corpus build` of pictures."""
    from unmask.data.pictures.building import build

    decoded.build(build, _items(options), options, ("side", "most_damaged"), "simmim-tiny")


def check(options: argparse.Namespace) -> None:
    """`corpus check` of pictures."""
    from unmask.data.pictures import inspect

    decoded.check(inspect, _items(options), options)


def _items(options: argparse.Namespace) -> Any:
    from unmask.data.pictures.items import items_of

    return items_of(Path(options.data[0]), picture=options.picture, label=options.label, encoding=options.encoding)

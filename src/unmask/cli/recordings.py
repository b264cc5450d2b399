"""`unmask corpus` for recordings: the options, and the functions that its verbs call if the data are recordings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.cli import decoded

OPTIONS = ("rate", "longest", "trim", "recording")
FORMS = "folder, table or manifest"


def add_options(sub: Any) -> None:
    """The options of `corpus build` that are for recordings alone."""
    sub.add_argument(
        "--trim", action="store_true", default=None, help="recordings: leave silence at their beginning and end out"
    )


def shared_options(sub: Any) -> None:
    """The options of `corpus build` and `corpus check` that are for recordings alone."""
    sub.add_argument("--recording", metavar="NAME", help="recordings: the column of a table that has files or bytes")


def held(path: Path, options: argparse.Namespace) -> bool:
    """Whether the data at a path are recordings."""
    from unmask.data.recordings.items import holds_recordings

    return holds_recordings(path, recording=options.recording, column=options.column)


def build(options: argparse.Namespace) -> None:
    """`corpus build` of recordings."""
    from unmask.data.recordings.building import build

    decoded.build(build, _items(options), options, ("rate", "longest", "trim", "most_damaged"), "wav2vec2-tiny")


def check(options: argparse.Namespace) -> None:
    """`corpus check` of recordings."""
    from unmask.data.recordings import inspect

    decoded.check(inspect, _items(options), options, ("rate", "longest"))


def _items(options: argparse.Namespace) -> Any:
    from unmask.data.recordings.items import items_of

    return items_of(Path(options.data[0]), recording=options.recording, label=options.label, encoding=options.encoding)

"""`unmask corpus` for recordings: the options, and the functions that its verbs call if the data are recordings."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

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
    from unmask.data.recordings import building
    from unmask.train.display import progress

    names = ("rate", "longest", "trim", "most_damaged")
    chosen = {name: value for name in names if (value := getattr(options, name)) is not None}
    items = _items(options)
    with progress() as show:
        built = building.build(items, Path(options.out), workers=options.workers, progress=show, **chosen)
    print(built.summary())
    print(f"Next: unmask pretrain wav2vec2-tiny --corpus {options.out} --out runs/mine --minutes 30")


def check(options: argparse.Namespace) -> None:
    """`corpus check` of recordings."""
    from unmask.data.recordings import inspect
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
    from unmask.data.recordings.items import items_of

    return items_of(Path(options.data[0]), recording=options.recording, label=options.label, encoding=options.encoding)

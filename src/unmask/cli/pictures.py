"""`unmask corpus` for pictures: the options, and the functions that its verbs call if the data are pictures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

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
    from unmask.data.pictures import building
    from unmask.train.display import progress

    most = {} if options.most_damaged is None else {"most_damaged": options.most_damaged}
    items = _items(options)
    with progress() as show:
        built = building.build(
            items, Path(options.out), side=options.side, workers=options.workers, progress=show, **most
        )
    print(built.summary())
    print(f"Next: unmask pretrain simmim-tiny --corpus {options.out} --out runs/mine --minutes 30")


def check(options: argparse.Namespace) -> None:
    """`corpus check` of pictures."""
    from unmask.data.pictures import inspect
    from unmask.train.display import progress

    items = _items(options)
    if options.json:
        report = inspect.check(items, workers=options.workers)
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=True))
        return
    with progress() as show:
        report = inspect.check(items, workers=options.workers, progress=show)
    print(inspect.render(report), file=sys.stdout)


def _items(options: argparse.Namespace) -> Any:
    from unmask.data.pictures.items import items_of

    return items_of(Path(options.data[0]), picture=options.picture, label=options.label, encoding=options.encoding)

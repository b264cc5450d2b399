"""`unmask corpus` for pictures: the options, and the functions that its verbs call if the data are pictures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

OF_TEXTS = ("vocabulary_size", "kind", "tokenizer", "cased", "strip_accents", "heldout", "against")
OF_PICTURES = ("side", "picture", "label", "workers", "most_damaged")


def add_options(sub: Any) -> None:
    """The options of `corpus build` that are for pictures alone."""
    sub.add_argument(
        "--side", type=int, metavar="N", help="pictures: resize them so that the shorter side has at most N pixels"
    )
    sub.add_argument(
        "--most-damaged", type=float, metavar="SHARE", help="pictures: largest share that may be damaged (default: 0.1)"
    )
    shared_options(sub)


def shared_options(sub: Any) -> None:
    """The options of `corpus build` and `corpus check` that are for pictures alone."""
    sub.add_argument("--picture", metavar="NAME", help="pictures: the column of a table that has files or bytes")
    sub.add_argument("--label", metavar="NAME", help="pictures: the column of a table that has labels")
    sub.add_argument("--workers", type=int, metavar="N", help="pictures: processes that decode (default: 1)")


def are_given(options: argparse.Namespace) -> bool:
    """Whether the data are pictures. Raises UnmaskError for options that do not fit the data, and for pictures beside
    other data."""
    from unmask.data.pictures.items import holds_pictures

    paths = [Path(one) for one in options.data]
    found = [path for path in paths if holds_pictures(path, picture=options.picture, column=options.column)]
    wrong = [name for name in (OF_TEXTS if found else OF_PICTURES) if getattr(options, name, None) not in (None, [])]
    if wrong:
        kinds = ("texts", "pictures") if found else ("pictures", "texts")
        shown = ", ".join(options.data) or "The embedded corpus"
        raise UnmaskError(f"--{wrong[0].replace('_', '-')} is for {kinds[0]}, but {shown} has {kinds[1]}.")
    if found and len(paths) > 1:
        raise UnmaskError(
            f"Give one folder, table or IDX file of pictures, not {len(paths)}: {', '.join(options.data)}."
        )
    return bool(found)


def build(options: argparse.Namespace) -> None:
    """`corpus build` of pictures."""
    from unmask.data.pictures import building
    from unmask.train.display import progress

    most = {} if options.most_damaged is None else {"most_damaged": options.most_damaged}
    items = _items(options)
    with progress() as show:
        built = building.build(
            items, Path(options.out), side=options.side, workers=_workers(options), progress=show, **most
        )
    print(built.summary())
    print(f"Next: unmask pretrain simmim-tiny --corpus {options.out} --out runs/mine --minutes 30")


def check(options: argparse.Namespace) -> None:
    """`corpus check` of pictures."""
    from unmask.data.pictures import inspect
    from unmask.train.display import progress

    items = _items(options)
    if options.json:
        report = inspect.check(items, workers=_workers(options))
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=True))
        return
    with progress() as show:
        report = inspect.check(items, workers=_workers(options), progress=show)
    print(inspect.render(report), file=sys.stdout)


def _items(options: argparse.Namespace) -> Any:
    from unmask.data.pictures.items import items_of

    return items_of(Path(options.data[0]), picture=options.picture, label=options.label, encoding=options.encoding)


def _workers(options: argparse.Namespace) -> int:
    if options.workers is not None and options.workers < 1:
        raise UnmaskError(f"The number of workers must be at least 1, not {options.workers}.")
    return options.workers or 1

"""`unmask corpus` for pictures, recordings and records of sensors: which of them the data are, and their options."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType
from typing import Any

from unmask.cli import pictures, recordings, records
from unmask.errors import UnmaskError

SHARED = ("label", "most_damaged")
OPTIONS = {
    "texts": ("vocabulary_size", "kind", "tokenizer", "cased", "strip_accents", "heldout", "against", "part"),
    "pictures": (*SHARED, *pictures.OPTIONS),
    "recordings": (*SHARED, *recordings.OPTIONS),
    "records": (*SHARED, *records.OPTIONS),
}
"""Kind of data -> the options that it has and others lack."""
MODULES = {"pictures": pictures, "recordings": recordings, "records": records}


def add_options(sub: Any) -> None:
    """The options of `corpus build` that are not for texts."""
    pictures.add_options(sub)
    recordings.add_options(sub)
    sub.add_argument(
        "--most-damaged",
        type=float,
        metavar="SHARE",
        help="not for texts: largest share that may be damaged (default: 0.1)",
    )
    shared_options(
        sub,
        "processes that decode, or cut text into tokens (default: 1; for more than 64 MB of text, one for each core, "
        "at most 4)",
    )


def shared_options(sub: Any, workers: str = "not for texts: processes that decode (default: 1)") -> None:
    """The options of `corpus build` and `corpus check` that are not for texts, and --workers with its help."""
    pictures.shared_options(sub)
    recordings.shared_options(sub)
    records.shared_options(sub)
    sub.add_argument("--rate", type=int, metavar="N", help="samples a second: of recordings (16000), of records (300)")
    sub.add_argument(
        "--longest",
        type=float,
        metavar="SECONDS",
        help="cut longer recordings at quiet places (30), longer records into equal parts (60)",
    )
    sub.add_argument("--label", metavar="NAME", help="not for texts: the column of a table that has labels")
    sub.add_argument("--workers", type=int, metavar="N", help=workers)


def given(options: argparse.Namespace) -> ModuleType | None:
    """The module of the kind of data that is given; None for texts. Raises UnmaskError for options that do not fit the
    data, and for data that are not texts beside other data."""
    paths = [Path(one) for one in options.data]
    kind = next((name for name, one in MODULES.items() if any(one.held(path, options) for path in paths)), "texts")
    fitting = OPTIONS[kind]
    for other, names in OPTIONS.items():
        wrong = [one for one in names if one not in fitting and getattr(options, one, None) not in (None, [], False)]
        if wrong:
            shown = ", ".join(options.data) or "The embedded corpus"
            raise UnmaskError(f"--{wrong[0].replace('_', '-')} is for {other}, but {shown} has {kind}.")
    if options.workers is not None and options.workers < 1:
        raise UnmaskError(f"The number of workers must be at least 1, not {options.workers}.")
    if kind != "texts" and len(paths) > 1:
        raise UnmaskError(f"Give one {MODULES[kind].FORMS} of {kind}, not {len(paths)}: {', '.join(options.data)}.")
    return MODULES.get(kind)

"""Options for records of sensors that a model answers."""

from __future__ import annotations

import argparse
from typing import Any

NAMES = ("rate", "lead")


def record_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--rate", type=float, metavar="N", help="for records: samples a second of a file that does not say them"
    )
    parser.add_argument(
        "--lead", metavar="NAME", help="for records: the lead to read where a file has several; A,B for a model of two"
    )


def of_record(options: argparse.Namespace) -> dict[str, Any]:
    """The options that are given."""
    return {name: value for name in NAMES if (value := getattr(options, name)) is not None}

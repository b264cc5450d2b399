"""What a person reads around a result: the next useful command, and a remark on a model that has hardly learned."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def suggest(*commands: str, beside: bool = False) -> None:
    """Print the commands that follow a result.

    beside  the result on standard output may be kept in a file: print on standard error, and only if a person sees it
    """
    if beside and not _is_seen():
        return
    for number, command in enumerate(commands):
        print(f"{'Next:' if number == 0 else '  or:'} unmask {command}", file=sys.stderr if beside else sys.stdout)


def remark(options: argparse.Namespace, fields: Mapping[str, Any]) -> None:
    """Print a sentence for each model of a command that has hardly learned anything, if a person sees it."""
    if not _is_seen():
        return
    given = getattr(options, "model", None) or fields.get("model") or []
    for one in [given] if isinstance(given, str) else given:
        folder = Path(one.rpartition("=")[2])
        if not (folder / "metrics.jsonl").is_file():
            continue
        from unmask.runs.report import weakness

        if said := weakness(folder):
            print(f"unmask: {folder}: {said}", file=sys.stderr)


def _is_seen() -> bool:
    """Whether a person sees standard error."""
    return sys.stderr is not None and sys.stderr.isatty()

"""What a person reads around a result: the next useful command, and a remark on a model that has hardly learned."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def suggest(*commands: str) -> None:
    """Print the commands that follow a result."""
    for number, command in enumerate(commands):
        print(f"{'Next:' if number == 0 else '  or:'} unmask {command}")


def remark(options: argparse.Namespace, fields: Mapping[str, Any]) -> None:
    """Print a sentence for each model of a command that has hardly learned anything, if a person sees it."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    given = getattr(options, "model", None) or fields.get("model") or []
    for one in [given] if isinstance(given, str) else given:
        folder = Path(one.rpartition("=")[2])
        if not (folder / "metrics.jsonl").is_file():
            continue
        from unmask.runs.report import weakness

        if said := weakness(folder):
            print(f"unmask: {folder}: {said}", file=sys.stderr)

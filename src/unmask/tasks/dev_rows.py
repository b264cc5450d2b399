"""Dev rows: the dev rows of a fine-tuned folder with the answers of its model, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.data.labelled.rows import Row
from unmask.files import write_text
from unmask.tasks.task import Task

FILE = "dev_predictions.jsonl"
MOST = 1_000  # rows of the file
LONGEST = 100_000  # characters of the input of a row: a longer one is left out
ROOM = 1_000_000  # characters of all inputs


def write(folder: Path, task: Task, answers: Sequence[Any], rows: Sequence[Row]) -> None:
    """Write the first MOST rows into a folder: {"place", "input": what a request sends for the row, if it is not too
    long, "expected", "predicted", "error"}; the last three as `Task.compared` has them, if the task compares them."""
    lines, room = list[str](), ROOM
    for row, found in zip(rows[:MOST], answers[:MOST], strict=True):
        line: dict[str, Any] = {"place": row.place}
        if room > 0 and (item := task.form.item(row)) is not None:
            size = len(json.dumps(item, ensure_ascii=False))
            if size <= LONGEST:
                line["input"], room = item, room - size
        if (compared := task.compared(row, found)) is not None:
            line |= dict(zip(("expected", "predicted", "error"), compared, strict=True))
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    write_text(folder / FILE, "".join(lines))


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of a folder; none for a folder without them. Damaged lines are left out."""
    path = folder / FILE
    found = list[dict[str, Any]]()
    if not path.is_file():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found += [value] if isinstance(value, dict) else []
    return found

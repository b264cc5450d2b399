"""Dev rows: the dev rows of a fine-tuned folder with the answers of its model, one JSON object a line; all rows of an
evaluation in the same form."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unmask.data.labelled.rows import Row
from unmask.files import write_text
from unmask.tasks.task import Task
from unmask.tasks.written import Written

FILE = "dev_predictions.jsonl"
MOST = 1_000  # rows of the file
LONGEST = 100_000  # characters of the input of a row: a longer one is left out
ROOM = 1_000_000  # characters of all inputs


def write(folder: Path, task: Task | Written, answers: Sequence[Any], rows: Sequence[Row]) -> None:
    """Write the first MOST rows into a folder."""
    write_text(folder / FILE, "".join(lines(task, answers[:MOST], rows[:MOST], ROOM)))


def write_all(path: Path, task: Task | Written, answers: Sequence[Any], rows: Sequence[Row]) -> None:
    """Write all rows into a file; rows that the task does not compare have the "answer" (`Task.answer`) instead."""
    write_text(path, "".join(lines(task, answers, rows, answered=True)))


def lines(
    task: Task | Written, answers: Sequence[Any], rows: Sequence[Row], room: float = math.inf, *, answered: bool = False
) -> Iterator[str]:
    """{"place", "input": what a request sends for the row, if it is not too long, "expected", "predicted", "error"} of
    each row; the last three as `Task.compared` has them, if the task compares them.

    room  characters of all inputs      answered  give the answer of a row that is not compared
    """
    for row, found in zip(rows, answers, strict=True):
        line: dict[str, Any] = {"place": row.place}
        if room > 0 and (item := task.form.item(row)) is not None:
            size = len(json.dumps(item, ensure_ascii=False))
            if size <= LONGEST:
                line["input"], room = item, room - size
        if (compared := task.compared(row, found)) is not None:
            line |= dict(zip(("expected", "predicted", "error"), compared, strict=True))
        elif answered:
            line["answer"] = task.answer(row, found)
        yield json.dumps(line, ensure_ascii=False) + "\n"


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

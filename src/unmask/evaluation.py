"""Evaluation: a fine-tuned folder, ours or one of Hugging Face, scored on labelled rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask import huggingface
from unmask.config import read_json
from unmask.data import dataset
from unmask.data.dataset import Dataset
from unmask.data.rows import Row
from unmask.families import FAMILIES, Rows, family_of, read
from unmask.tasks import Regression, Task, task_of

Scores = dict[str, Any]

MOST_POSITIONS = 512  # of a row to be scored, where the model could take more


def evaluate(folder: Path | str, data: Path | str, rows: Rows | None = None, *, length: int | None = None) -> Scores:
    """Score a fine-tuned model folder on the labelled rows of a file.

    rows    names of the columns, format and the like; None: the usual ones
    length  longest sequence; None: that of `rows`, or of the run which made the folder, or what the model takes

    Returns `metrics`, `baseline` (what the task's plain reference gets on these rows), `classes` (label -> precision,
    recall, f1, support), `task`, `rows`, `description` and `notes`. Labels that are numbers are the outputs of that
    number where the folder names its labels otherwise. Raises UnmaskError for a folder that was not fine-tuned, and
    for rows that do not fit it.
    """
    loaded = huggingface.load(folder)
    task = task_of(loaded.model, loaded.labels, loaded.settings)
    tokenizer = loaded.require_tokenizer(folder)
    found = read(Path(data), _family(folder, task), rows, scoring=True)
    if isinstance(task, Regression):
        dataset.scores(found)
    elif task.labels:
        found = name_labels(found, task.labels, str(folder))
    positions = min(loaded.model.positions or MOST_POSITIONS, MOST_POSITIONS)
    said = length or (rows.length if rows else None) or _length_of_run(Path(folder))
    longest = said or getattr(task, "length", None) or positions
    encoded = task.encode(found, tokenizer, min(longest, positions))
    answers = task.answer_all(loaded.model, encoded, tokenizer.pad)
    return {
        "task": task.name,
        "rows": len(found),
        "description": found.description,
        "metrics": task.metrics(answers, found),
        "baseline": task.baseline(found, found),
        "classes": task.report(answers, found),
        "notes": [encoded.notice] if encoded.notice else [],
    }


def _family(folder: Path | str, task: Task) -> str:
    """What the folder was fine-tuned for: as its run says, since roles and tags have one head, else by that."""
    path = Path(folder) / "run.json"
    said = read_json(path).get("config", {}).get("task") if path.is_file() else None
    return said if said in FAMILIES else family_of(task)


def render_evaluation(scores: Mapping[str, Any]) -> str:
    """What `evaluate` found, as a table of text."""
    lines = [scores["description"] + ".", *scores["notes"], "", f"{'':<12}{'model':>10}{'baseline':>10}"]
    for name, value in scores["metrics"].items():
        base = scores["baseline"].get(name)
        lines.append(f"{name:<12}{value:10.4f}" + ("" if base is None else f"{base:10.4f}"))
    if scores["classes"]:
        width = max(12, *(len(name) + 2 for name in scores["classes"]))
        names = ("precision", "recall", "f1")
        lines += ["", " " * width + "".join(f"{name:>10}" for name in (*names, "support"))]
        for label, found in scores["classes"].items():
            numbers = "".join(f"{found[name]:10.4f}" for name in names)
            lines.append(f"{label:<{width}}{numbers}{int(found['support']):10,}")
    return "\n".join(lines)


def name_labels(rows: Dataset, labels: tuple[str, ...], owner: str) -> Dataset:
    """The rows with labels as the model names them: `1` is its second output, `positive` its `POSITIVE`.

    Raises UnmaskError for a label that the model does not know in any of these ways.
    """
    known = set(rows.histogram())
    by_number = {str(i): label for i, label in enumerate(labels)}
    by_lower = {label.lower(): label for label in labels}
    if known <= set(labels):
        return rows
    if known <= set(by_number):
        names = by_number
    elif {label.lower() for label in known} <= set(by_lower):
        names = {label: by_lower[label.lower()] for label in known}
    else:
        dataset.check_labels(rows, labels, f"the outputs of {owner}")
        return rows

    def named(row: Row) -> Row:
        label = names.get(row.label, row.label)
        return replace(
            row,
            label=label,
            labels=tuple(names[label] for label in row.labels),
            tags=tuple(names[tag] for tag in row.tags),
        )

    return replace(rows, rows=tuple(named(row) for row in rows))


def _length_of_run(folder: Path) -> int | None:
    """The longest sequence that the folder was fine-tuned with, so that its dev rows get the score of the run again."""
    if not (folder / "run.json").is_file():
        return None
    rows = read_json(folder / "run.json").get("config", {}).get("rows", {})
    length = rows.get("length") if isinstance(rows, dict) else None
    return length if isinstance(length, int) else None

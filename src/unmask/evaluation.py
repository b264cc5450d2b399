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
from unmask.data.tables import guess_format
from unmask.errors import UnmaskError
from unmask.tasks import Regression, task_of

MOST_POSITIONS = 512  # of a row to be scored, where the model could take more


def evaluate(
    folder: Path | str,
    data: Path | str,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    format: str | None = None,
    length: int | None = None,
) -> dict[str, Any]:
    """Score a model folder with a classification, regression or tagging head on the rows of a file.

    text, pair, label, format  as for `unmask.data.dataset.read`
    length                     longest sequence; None: that of the run which made the folder, else what the model takes

    Returns `metrics`, `baseline` (the most frequent label of these rows, or their mean, answered to all),
    `classes` (label -> precision, recall, f1, support), `task`, `rows`, `description` and `notes`. Labels that are
    numbers are the outputs of that number where the folder names its labels otherwise. Raises UnmaskError for a
    folder without such a head, and for rows that do not fit it.
    """
    loaded = huggingface.load(folder)
    task = task_of(loaded.model, loaded.labels, loaded.settings)
    tokenizer = loaded.require_tokenizer(folder)
    rows = read_rows(Path(data), task.name, text=text, pair=pair, label=label, format=format)
    rows = check_scores(rows) if isinstance(task, Regression) else name_labels(rows, task.labels, str(folder))
    positions = min(loaded.model.positions or MOST_POSITIONS, MOST_POSITIONS)
    encoded = task.encode(rows, tokenizer, min(length or _length_of_run(Path(folder)) or positions, positions))
    answers = task.answer_all(loaded.model, encoded, tokenizer.pad)
    return {
        "task": task.name,
        "rows": len(rows),
        "description": rows.description,
        "metrics": task.metrics(answers, rows),
        "baseline": task.baseline(rows, rows),
        "classes": task.report(answers, rows),
        "notes": [encoded.notice] if encoded.notice else [],
    }


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


def read_rows(path: Path, task: str, *, format: str | None = None, **columns: str | None) -> Dataset:
    """The rows of a file, as the task needs them. Raises UnmaskError where they are of the other kind."""
    if task == "tagging" and format is None and path.is_file() and guess_format(path) in ("tsv", "csv"):
        format = "conll"  # a sentence of tagged words does not fit on a line of a table
    found = dataset.read(path, format=format, **columns)
    if found.tagged != (task == "tagging"):
        has, other = ("tagged words", "tagging") if found.tagged else ("texts with a label", "classification")
        raise UnmaskError(f"{path} has {has}, which {task} cannot use; they are rows for {other}.")
    return found


def check_scores(rows: Dataset) -> Dataset:
    """The same rows, whose labels are numbers. Raises UnmaskError where one is not."""
    dataset.scores(rows)
    return rows


def name_labels(rows: Dataset, labels: tuple[str, ...], owner: str) -> Dataset:
    """The rows with labels as the model names them: `1` is its second output, `positive` its `POSITIVE`.

    Raises UnmaskError for a label that the model does not know in any of these ways.
    """
    known = set(rows.labels)
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
    renamed = (
        replace(row, label=names.get(row.label, row.label), tags=tuple(names[tag] for tag in row.tags)) for row in rows
    )
    return Dataset(rows.path, tuple(renamed), rows.columns)


def _length_of_run(folder: Path) -> int | None:
    """The longest sequence that the folder was fine-tuned with, so that its dev rows get the score of the run again."""
    if not (folder / "run.json").is_file():
        return None
    rows = read_json(folder / "run.json").get("config", {}).get("rows", {})
    length = rows.get("length") if isinstance(rows, dict) else None
    return length if isinstance(length, int) else None

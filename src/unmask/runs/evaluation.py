"""Evaluation: the scores of a fine-tuned folder, of unmask or Hugging Face, on labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from unmask import huggingface
from unmask.data.labelled import glue
from unmask.data.labelled.dataset import Dataset
from unmask.errors import UnmaskError
from unmask.kernels.processor import Precision
from unmask.models.model import Model
from unmask.serve.predictor import MOST_TOKENS, run_of
from unmask.serve.written import WrittenPredictor
from unmask.tasks import TASKS, Task, dev_rows, doubting, task_of
from unmask.tasks.config import scored_rows
from unmask.tasks.reading import check_scored, read
from unmask.tasks.rows import Rows
from unmask.tasks.transcripts import Searching, searched

Scores = dict[str, Any]
Ready = Callable[[Model], Model]


def evaluate(
    folder: Path | str,
    data: Path | str,
    rows: Rows | Mapping[str, Any] | None = None,
    *,
    length: int | None = None,
    no_answer: float | None = None,
    search: Searching | None = None,
    ready: Ready | None = None,
    out: Path | str | None = None,
) -> Scores:
    """Score a fine-tuned model folder on the labelled rows of a file.

    data    a file, or with a benchmark the folder of its files: the dev rows, or the test rows if it has no dev rows
    rows    how the rows are read (columns, format, ...), as a config or by the names of its fields; fields that are not
            given are those of the run that wrote the folder, else the defaults
    length  longest sequence; None: that of `rows`, else of the run that wrote the folder, else the most the model takes
    no_answer  threshold of question answering: the model gives no answer if 'no answer' scores higher than the best
               span by more than this (`Found.doubt`); None: the threshold of the folder
    search  the search for transcripts; None: the most probable label of each frame
    ready   function from the folder's model to the one that predicts, such as the same model on another device or in
            another precision; None: the folder's model
    out     file for the rows with their answers (`tasks.dev_rows`); None: none

    Returns `metrics`, `baseline` (the scores of the task's plain `reference` on these rows), `classes` (label ->
    precision, recall, f1, support), `curves` and `tables` (as `Task` has them), `task`, `rows`, `description` and
    `notes`. If the rows have numbers as labels and the folder has names, a number is the index of an output.

    The evaluation of a sentence encoder depends on the rows: correlation for scores, rank for texts that belong
    together, distances for triplets. For classes it uses the head that a run with the softmax loss keeps, else a probe
    (`pair_classes.ProbedPairs`). Raises UnmaskError for a folder that was not fine-tuned, and for rows that do not fit
    the model.
    """
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    if not Path(data).exists():
        raise UnmaskError(f"There is no file {data}.")
    model = loaded.model if ready is None else ready(loaded.model)
    task = task_of(loaded.model, loaded.labels, loaded.settings)
    processor = task.processor_of(loaded, folder)
    found, length = _rows_of(Path(folder), Path(data), type(task), rows, length)
    if no_answer is not None:
        task = doubting(task, no_answer)
    if search is not None:
        task = searched(task, search)
    task = task.for_rows(found, Path(folder), model)
    found = task.named(found, str(folder))
    usual = min(model.positions or MOST_TOKENS, MOST_TOKENS)
    longest = length or task.length or usual
    encoded = task.encode(found, processor, min(longest, model.positions or longest))
    task.check_encoded(encoded)
    answers = task.answer_all(model, encoded, processor.pad)
    scores = task.judge(model, answers, found)
    if out is not None:
        dev_rows.write_all(Path(out), task, answers, list(found))
    return {
        "task": task.name,
        "rows": len(found),
        "description": found.description,
        "metrics": scores,
        "reference": task.reference,
        "baseline": task.baseline(found, found),
        "classes": task.report(answers, found),
        "curves": task.curves(answers, found),
        "tables": task.tables(answers, found),
        "notes": [note for note in (encoded.notice, task.notice, task.advice(scores)) if note],
    }


def evaluate_written(
    folder: Path | str,
    data: Path | str,
    rows: Rows | Mapping[str, Any] | None = None,
    *,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
    out: Path | str | None = None,
) -> Scores:
    """As `evaluate`, for a T5 that `unmask finetune` trained, which generates its answers as text.

    `metrics` has "answered": the share of outputs that are valid answers of the task. Raises UnmaskError for a folder
    that was not fine-tuned on a task, and for rows that do not fit the model.
    """
    predictor = WrittenPredictor(folder, device=device, precision=precision)
    if not Path(data).exists():
        raise UnmaskError(f"There is no file {data}.")
    task = predictor.task
    given = rows.length if isinstance(rows, Rows) else (rows or {}).get("length")
    if given is not None:
        raise UnmaskError("A T5 always reads up to 512 tokens of a text: leave --length out.")
    found, _ = _rows_of(Path(folder), Path(data), task.task, rows)
    found = task.named(found, str(folder))
    texts = [[part.text for part in parts] for parts in predictor.written(list(found))]
    answers = [text for parts in texts for text in parts]
    if out is not None:
        dev_rows.write_all(Path(out), task, texts, list(found))
    plain = task.plain().for_rows(found, Path(folder))
    return {
        "task": task.task.name,
        "rows": len(found),
        "description": found.description,
        "metrics": task.scores(answers, list(found)),
        "reference": plain.reference,
        "baseline": plain.baseline(found, found),
        "classes": task.report(answers, list(found)),
        "notes": predictor.translator.notes,
    }


def _rows_of(
    folder: Path, data: Path, task: type[Task], given: Rows | Mapping[str, Any] | None, length: int | None = None
) -> tuple[Dataset, int | None]:
    """The rows of a file or the labelled rows of a benchmark's folder, and the longest sequence. Fields that are not
    given are those of the run that wrote the folder, so that its dev rows get the same scores again."""
    run = run_of(folder)
    task = TASKS.get(str(run.get("task")), task)  # roles and tags have one head
    rows = scored_rows(task, given)
    check_scored(rows)
    of_run = run.get("rows")
    if isinstance(of_run, Mapping):
        rows = rows.replace(**{name: of_run[name] for name in rows.kept(data) if name in of_run})
    if task.folders or not data.is_dir():
        return read(data, task.task_name, rows, scoring=True), length or rows.length
    if rows.benchmark is None:
        raise UnmaskError(f"{data} is a folder: give a file, or name the data set that it holds with --benchmark.")
    part = "dev" if "dev" in glue.find(rows.benchmark).parts else "test"
    return glue.split(rows.benchmark, data, part), length or rows.length


def render_evaluation(scores: Mapping[str, Any]) -> str:
    """The result of `evaluate` as a table of text."""
    wide = max(12, *(len(name) + 2 for name in scores["metrics"]))
    lines = [scores["description"] + ".", *scores["notes"], f"Baseline from these rows alone: {scores['reference']}."]
    if (precision := scores.get("precision", "fp32")) != "fp32":
        lines.append(f"Precision: {precision}; the scores of a run are in fp32, as with --precision fp32.")
    lines += ["", f"{'':<{wide}}{'model':>10}{'baseline':>10}"]
    for name, value in scores["metrics"].items():
        base = scores["baseline"].get(name)
        lines.append(f"{name:<{wide}}{value:10.4f}" + ("" if base is None else f"{base:10.4f}"))
    if scores["classes"]:
        width = max(12, *(len(name) + 2 for name in scores["classes"]))
        names = ("precision", "recall", "f1")
        lines += ["", " " * width + "".join(f"{name:>10}" for name in (*names, "support"))]
        for label, found in scores["classes"].items():
            numbers = "".join(f"{found[name]:10.4f}" for name in names)
            lines.append(f"{label:<{width}}{numbers}{int(found['support']):10,}")
    for title, table in scores.get("tables", {}).items():
        cells = [
            table["heads"],
            *([f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row] for row in table["rows"]),
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += [
            "",
            f"{title}:",
            *("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells),
        ]
    return "\n".join(lines)

"""Evaluation: a fine-tuned folder, ours or one of Hugging Face, scored on labelled rows."""

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
from unmask.tasks import TASKS, Task, doubting, task_of
from unmask.tasks.config import scored_rows
from unmask.tasks.reading import check_scored, read
from unmask.tasks.rows import Rows

Scores = dict[str, Any]
Ready = Callable[[Model], Model]


def evaluate(
    folder: Path | str,
    data: Path | str,
    rows: Rows | Mapping[str, Any] | None = None,
    *,
    length: int | None = None,
    no_answer: float | None = None,
    ready: Ready | None = None,
) -> Scores:
    """Score a fine-tuned model folder on the labelled rows of a file.

    data    a file, or with a benchmark the folder of its files: its dev rows, or where it has none its test rows
    rows    names of the columns, format and the like, as a config or by the names of its fields; what is not said is as
            in the run which made the folder, and where no run is known, the usual
    length  longest sequence; None: that of `rows`, or of the run which made the folder, or what the model takes
    no_answer  threshold of question answering: nothing is answered where no answer is likelier by more than this
               (`Found.doubt`); None: as the folder says
    ready   the folder's model -> what answers in its place: on another device, in another precision; None: itself

    Returns `metrics`, `baseline` (what the task's plain `reference` gets on these rows), `classes` (label -> precision,
    recall, f1, support), `task`, `rows`, `description` and `notes`. Labels that are numbers are the outputs of that
    number where the folder names its labels otherwise.

    A sentence encoder is scored by what the rows say: scores by correlation, texts that belong together by rank,
    triplets by which text is nearer, classes by the head that a run with the softmax loss keeps, else by a probe
    (`pair_classes.ProbedPairs`). Raises UnmaskError for a folder that was not fine-tuned, and for rows that do not fit
    it.
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
    task = task.for_rows(found, Path(folder), model)
    found = task.named(found, str(folder))
    usual = min(model.positions or MOST_TOKENS, MOST_TOKENS)
    longest = length or task.length or usual
    encoded = task.encode(found, processor, min(longest, model.positions or longest))
    answers = task.answer_all(model, encoded, processor.pad)
    scores = task.judge(model, answers, found)
    return {
        "task": task.name,
        "rows": len(found),
        "description": found.description,
        "metrics": scores,
        "reference": task.reference,
        "baseline": task.baseline(found, found),
        "classes": task.report(answers, found),
        "notes": [note for note in (encoded.notice, task.notice, task.advice(scores)) if note],
    }


def evaluate_written(
    folder: Path | str,
    data: Path | str,
    rows: Rows | Mapping[str, Any] | None = None,
    *,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
) -> Scores:
    """As `evaluate`, of a folder whose model writes its answers: a T5 that `unmask finetune` wrote.

    `metrics` has the share of texts that are answers to what was asked as "answered". Raises UnmaskError for a folder
    that was not fine-tuned on a task, and for rows that do not fit it.
    """
    predictor = WrittenPredictor(folder, device=device, precision=precision)
    if not Path(data).exists():
        raise UnmaskError(f"There is no file {data}.")
    task = predictor.task
    given = rows.length if isinstance(rows, Rows) else (rows or {}).get("length")
    if given is not None:
        raise UnmaskError("A T5 reads up to 512 tokens of a text, whatever length is asked for: leave it out.")
    found, _ = _rows_of(Path(folder), Path(data), task.task, rows)
    found = task.named(found, str(folder))
    answers = [part.text for parts in predictor.written(list(found)) for part in parts]
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
    """The rows of a file, or those of a benchmark's folder that have labels, and the longest sequence. What is not
    given is as in the run which made the folder, so that its dev rows get its scores again."""
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
        raise UnmaskError(f"{data} is a folder: give a file, or say whose folder it is with --benchmark.")
    part = "dev" if "dev" in glue.find(rows.benchmark).parts else "test"
    return glue.split(rows.benchmark, data, part), length or rows.length


def render_evaluation(scores: Mapping[str, Any]) -> str:
    """What `evaluate` found, as a table of text."""
    wide = max(12, *(len(name) + 2 for name in scores["metrics"]))
    lines = [scores["description"] + ".", *scores["notes"], f"Baseline: {scores['reference']}."]
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
    return "\n".join(lines)

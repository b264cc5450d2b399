"""Evaluation: a fine-tuned folder, ours or one of Hugging Face, scored on labelled rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unmask import huggingface
from unmask.data import dataset, glue
from unmask.data.dataset import Dataset
from unmask.data.rows import Question, Row
from unmask.data.tables import format_by_name
from unmask.errors import UnmaskError
from unmask.families import FAMILIES, TAKERS, Rows, check_scored, family_of, read
from unmask.kernels.processor import Precision
from unmask.models.model import Model
from unmask.serve.predictor import MOST_TOKENS, run_of
from unmask.serve.written import WrittenPredictor
from unmask.tasks import (
    Classification,
    Embedding,
    MultiLabel,
    MultipleChoice,
    QuestionAnswering,
    Regression,
    Tagging,
    Task,
    doubting,
    pair_classes,
    task_of,
)

Scores = dict[str, Any]
Ready = Callable[[Model], Model]


def evaluate(
    folder: Path | str,
    data: Path | str,
    rows: Rows | None = None,
    *,
    length: int | None = None,
    no_answer: float | None = None,
    ready: Ready | None = None,
) -> Scores:
    """Score a fine-tuned model folder on the labelled rows of a file.

    data    a file, or with a benchmark the folder of its files: its dev rows, or where it has none its test rows
    rows    names of the columns, format and the like; what is not said is as in the run which made the folder, and
            where no run is known, the usual
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
    tokenizer = loaded.require_tokenizer(folder)
    run = run_of(Path(folder))
    rows = _as_the_run(rows or Rows(), run, Path(data))
    found = _read(Path(data), _family(task, run), rows)
    if isinstance(task, Embedding):
        task = pair_classes.for_rows(task, Path(folder), model, found)
    notes: list[str] = []
    if no_answer is not None:
        task = doubting(task, no_answer)
    elif isinstance(task, QuestionAnswering) and not task.unanswerable and _some_impossible(found):
        task = task.doubting(math.inf)
        notes.append(_ALWAYS)
    if isinstance(task, Regression):
        dataset.scores(found)
    elif task.labels:
        found = name_labels(found, task.labels, str(folder))
    usual = min(model.positions or MOST_TOKENS, MOST_TOKENS)
    longest = length or rows.length or getattr(task, "length", None) or usual
    encoded = task.encode(found, tokenizer, min(longest, model.positions or longest))
    answers = task.answer_all(model, encoded, tokenizer.pad)
    scores = task.judge(model, answers, found)
    if _ALWAYS in notes:
        notes.append(_advice(scores))
    return {
        "task": task.name,
        "rows": len(found),
        "description": found.description,
        "metrics": scores,
        "reference": task.reference,
        "baseline": task.baseline(found, found),
        "classes": task.report(answers, found),
        "notes": [note for note in (encoded.notice, getattr(task, "notice", ""), *notes) if note],
    }


def evaluate_written(
    folder: Path | str,
    data: Path | str,
    rows: Rows | None = None,
    *,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
) -> Scores:
    """As `evaluate`, of a folder whose model writes its answers: a T5 that `unmask finetune` wrote.

    `metrics` has the share of texts that are answers to what was asked as "answered". Raises UnmaskError for a folder
    that was not fine-tuned on a task, and for rows that do not fit it.
    """
    if rows is not None and rows.length is not None:
        raise UnmaskError("A T5 reads up to 512 tokens of a text, whatever length is asked for: leave it out.")
    predictor = WrittenPredictor(folder, device=device, precision=precision)
    if not Path(data).exists():
        raise UnmaskError(f"There is no file {data}.")
    task, run = predictor.task, run_of(Path(folder))
    said = run.get("task")
    read_as = _as_the_run(rows or Rows(), run, Path(data))
    found = _read(Path(data), said if said in FAMILIES else task.family, read_as)
    if task.family == "regression":
        dataset.scores(found)
    elif task.family in ("classification", "tagging"):
        found = replace(found, rows=tuple(replace(row, label=task.word(row.label)) for row in found))
        found = name_labels(found, task.labels, str(folder))
    answers = [part.text for parts in predictor.written(list(found)) for part in parts]
    plain = _PLAIN[task.family](task.labels)
    if isinstance(plain, QuestionAnswering) and _some_impossible(found):
        plain = plain.doubting(math.inf)  # of which the plain answer is none
    return {
        "task": task.kind,
        "rows": len(found),
        "description": found.description,
        "metrics": task.scores(answers, list(found)),
        "reference": plain.reference,
        "baseline": plain.baseline(found, found),
        "classes": task.report(answers, list(found)),
        "notes": predictor.translator.notes,
    }


_PLAIN: dict[str, Callable[[tuple[str, ...]], Task]] = {
    "classification": Classification,
    "multilabel": MultiLabel,
    "tagging": Tagging,
    "regression": lambda _: Regression(),
    "question-answering": lambda _: QuestionAnswering(),
    "multiple-choice": lambda _: MultipleChoice(),
}
"""What a written task is compared with: that of an encoder."""


def _some_impossible(rows: Dataset) -> bool:
    return any(isinstance(row, Question) and not row.possible for row in rows)


_ALWAYS = (
    "Some of these questions have no answer, and the folder does not say when to give none: exact_match and f1 are of "
    "an answer to every question."
)


def _advice(scores: Mapping[str, float]) -> str:
    """How to use the threshold that is best on the rows, which makes its score optimistic."""
    threshold = math.ceil(scores["best_f1_threshold"] * 1e6) / 1e6  # a lower one would drop the last answer that counts
    return (
        f"The best threshold on these rows gives F1 {scores['best_f1']:.4f}, a little more than it will on others; use "
        f"it with: unmask predict --no-answer {threshold:.6f} (also of unmask evaluate)."
    )


def _read(data: Path, family: str, rows: Rows) -> Dataset:
    """The rows of a file, or those of a benchmark's folder that have labels."""
    if not data.is_dir():
        return read(data, family, rows, scoring=True)
    if rows.benchmark is None:
        raise UnmaskError(f"{data} is a folder: give a file, or say whose folder it is with --benchmark.")
    return glue.split(rows.benchmark, data, "dev" if "dev" in glue.find(rows.benchmark).parts else "test")


def _family(task: Task, run: Mapping[str, Any]) -> str:
    """What a folder was fine-tuned for: as its run says, since roles and tags have one head, else by that."""
    said = run.get("task")
    return said if said in FAMILIES else family_of(task)


def _as_the_run(rows: Rows, run: Mapping[str, Any], data: Path) -> Rows:
    """How rows are read, and cut: what is not said as in the run, so that its dev rows get its scores again."""
    check_scored(rows)
    given = run.get("rows")
    if not isinstance(given, Mapping):
        return rows
    names = ["several", "length", "skip", "benchmark"]
    if not any((rows.text, rows.pair, rows.label, rows.negative, rows.predicate)):
        names += ["text", "pair", "label", "negative", "predicate"]
    if format_by_name(data) is None:
        names.append("format")
    task = run.get("task")
    names = [name for name in names if task not in FAMILIES or task in TAKERS.get(name, FAMILIES)]  # as older runs had
    usual = Rows().places()
    return rows.replace(**{name: given[name] for name in names if name in given and getattr(rows, name) == usual[name]})


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


def name_labels(rows: Dataset, labels: tuple[str, ...], owner: str) -> Dataset:
    """The rows with labels as the model names them: `1` is its second output, `positive` its `POSITIVE`.

    Raises UnmaskError for a label that the model does not know in any of these ways. Where its own labels are such
    numbers, as stars from 1 to 5 are, `0` is none of them: all others would move by one.
    """
    known = set(rows.histogram())
    by_number = {str(i): label for i, label in enumerate(labels)}
    by_lower = {label.lower(): label for label in labels}
    if known <= set(labels):
        return rows
    if known <= set(by_number) and not set(labels) & set(by_number):
        names = by_number
    elif {label.lower() for label in known} <= set(by_lower):
        names = {label: label if label in labels else by_lower[label.lower()] for label in known}
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

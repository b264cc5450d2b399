"""Cross-validation: a model for each fold of the rows, trained on the others; the scores of the folds, and of all rows.

The folder has a run of `finetune` for each fold, fold-1, fold-2, ..., and folds.json with the scores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from unmask import huggingface, metrics
from unmask.config import read_json
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, plural
from unmask.files import sweep, write_text
from unmask.kernels import devices
from unmask.runs.finetuning.config import FineTuning
from unmask.runs.finetuning.prepared import Notes
from unmask.runs.finetuning.report import FOLDS, RESULTS, classes_section, confusion_section, summary
from unmask.runs.finetuning.run import RECIPE, VALIDATION, finetuned, refuse_taken, verb_of, write_config
from unmask.runs.report import Report, write_report
from unmask.tasks import Task, settings_of, task_of
from unmask.tasks.reading import read_sets
from unmask.train import checkpoint, distributed, report
from unmask.train.checkpoint import LOCK, RUN
from unmask.train.display import Display

TRIALS = 200  # of resampling, for the intervals of the scores over all rows
OF_ALL = "all rows, each answered by the model of its fold"


def cross_validate(
    config: FineTuning,
    out: Path | str,
    *,
    recipe: str = RECIPE,
    display: Display | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Train a model for each of the `rows.folds` folds, and score it on the rows of its fold, on which nothing is
    chosen: the dev rows are others. One seed a fold, unless `seeds` is given; then the best on the dev rows counts.

    resume  continue the interrupted cross-validation in `out`; folds that have ended are kept

    Returns the content of folds.json: `task`, `metric`, `folds` (the results of each, as in its results.json),
    `summary` and `baseline` (metric -> mean, standard deviation and worst over the folds), `whole` (`metrics`,
    `intervals`, `classes`, `confusion` and `tables` of all rows, each answered by the model of its fold; empty where
    the answers of several models cannot be compared) and `notes`. Raises UnmaskError as `finetune` does, and for rows
    that cannot be divided into so many folds; Stopped if a signal ends the run.
    """
    out = Path(out)
    distributed.init(config.fit.device)
    if resume:
        recipe = read_json(out / RUN).get("recipe", recipe)
    else:
        refuse_taken(out)
    distributed.barrier()  # all processes check the folder before the first one writes
    say = Notes(display)
    config = config.replace(seeds=config.seeds or 1)
    folds = config.each_fold()
    _rows(config.replace(rows={"fold": 1}))  # a check, before anything is written
    with (
        checkpoint.going_on(verb_of(config), out),
        checkpoint.Lock(out) if distributed.is_main() else nullcontext(),
    ):
        if distributed.is_main():
            sweep(out)
            write_config(out, config, recipe, VALIDATION)
        for fold, one in enumerate(folds, 1):
            folder = folder_of(out, fold)
            if (folder / RESULTS).exists() and not (folder / LOCK).exists():
                say(f"Fold {fold} has ended before.", note=False)
                continue
            say(f"Fold {fold} of {len(folds)}:", note=False)
            finetuned(one, folder, recipe, display, resume=(folder / RUN).exists())
        found = {}
        if distributed.is_main():
            found = _found(folds, config, out, say)
            write_text(out / FOLDS, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
            write_report(out)
            (out / LOCK).unlink(missing_ok=True)
            say(render(found), note=False)
        distributed.barrier()
    return found


def folder_of(out: Path, fold: int) -> Path:
    """The folder of the run of a fold, from 1."""
    return out / f"fold-{fold}"


def _rows(config: FineTuning) -> dict[str, Dataset]:
    """The rows of a fold, as its run reads them."""
    return read_sets(config.task, config.rows, lambda _: None, np.random.default_rng(config.seed))


def _found(folds: Sequence[FineTuning], config: FineTuning, out: Path, say: Notes) -> dict[str, Any]:
    """The content of folds.json, from the folders of all folds."""
    results = [read_json(folder_of(out, fold) / RESULTS) for fold in range(1, len(folds) + 1)]
    kept = [next(row for row in one["seeds"] if row["seed"] == one["kept"]) for one in results]
    return {
        "task": results[0]["task"],
        "metric": results[0]["metric"],
        "folds": [{"fold": number, **row} for number, row in enumerate(kept, 1)],
        "summary": summary([row["test"] for row in kept]),
        "baseline": summary([one["baseline"]["test"] for one in results]),
        "whole": _whole(folds, out, say),
        "notes": say.notes,
        "config": config.to_dict(),
    }


def _whole(folds: Sequence[FineTuning], out: Path, say: Notes) -> dict[str, Any]:
    """The scores of all rows, each answered by the model of its fold; empty, with a note, where answers of several
    models cannot be scored together."""
    if folds[0].kind.gives_vectors or huggingface.holds_encoder_decoder(folder_of(out, 1)):
        say("The folds are scored one by one: vectors, and texts, of several models are not scored together.")
        return {}
    tasks, answers, rows = list[Task](), list[Any](), list[Row]()
    for fold, config in enumerate(folds, 1):
        own = _rows(config)["test"]
        task, found = _answered(folder_of(out, fold), own, config.fit.device)
        tasks.append(task)
        answers += found
        rows += own
    task = tasks[0]
    numbers = task.outcomes == "score"  # in the units of the rows, whatever the models learned them in
    if any(one.labels != task.labels or not (numbers or settings_of(one) == settings_of(task)) for one in tasks):
        say("The folds are scored one by one: their labels or thresholds differ.")
        return {}

    def score(drawn: np.ndarray) -> Mapping[str, float]:
        return task.metrics([answers[i] for i in drawn], [rows[i] for i in drawn])

    names = [row.group or str(i) for i, row in enumerate(rows)]
    ends = metrics.intervals(score, names, trials=TRIALS) if len(set(names)) > 1 else {}
    return {
        "rows": len(rows),
        "groups": len(set(names)),
        "metrics": dict(score(np.arange(len(rows)))),
        "intervals": ends,
        "classes": task.report(answers, rows),
        "confusion": task.confusion(answers, rows),
        "tables": task.tables(answers, rows),
    }


def _answered(folder: Path, rows: Sequence[Row], device: str) -> tuple[Task, list[Any]]:
    """The task of a folder, and the answers of its model to some rows."""
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    task = task_of(loaded.model, loaded.labels, loaded.settings)
    processor = task.processor_of(loaded, folder)
    encoded = task.encode(rows, processor, int(read_json(folder / RUN)["config"]["rows"]["length"]))
    return task, task.answer_all(loaded.model.to(devices.choose(device)), encoded, processor.pad)


# ------------------------------------------------------------------------------------------------ the results


def _table(found: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Names of the metrics, and the rows of the table: a name and the value of each metric, or a text."""
    baseline, whole = found["baseline"], found["whole"]
    names = [name for name in found["summary"] if name in baseline or name == found["metric"]]
    rows = [[f"fold {one['fold']}", *(one["test"][name] for name in names)] for one in found["folds"]]
    rows += [[kind, *(found["summary"][name][kind] for name in names)] for kind in ("mean", "std")]
    if whole:
        rows.append(["all rows", *(whole["metrics"].get(name) for name in names)])
        for head, end in (("95 % from", 0), ("to", 1)):
            rows.append([head, *(whole["intervals"].get(name, (None, None))[end] for name in names)])
    rows.append(["baseline", *(baseline[name]["mean"] if name in baseline else None for name in names)])
    return names, rows


def _about(found: Mapping[str, Any]) -> str:
    whole = found["whole"]
    if not whole:
        return ""
    drawn = plural(whole["groups"], "group" if whole["groups"] < whole["rows"] else "row")
    return (
        f"'all rows' scores the {whole['rows']:,} rows together, each answered by the model of its fold; its 95 % "
        f"intervals are by resampling {drawn}. The baseline is the mean over the folds."
    )


def render(found: Mapping[str, Any]) -> str:
    """The metrics of each fold, their mean and deviation, and those of all rows, as a table of text."""
    names, rows = _table(found)
    cells = [[head, *("" if value is None else f"{value:.4f}" for value in values)] for head, *values in rows]
    table = [["test", *names], *cells]
    widths = [max(9, *map(len, column)) + 2 for column in zip(*table, strict=True)][1:]
    lines = [f"{head:<11}" + "".join(map(str.rjust, row, widths)) for head, *row in table]
    return "\n".join(filter(None, [*lines, _about(found)]))


def report_of(folder: Path, facts: Mapping[str, Any]) -> Report:
    """The report of a cross-validation. Raises UnmaskError for one that has not ended."""
    if not (folder / FOLDS).exists():
        raise UnmaskError(f"{folder} holds a cross-validation that has not ended, and has no scores yet.")
    found = read_json(folder / FOLDS)
    names, rows = _table(found)
    heads = ["", *(name.replace("_", " ") for name in names)]
    sections: list[report.Section] = [
        report.Text(found["notes"]),
        report.Table("Scores of the folds", heads, rows, note=_about(found)),
    ]
    whole = found["whole"]
    for title, one in whole.get("tables", {}).items():
        sections.append(report.Table(f"{title}, on {OF_ALL}", one["heads"], one["rows"]))
    if whole.get("classes"):
        sections.append(classes_section(whole["classes"], OF_ALL))
    if whole.get("confusion"):
        sections.append(confusion_section(whole["confusion"], OF_ALL, ""))
    config = found["config"]
    start = config["model"] or facts.get("recipe")
    subtitle = f"{start} on {config['rows']['train']}, {plural(len(found['folds']), 'fold')}"
    return Report(f"Cross-validation: {found['task']}", subtitle, sections, config)

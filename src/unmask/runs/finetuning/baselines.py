"""Baselines of a task: plain methods on word counts, scored on the rows of a fine-tuning run with its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from unmask.errors import UnmaskError
from unmask.runs.finetuning.report import summary
from unmask.tasks import task_named
from unmask.tasks.config import TaskConfig
from unmask.tasks.reading import read_sets
from unmask.tasks.rows import TaskOptions
from unmask.tasks.task import Say, Score


@dataclass(frozen=True, kw_only=True)
class Baselines(TaskConfig):
    """The rows and the scores of baselines; the fields are those of a fine-tuning run (`FineTuning`).

    seed  chooses the held-out rows if there are no dev rows, as in a run with this seed
    """

    options: TaskOptions = field(default_factory=TaskOptions)
    seed: int = 0

    CLASSES: ClassVar[Mapping[str, str]] = {"rows": "rows_class", "options": "scoring_class"}


def baselines(config: Baselines, say: Say) -> dict[str, Any]:
    """Score every baseline on the dev rows, and on the test rows if there are any; with folds that are tested in turn,
    on the rows of each fold.

    Returns `task`, `reference` (describes the task's baseline), `method` (describes the others) and `scores`: baseline
    -> split -> the metrics that the task's baseline has, and seconds. With folds, the splits are the means over the
    folds ("test") and the standard deviation ("std"). Raises UnmaskError as `finetune` does, and for
    texts without words.
    """
    if config.rows.train is None:
        raise UnmaskError("Give training rows: --train FILE.")
    if config.rows.length is not None:
        raise UnmaskError("--length cuts the input of a model, but baselines count words of whole texts: leave it out.")
    if config.rows.in_turn:
        return _over_folds([baselines(one, say) for one in config.each_fold()])
    kind = task_named(config.task)
    sets = read_sets(config.task, config.rows, say, np.random.default_rng(config.seed))
    held_out = config.rows.dev is None and config.rows.benchmark is None
    task = kind.for_references(sets, kind.options_class(**vars(config.options)), say, held_out=held_out)
    train, others = sets["train"], {name: rows for name, rows in sets.items() if name != "train"}
    scores: dict[str, dict[str, Any]] = {}
    with suppress(UnmaskError):  # a task that compares rows cannot score one
        task.baseline(train.rows[:1], train.rows)  # loads libraries before the time is measured
    methods: dict[str, Callable[[], Score]] = {"baseline": lambda: partial(task.baseline, train=train.rows)}
    methods |= task.references(train)
    for name, learn in methods.items():
        begin = time.perf_counter()
        score = learn()
        found = {split: dict(score(rows)) for split, rows in others.items()}
        scores[name] = {**found, "seconds": time.perf_counter() - begin}
    for found in scores.values():
        for split in others:
            found[split] = {metric: found[split][metric] for metric in scores["baseline"][split]}
    return {"task": config.task, "reference": task.reference, "method": task.references_are, "scores": scores}


def _over_folds(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The results of all folds as one."""
    scores: dict[str, dict[str, Any]] = {}
    for name in found[0]["scores"]:
        of_metrics = summary([one["scores"][name]["test"] for one in found])
        means, spread = ({metric: values[part] for metric, values in of_metrics.items()} for part in ("mean", "std"))
        scores[name] = {"test": means, "std": spread, "seconds": sum(one["scores"][name]["seconds"] for one in found)}
    return {**found[0], "folds": len(found), "scores": scores}


def render(found: Mapping[str, Any]) -> str:
    """The result of `baselines` as a table of text for each split."""
    lines, others = [f"baseline: {found['reference']}."], list(found["scores"])[1:]
    lines += [f"{', '.join(others)}: {found['method']}."] if others else []
    lines += [f"Mean and standard deviation over {found['folds']} folds."] if "folds" in found else []
    for split in (split for split in ("dev", "test", "std") if split in found["scores"]["baseline"]):
        names = list(found["scores"]["baseline"][split])
        lines += ["", f"{split:<10}" + "".join(f"{name:>{_width(name)}}" for name in names) + f"{'seconds':>10}"]
        for name, row in found["scores"].items():
            cells = "".join(f"{row[split][metric]:{_width(metric)}.4f}" for metric in names)
            lines.append(f"{name:<10}{cells}{row['seconds']:10.1f}")
    return "\n".join(lines)


def _width(name: str) -> int:
    return max(11, len(name) + 2)

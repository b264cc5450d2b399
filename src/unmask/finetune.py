"""Fine-tuning: a model folder and labelled rows in; the best model of several seeds, its scores and a report out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask import huggingface
from unmask.config import Config
from unmask.data import dataset
from unmask.data.dataset import Dataset
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.evaluation import evaluate, read_rows, render_evaluation
from unmask.files import write_text
from unmask.finetune_report import render_result, shown, write_report
from unmask.fit import LOWER_IS_BETTER, Examples, Fit, Fitted, fit
from unmask.models.model import Model
from unmask.tasks import Classification, Encoded, Regression, Tagging, Task
from unmask.train import distributed
from unmask.train.trainer import Display, Silent

__all__ = [
    "Examples",
    "FineTuning",
    "Fit",
    "Fitted",
    "Result",
    "Rows",
    "evaluate",
    "finetune",
    "fit",
    "render_evaluation",
]

LONGEST = 128  # tokens of a row, where nothing else is said


@dataclass(frozen=True, kw_only=True)
class Rows(Config):
    """Where the labelled rows are.

    train, dev, test  files; without `dev`, every tenth row of `train` is held out in its place
    text, pair, label names of the columns, where they are not the usual ones (`unmask.data.dataset.read`)
    format            where a file's name does not tell
    length            longest sequence, in tokens; None: 128, or what the model can take where that is less
    allow_overlap     go on though many rows of `dev` are also in `train`
    """

    train: Path | None = None
    dev: Path | None = None
    test: Path | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    format: str | None = None
    length: int | None = None
    allow_overlap: bool = False


@dataclass(frozen=True, kw_only=True)
class FineTuning(Config):
    """A fine-tuning run.

    model         folder of the pre-trained model
    seed, seeds   the first, and how many are run: they decide the new head, the order of the rows and dropout
    from_scratch  keep the tokenizer and the sizes of `model` but none of its weights, for comparison
    """

    model: Path | None = None
    task: Literal["classification", "regression", "tagging"] = "classification"
    rows: Rows = field(default_factory=Rows)
    fit: Fit = field(default_factory=Fit)
    seed: int = 0
    seeds: int = 1
    from_scratch: bool = False


@dataclass(frozen=True)
class Result:
    """A run of all seeds, as it stands in results.json.

    seeds     for each: seed, step, total, stopped, dev and (where there is one) test metrics
    baseline  split -> metrics of the most frequent label, or the mean score, of the training rows
    summary   split -> metric -> mean, std (of the sample) and worst over the seeds
    kept      the seed whose model is in the folder: the one that is best on the dev rows
    """

    task: str
    labels: tuple[str, ...]
    metric: str
    seeds: list[dict[str, Any]]
    baseline: dict[str, dict[str, float]]
    summary: dict[str, dict[str, dict[str, float]]]
    kept: int
    notes: list[str]
    classes: dict[str, dict[str, float]]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "labels": list(self.labels)}


def finetune(config: FineTuning, out: Path | str, *, display: Display | None = None) -> Result:
    """Fine-tune a model folder on labelled rows, once for each seed, and keep the model that is best on the dev rows.

    `out` becomes a folder that `transformers` opens, with run.json (the resolved config), results.json,
    metrics.jsonl and report.html beside the model. Nothing is written before the rows and the model are found good.

    Raises UnmaskError for a folder that is in use already, and for whatever is wrong with model, rows or settings.
    """
    out = Path(out)
    distributed.init(config.fit.device)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")
    distributed.barrier()  # every process has looked before the first one writes
    if config.seeds < 1:
        raise UnmaskError("The number of seeds must be 1 or more.")
    notes: list[str] = []
    say = _Speaker(display, notes)
    sets = _read(config, say)
    task = _task(config, sets, say)
    loaded = _load(config, task, config.seed)
    length = _length(config.rows, loaded.model)
    config = config.replace(rows={"length": length})
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    say(loaded.notice if not config.from_scratch else "Every weight is new: the model starts from scratch.")
    encoded = {name: task.encode(rows, tokenizer, length) for name, rows in sets.items()}
    for name, rows in encoded.items():
        say(rows.notice and f"{name}: {rows.notice}")
    baseline = {name: task.baseline(rows, sets["train"].rows) for name, rows in sets.items() if name != "train"}
    say(f"Baseline, the same answer to all dev rows: {shown(baseline['dev'])}.")

    seeds, kept = _run_seeds(config, task, encoded, tokenizer, out, display, say)
    result = Result(
        task=config.task,
        labels=task.labels,
        metric=seeds[0]["metric"],
        seeds=seeds,
        baseline=baseline,
        summary={split: _summary([run[split] for run in seeds]) for split in baseline},
        kept=kept.seed,
        notes=notes,
        classes=kept.classes,
    )
    if distributed.is_main():
        _write(out, config, result, kept.model, tokenizer)
    say(render_result(result.to_dict()), note=False)
    return result


@dataclass(frozen=True)
class _Kept:
    """The best seed so far."""

    seed: int
    value: float
    model: Model
    classes: dict[str, dict[str, float]]


class _Speaker:
    """Says sentences on the display, and keeps them for the report."""

    def __init__(self, display: Display | None, notes: list[str]) -> None:
        self.display = display if display is not None and distributed.is_main() else Silent()
        self.notes = notes

    def __call__(self, text: str, note: bool = True) -> None:
        if text:
            self.display.note(text)
            if note:
                self.notes.append(text)


def _run_seeds(
    config: FineTuning,
    task: Task,
    encoded: Mapping[str, Encoded],
    tokenizer: Tokenizer,
    out: Path,
    display: Display | None,
    say: _Speaker,
) -> tuple[list[dict[str, Any]], _Kept]:
    """One row of results for each seed, and the best of them."""
    seeds: list[dict[str, Any]] = []
    kept: _Kept | None = None
    for seed in range(config.seed, config.seed + config.seeds):
        if config.seeds > 1:
            say(f"Seed {seed}:", note=False)
        model = _load(config, task, seed).model
        folder = out / "seeds" / str(seed)
        fitted = fit(
            model,
            task,
            encoded["train"],
            encoded["dev"],
            config.fit,
            pad=tokenizer.pad,
            seed=seed,
            out=folder,
            display=display,
        )
        row = {"seed": seed, "metric": fitted.metric, "step": fitted.step, "total": fitted.total}
        row |= {"stopped": fitted.stopped, "dev": fitted.best}
        if "test" in encoded:
            row["test"] = task.evaluate(model, encoded["test"], tokenizer.pad)
        seeds.append(row)
        sign = -1 if fitted.metric in LOWER_IS_BETTER else 1
        if kept is None or sign * fitted.value > kept.value:
            answers = task.answer_all(model, encoded["dev"], tokenizer.pad)
            kept = _Kept(seed, sign * fitted.value, model, task.report(answers, encoded["dev"].rows))
        if fitted.stopped in ("SIGTERM", "SIGINT", "a signal to another process"):
            say(f"Stopped by {fitted.stopped}; the results are of the {len(seeds)} seeds so far.")
            break
    assert kept is not None
    return seeds, kept


def _read(config: FineTuning, say: _Speaker) -> dict[str, Dataset]:
    """The rows of each split; where there are no dev rows, some of the training rows take their place."""
    rows = config.rows
    if config.model is None or rows.train is None:
        raise UnmaskError("Say which model and which rows: --model FOLDER --train FILE.")
    sets: dict[str, Dataset] = {}
    for name, path in (("train", rows.train), ("dev", rows.dev), ("test", rows.test)):
        if path is not None:
            sets[name] = read_rows(
                path, config.task, text=rows.text, pair=rows.pair, label=rows.label, format=rows.format
            )
            say(f"{name}: {sets[name].description}.")
    if "dev" not in sets:
        whole = sets["train"]
        if len(whole) < 10:
            raise UnmaskError(f"{whole.path} has {len(whole)} rows: too few to hold some out; give --dev FILE.")
        order = np.random.default_rng(config.seed).permutation(len(whole)).tolist()
        held = round(len(whole) / 10)
        sets["dev"], sets["train"] = whole.take(sorted(order[:held])), whole.take(sorted(order[held:]))
        say(f"There is no dev file: {held:,} rows of {whole.path}, chosen at random, are held out instead.")
    for name in [name for name in sets if name != "train"]:
        common = dataset.overlap(sets["train"], sets[name])
        if not rows.allow_overlap and (name == "test" or rows.dev is not None):
            dataset.check_apart(sets["train"], sets[name])
        if common:
            say(f"{len(common):,} of the {len(sets[name]):,} {name} rows are also among the training rows.")
    return sets


def _task(config: FineTuning, sets: Mapping[str, Dataset], say: _Speaker) -> Task:
    train, *others = sets["train"], *(rows for name, rows in sets.items() if name != "train")
    if config.task == "regression":
        values, *_ = [dataset.scores(rows) for rows in (train, *others)]
        low, high = min(values), max(values)
        if low == high:
            raise UnmaskError(f"{train.path} has a single score, {low:g}: there is nothing to learn.")
        say(f"Scores from {low:g} to {high:g}, {np.mean(values):.3g} on average.")
        if max(abs(low), abs(high)) > 20:
            say("Scores this large are learned slowly; divide them so that they lie between 0 and 5 or so.")
        return Regression()
    labels = tuple(dataset.ordered({*dataset.classes(train), *(sets["dev"].labels if config.rows.dev is None else ())}))
    for other in others:
        dataset.check_labels(other, labels, f"the training rows of {train.path}")
    counts = train.histogram()
    whole = sum(counts.values())
    say("Labels: " + ", ".join(f"{label} {n / whole:.1%}" for label, n in list(counts.items())[:20]) + ".")
    return Classification(labels) if config.task == "classification" else Tagging(labels)


def _load(config: FineTuning, task: Task, seed: int) -> huggingface.Loaded:
    assert config.model is not None
    loaded = huggingface.load(config.model, heads=task.heads, seed=seed)
    tokenizer = loaded.require_tokenizer(config.model)
    if config.from_scratch:
        fresh = loaded.model.config.build(heads=task.heads, seed=seed)  # type: ignore[attr-defined]
        return huggingface.Loaded(fresh, tokenizer, (), loaded.new, loaded.dropped)
    return loaded


def _length(rows: Rows, model: Model) -> int:
    positions = model.positions or LONGEST
    if rows.length is not None and not 3 <= rows.length <= positions:
        raise UnmaskError(
            f"The length must be between 3 and {positions}, the positions of the model, not {rows.length}."
        )
    return rows.length or min(LONGEST, positions)


def _summary(found: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Metric -> mean, std and worst over the seeds."""
    summary = {}
    for name in found[0]:
        values = np.array([row[name] for row in found])
        worst = values.max() if name in LOWER_IS_BETTER else values.min()
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        summary[name] = {"mean": float(values.mean()), "std": spread, "worst": float(worst)}
    return summary


def _write(out: Path, config: FineTuning, result: Result, model: Model, tokenizer: Tokenizer) -> None:
    huggingface.save(out, model.cpu(), tokenizer, labels=result.labels)
    write_text(out / "run.json", json.dumps({"recipe": "finetune", "config": config.to_dict()}, indent=2) + "\n")
    write_text(out / "results.json", json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")
    write_text(out / "metrics.jsonl", (out / "seeds" / str(result.kept) / "metrics.jsonl").read_text(encoding="utf-8"))
    write_report(out)

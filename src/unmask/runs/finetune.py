"""Fine-tuning: a model folder and labelled rows in; the best model of several seeds, its scores and a report out."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unmask import huggingface
from unmask.data import glue
from unmask.data.processor import Processor
from unmask.errors import Stopped, UnmaskError
from unmask.files import sweep, write_text
from unmask.models.model import Model
from unmask.objectives import Objective
from unmask.runs.evaluation import evaluate, render_evaluation
from unmask.runs.finetune_report import render_result, shown, summary
from unmask.runs.fit import (
    RESULTS,
    Fit,
    Fitted,
    begun_with,
    check_metric,
    fit,
    forget,
    refuse_taken,
    run_settings,
    sign_of,
)
from unmask.runs.report import write_report
from unmask.runs.transfer import Transfer, merged, strategy
from unmask.tasks import TASKS, Encoded, Task, settings_of, task_named
from unmask.tasks.auxiliary import WithLanguageModel
from unmask.tasks.config import TaskConfig
from unmask.tasks.distillation import Distillation, Distilled, load_teacher
from unmask.tasks.reading import read_sets
from unmask.tasks.rows import Rows, TaskOptions
from unmask.train import checkpoint, distributed
from unmask.train.checkpoint import LOCK, RUN
from unmask.train.display import Display, on_main

__all__ = ["FineTuning", "Fit", "Fitted", "Result", "Rows"]
__all__ += ["begun", "evaluate", "finetune", "fit", "render_evaluation", "sign_of"]

UNBOUNDED = 1_000_000  # tokens that a model without positions may be asked to read
SMALL = 10_000  # training rows below which seeds differ so much that one alone says little (Devlin et al. 2018, 4.1)
SEEDS = 3  # on such sets
ANEW = 1_000_003  # added to the seed of a run that is started again
INTERRUPTIONS = ("SIGTERM", "SIGINT", "a signal to another process")  # Fitted.stopped after a wish to end
BOLD = 1e-3  # learning rate where little is trained: a frozen trunk, low-rank additions


@dataclass(frozen=True, kw_only=True)
class FineTuning(TaskConfig):
    """A fine-tuning run.

    model         folder of the pre-trained model
    seed, seeds   the first, and how many are run: they decide the new head, the order of the rows and dropout. None:
                  3 where there are fewer than 10,000 training rows, else 1
    from_scratch  keep the processor and the sizes of `model` but none of its weights, for comparison
    language_model  weight of the loss of the next token beside that of the task, for models that read from left to
                  right (Radford et al. 2018, equation 5: 0.5); 0: the task alone
    """

    model: Path | None = None
    options: TaskOptions = field(default_factory=TaskOptions)
    fit: Fit = field(default_factory=Fit)
    transfer: Transfer = field(default_factory=Transfer)
    distillation: Distillation = field(default_factory=Distillation)
    seed: int = 0
    seeds: int | None = None
    from_scratch: bool = False
    language_model: float = 0.0

    CLASSES: ClassVar[Mapping[str, str]] = {"rows": "rows_class", "options": "options_class"}

    @property
    def kind(self) -> type[Task]:
        """The task."""
        return task_named(self.task)

    def number_of_seeds(self, rows: int) -> int:
        """How many are run on so many training rows. Raises UnmaskError for none."""
        seeds = self.seeds if self.seeds is not None else SEEDS if rows < SMALL else 1
        if seeds < 1:
            raise UnmaskError("The number of seeds must be 1 or more.")
        return seeds


@dataclass(frozen=True)
class Result:
    """A run of all seeds, as it stands in results.json.

    seeds     for each: seed, step, total, stopped, dev and (where there is one) test metrics; of how many evaluations
              that of `step` was best, and what the last one gave for the metric
    baseline  split -> metrics of the most frequent label, or the mean score, of the training rows
    summary   split -> metric -> mean, std (of the sample) and worst over the seeds
    kept      the seed whose model is in the folder: the one that is best on the dev rows
    pairs     whether training rows are pairs of texts
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
    pairs: bool

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "labels": list(self.labels)}


def finetune(config: FineTuning, out: Path | str, *, display: Display | None = None, resume: bool = False) -> Result:
    """Fine-tune a model folder on labelled rows, once for each seed, and keep the model that is best on the dev rows.

    `out` becomes a folder that `transformers` opens, with run.json (the resolved config), results.json,
    metrics.jsonl and report.html beside the model. Nothing is written before the rows and the model are found good.

    resume  go on with the run in `out` that was cut short, `begun(out)`, from its last evaluation, bit for bit

    Raises UnmaskError for a folder that is in use already, and for whatever is wrong with model, rows or settings, and
    Stopped where a signal ends the run: it has saved what it needs to go on, and evaluates nothing more.
    """
    out = Path(out)
    distributed.init(config.fit.device)
    if not resume:
        refuse_taken(out)
    distributed.barrier()  # every process has looked before the first one writes
    say = Speaker(display)
    prepared = prepare(config, say)
    with checkpoint.going_on("finetune", out), checkpoint.Lock(out) if distributed.is_main() else nullcontext():
        if distributed.is_main():
            sweep(out)
            write_config(out, config)
        result = run(prepared, out, display, say, resume=resume)
        if distributed.is_main():
            (out / LOCK).unlink(missing_ok=True)  # first: what follows may be cut short, and the run has ended
            for row in result.seeds:
                forget(out / "seeds" / str(row["seed"]))
    return result


def begun(out: Path | str) -> FineTuning:
    """The settings of the run in a folder that was cut short. Raises UnmaskError where there is none, or it ended."""
    return FineTuning.of_run(run_settings(Path(out)))


class Speaker:
    """Says sentences on the display, and keeps them as notes for the report."""

    def __init__(self, display: Display | None) -> None:
        self.display = on_main(display)
        self.notes: list[str] = []

    def __call__(self, text: str, note: bool = True) -> None:
        if text:
            self.display.note(text)
            if note:
                self.notes.append(text)


@dataclass(frozen=True)
class Prepared:
    """Rows, task and processor of a run that has not begun.

    config    with what depends on the rows and the model filled in
    encoded   split -> its rows as tokens; the training rows as they are at hand, whole or in part
    baseline  split -> metrics of the task's plain reference
    aim       what is minimised where there is a teacher, or the next token beside; None: the task alone
    """

    config: FineTuning
    task: Task
    processor: Processor[Any]
    encoded: Mapping[str, Encoded]
    baseline: dict[str, dict[str, float]]
    aim: Distilled | WithLanguageModel | None = None


def prepare(config: FineTuning, say: Speaker) -> Prepared:
    """Read and encode the rows, and find them and the model good. Raises UnmaskError where they are not."""
    if config.model is None or config.rows.train is None:
        raise UnmaskError("Say which model and which rows: --model FOLDER --train FILE.")
    sizes = huggingface.config_of(config.model)  # first: reading the rows may take long
    config.kind.check_model(sizes, config.model)
    sets = read_sets(config.task, config.rows, say, np.random.default_rng(config.seed))
    config = _settled(config, len(sets["train"]), say)
    held_out = config.rows.dev is None and config.rows.benchmark is None
    task = config.kind.learned(sets, config.options, say, held_out=held_out)
    aim: Distilled | WithLanguageModel | None = _beside(config, task)
    loaded = _load(config, aim or task, config.seed)
    length = _length(config, loaded.model)
    strategy.prepare(loaded.model, config.transfer)  # does it fit? each seed reads a model of its own
    processor = task.processor_of(loaded, config.model)
    say(loaded.notice if not config.from_scratch else "Every weight is new: the model starts from scratch.")
    encoded = {name: task.encode(rows, processor, length) for name, rows in sets.items()}
    for name, rows in encoded.items():
        say((said := rows.said(processor)) and f"{name}: {said}")
    baseline = {name: task.baseline(rows, sets["train"].rows) for name, rows in sets.items() if name != "train"}
    say(f"Baseline, {task.reference}: {shown(baseline['dev'])}.")
    check_metric(config.fit.metric, baseline["dev"], lambda: task.evaluate(loaded.model, encoded["dev"], processor.pad))
    aim = aim or _taught(config.distillation, task, processor)
    if aim is not None:
        encoded["train"] = aim.prepare(encoded["train"])
    if config.distillation.teacher is not None:
        say(f"Teacher: {config.distillation.teacher}.")
    task.check_rows(loaded.model, sets["train"].rows)
    return Prepared(config.replace(rows={"length": length}), task, processor, encoded, baseline, aim)


def _beside(config: FineTuning, task: Task) -> WithLanguageModel | None:
    """The task with the next token beside it, where that is asked for."""
    if not config.language_model:
        return None
    if config.distillation.teacher is not None:
        raise UnmaskError("A teacher and a language model cannot both stand beside the task: leave one of them out.")
    return WithLanguageModel(task, config.language_model)


def _taught(config: Distillation, task: Task, processor: Processor[Any]) -> Distilled | None:
    if config.teacher is None:
        return None
    teacher = load_teacher(config.teacher, task, processor)
    return Distilled(task, teacher, temperature=config.temperature, weight=config.weight, hidden=config.hidden)


def run(prepared: Prepared, out: Path, display: Display | None, say: Speaker, *, resume: bool | None = None) -> Result:
    """Fine-tune once for each seed, and write the folder of the best; for `resume` see `fit`."""
    seeds, kept = _run_seeds(prepared, out, display, say, resume)
    result = Result(
        task=prepared.config.task,
        labels=prepared.task.labels,
        metric=seeds[0]["metric"],
        seeds=seeds,
        baseline=prepared.baseline,
        summary={split: summary([run[split] for run in seeds]) for split in prepared.baseline},
        kept=kept.seed,
        notes=say.notes,
        classes=kept.classes,
        pairs=any(row.pair is not None for row in prepared.encoded["train"].rows),
    )
    if distributed.is_main():
        _write(out, prepared, result, kept)
    say(render_result(result.to_dict()), note=False)
    return result


@dataclass(frozen=True)
class _Kept:
    """The best seed so far."""

    seed: int
    value: float
    model: Model
    classes: dict[str, dict[str, float]]
    settings: dict[str, Any]


def _run_seeds(
    prepared: Prepared, out: Path, display: Display | None, say: Speaker, resume: bool | None
) -> tuple[list[dict[str, Any]], _Kept]:
    """One row of results for each seed, and the best of them."""
    config, task, encoded = prepared.config, prepared.task, prepared.encoded
    seeds: list[dict[str, Any]] = []
    kept: _Kept | None = None
    assert config.seeds is not None
    for seed in range(config.seed, config.seed + config.seeds):
        if config.seeds > 1:
            say(f"Seed {seed}:", note=False)
        model, row, answers = run_seed(prepared, seed, out, display, say, resume=resume)
        if "test" in encoded:
            row["test"] = task.evaluate(model, encoded["test"], prepared.processor.pad)
        seeds.append(row)
        value = sign_of(row["metric"]) * row["dev"][row["metric"]]
        if kept is None or value > kept.value:
            report = task.report(answers, encoded["dev"].rows)
            kept = _Kept(seed, value, model, report, settings_of(task))
    assert kept is not None
    return seeds, kept


def run_seed(
    prepared: Prepared, seed: int, out: Path, display: Display | None, say: Speaker, *, resume: bool | None = None
) -> tuple[Model, dict[str, Any], list[Any]]:
    """The model of a seed, its row of results, and its answers to the dev rows; for `resume` see `fit`.

    Raises Stopped after a signal. It is started again, once, where it gives every row the same answer: it never left
    its start, which a seed can do to a small set (Devlin et al. 2018, section 4.1; Mosbach et al. 2021), and another
    order of rows often helps.
    """
    config, task, encoded, pad = prepared.config, prepared.task, prepared.encoded, prepared.processor.pad
    folder = out / "seeds" / str(seed)
    collapsed = f"Seed {seed} collapsed: it gives every dev row the same answer. It is started again, once."
    for restarted in (False, True):
        drawn = seed + ANEW * restarted
        if resume and not restarted and begun_with(folder) == seed + ANEW:
            say(collapsed)
            continue
        gc.collect()  # the moments of an earlier run: within PyTorch, its first optimizer leaves a circle around itself
        model = _load(config, prepared.aim or task, drawn).model
        with prepared.aim.projecting(model, drawn) if prepared.aim else nullcontext():
            fitted = fit(
                model,
                task,
                encoded["train"],
                encoded["dev"],
                config.fit,
                pad=pad,
                seed=drawn,
                out=folder,
                display=display,
                objective=prepared.aim,
                transfer=config.transfer,
                resume=resume,
            )
        if fitted.stopped in INTERRUPTIONS:
            raise Stopped(f"Stopped by {fitted.stopped} in seed {seed}")
        answers = task.answer_all(model, encoded["dev"], pad)
        if fitted.stopped or not task.is_collapsed(answers, encoded["dev"].rows):
            break
        if not restarted:
            say(collapsed)
            if distributed.is_main():
                shutil.rmtree(folder)
            distributed.barrier()
    else:
        say(f"Seed {seed} collapsed again; try a lower --lr, more --epochs, or --reinitialise 1.")
    task.fitted(answers, encoded["dev"].rows)
    # Not `fitted.best`, which may be of bfloat16 and of another threshold than the folder answers with.
    found = task.judge(model, answers, encoded["dev"].rows)
    row = {"seed": seed, "metric": fitted.metric, "step": fitted.step, "total": fitted.total}
    row |= {"evaluations": len(fitted.evaluations), "last": fitted.evaluations[-1]}
    row |= {"stopped": fitted.stopped, "restarted": restarted, "dev": found}
    return model, row, answers


def _settled(config: FineTuning, rows: int, say: Speaker) -> FineTuning:
    """The config with what depends on the rows and the strategy filled in."""
    config = config.replace(seeds=config.number_of_seeds(rows))
    config.fit.check()
    if config.fit.sampling == "balanced" and not config.kind.one_label:
        known = " or ".join(name for name, kind in TASKS.items() if kind.one_label)
        raise UnmaskError(f"--sampling balanced is for --task {known}; rows of {config.task} have no one class.")
    if config.rows.benchmark is not None and config.fit.metric is None:
        config = config.replace(fit={"metric": config.kind.metric_of(glue.find(config.rows.benchmark))})
    if config.transfer.strategy in ("frozen", "lora") and config.fit.optimizer.lr == Fit().optimizer.lr:
        say(f"With the strategy {config.transfer.strategy}, the learning rate is {BOLD:g} where none is given.")
        config = config.replace(fit={"optimizer": {"lr": BOLD}})
    return config


def _load(config: FineTuning, aim: Objective, seed: int) -> huggingface.Loaded:
    """The model with the heads that `aim` needs. Raises UnmaskError where it has none for the next token."""
    assert config.model is not None
    loaded = huggingface.load(config.model, huggingface.SINGLE_STACK, heads=aim.heads, seed=seed)
    config.kind.processor_of(loaded, config.model)
    if config.from_scratch:
        fresh = loaded.model.config.build(heads=aim.heads, seed=seed)
        return huggingface.Loaded(fresh, loaded.processor, (), loaded.new, loaded.dropped)
    return loaded


def _length(config: FineTuning, model: Model) -> int:
    positions, length = model.positions or UNBOUNDED, config.rows.length
    if length is not None and not 3 <= length <= positions:
        raise UnmaskError(f"The length must be between 3 and {positions}, the positions of the model, not {length}.")
    usual = config.kind.usual_length * getattr(model.config, "spelling", 1)
    return length or min(usual, positions)


def _write(out: Path, prepared: Prepared, result: Result, kept: _Kept) -> None:
    model = merged(kept.model).cpu()
    huggingface.save(out, model, prepared.processor, labels=result.labels, settings=kept.settings)
    prepared.task.save_beside(out, kept.model)
    write_config(out, prepared.config)
    write_text(out / RESULTS, json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")
    write_text(out / "metrics.jsonl", (out / "seeds" / str(result.kept) / "metrics.jsonl").read_text(encoding="utf-8"))
    write_report(out)


def write_config(out: Path, config: FineTuning) -> None:
    """What `begun` reads."""
    facts = {"kind": "finetuning", "recipe": "finetune", "config": config.to_dict()}
    write_text(out / RUN, json.dumps(facts, indent=2) + "\n")

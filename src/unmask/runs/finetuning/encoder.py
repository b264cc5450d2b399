"""Fine-tuning of an encoder or a language model: it gets a head for the task, and is trained on labelled rows."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask import huggingface
from unmask.data.labelled import glue
from unmask.data.processor import Processor
from unmask.errors import Stopped, UnmaskError
from unmask.models.model import Model
from unmask.objectives import Objective
from unmask.runs.finetuning.config import FineTuning, Fit
from unmask.runs.finetuning.prepared import Notes, Prepared, Seed
from unmask.runs.finetuning.report import shown
from unmask.runs.finetuning.supervised import begun_with, check_metric, fit
from unmask.runs.transfer import merged, strategy
from unmask.tasks import TASKS, Encoded, Task, settings_of
from unmask.tasks.auxiliary import WithLanguageModel
from unmask.tasks.distillation import Distillation, Distilled, load_teacher
from unmask.tasks.reading import read_sets
from unmask.train import distributed
from unmask.train.display import Display

UNBOUNDED = 1_000_000  # tokens that a model without positions may be asked to read
ANEW = 1_000_003  # added to the seed of a run that is started again
INTERRUPTIONS = ("SIGTERM", "SIGINT", "a signal to another process")  # Fitted.stopped after a wish to end
BOLD = 1e-3  # learning rate where little is trained: a frozen trunk, low-rank additions


@dataclass(frozen=True)
class PreparedEncoder(Prepared):
    """Rows as tokens, task and processor.

    encoded  split -> its rows as examples; the training rows whole or in part
    aim      what is minimised with a teacher, or with the next token as auxiliary objective; None: the task alone
    """

    config: FineTuning
    begun: FineTuning
    task: Task
    processor: Processor[Any]
    encoded: Mapping[str, Encoded]
    baseline: Mapping[str, dict[str, float]]
    aim: Distilled | WithLanguageModel | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        return self.task.labels

    @property
    def pairs(self) -> bool:
        return any(row.pair is not None for row in self.encoded["train"].rows)

    def train_seed(
        self, seed: int, folder: Path, display: Display | None, say: Notes, *, resume: bool | None = None
    ) -> Seed:
        model, row, answers = run_seed(self, seed, folder, display, say, resume=resume)
        if "test" in self.encoded:
            row["test"] = self.task.evaluate(model, self.encoded["test"], self.processor.pad)
        settings = settings_of(self.task)  # with what this seed has chosen, such as a threshold

        def write(out: Path) -> None:
            plain = merged(model).cpu()
            huggingface.save(out, plain, self.processor, labels=self.labels, settings=settings)
            self.task.save_beside(out, model)

        return Seed(row, self.task.report(answers, self.encoded["dev"].rows), write)


def prepare(config: FineTuning, say: Notes) -> PreparedEncoder:
    """Read and encode the rows, and find them and the model good. Raises UnmaskError where they are not."""
    begun = config
    if config.model is None or config.rows.train is None:
        raise UnmaskError("Say which model and which rows: --model FOLDER --train FILE.")
    if huggingface.holds_encoder_decoder(config.model):  # `finetune` prepares one otherwise
        raise UnmaskError(f"--search, --curve and --advise are for encoders: fine-tune {config.model} without them.")
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
    config = config.replace(rows={"length": length})
    return PreparedEncoder(config, begun, task, processor, encoded, baseline, aim)


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


def run_seed(
    prepared: PreparedEncoder,
    seed: int,
    folder: Path,
    display: Display | None,
    say: Notes,
    *,
    resume: bool | None = None,
) -> tuple[Model, dict[str, Any], list[Any]]:
    """The model of a seed, its row of results, and its answers to the dev rows; for `resume` see `fit`.

    Raises Stopped after a signal. It is started again, once, where it gives every row the same answer: it never left
    its start, which a seed can do to a small set (Devlin et al. 2018, section 4.1; Mosbach et al. 2021), and another
    order of rows often helps.
    """
    config, task, encoded, pad = prepared.config, prepared.task, prepared.encoded, prepared.processor.pad
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


def _settled(config: FineTuning, rows: int, say: Notes) -> FineTuning:
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

"""Fine-tuning of an encoder or a language model: it gets a head for the task, and is trained on labelled rows."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask import huggingface
from unmask.config import read_json
from unmask.data.labelled import glue
from unmask.data.processor import Processor
from unmask.errors import Stopped, UnmaskError
from unmask.files import write_text
from unmask.models.model import Model, ModelConfig
from unmask.objectives import Objective
from unmask.runs.finetuning.config import FineTuning
from unmask.runs.finetuning.prepared import Notes, Prepared, Seed
from unmask.runs.finetuning.report import EXAMPLES, shown
from unmask.runs.finetuning.supervised import begun_with, check_metric, fit, running
from unmask.runs.transfer import merged, strategy
from unmask.tasks import TASKS, Encoded, Task, dev_rows, settings_of
from unmask.tasks.auxiliary import WithLanguageModel
from unmask.tasks.distillation import Distillation, Distilled, load_teacher
from unmask.tasks.reading import read_sets
from unmask.tasks.second import TwoTasks, alone
from unmask.train import checkpoint, distributed
from unmask.train.display import Display

UNBOUNDED = 1_000_000  # longest sequence of a model without positions, in tokens
ANEW = 1_000_003  # added to the seed when a run is started again
INTERRUPTIONS = ("SIGTERM", "SIGINT", "a signal to another process")  # values of Fitted.stopped after a signal
SMALL = 256  # width of a small model
USUAL, OF_BASE = 5e-5, 768  # default learning rate of BERT-base (Devlin et al. 2018, appendix A.3), and its width
Aim = Distilled | WithLanguageModel | TwoTasks
BOLD = 1e-3  # default learning rate when few weights are trained: a frozen trunk, LoRA


@dataclass(frozen=True)
class PreparedEncoder(Prepared):
    """A prepared run with encoded rows, a task and a processor.

    encoded  split -> its rows as examples; the training rows may be a part of all
    aim      the objective with a teacher, with the next token as auxiliary objective, or with a second task; None: the
             task alone
    second   the second task, and its dev rows; None: there is none
    """

    config: FineTuning
    begun: FineTuning
    task: Task
    processor: Processor[Any]
    encoded: Mapping[str, Encoded]
    baseline: Mapping[str, dict[str, float]]
    aim: Aim | None = None
    second: tuple[Task, Encoded] | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        return self.task.labels

    @property
    def notice(self) -> str:
        return self.task.notice

    @property
    def pairs(self) -> bool:
        return any(row.pair is not None for row in self.encoded["train"].rows)

    @property
    def counts(self) -> Mapping[str, int]:
        return {split: len(encoded.rows) for split, encoded in self.encoded.items()}

    def train_seed(
        self, seed: int, folder: Path, display: Display | None, say: Notes, *, resume: bool | None = None
    ) -> Seed:
        model, row, answers = run_seed(self, seed, folder, display, say, resume=resume)
        if "test" in self.encoded:
            row["test"] = self.task.evaluate(model, self.encoded["test"], self.processor.pad)
        tasks = {".": self.task}
        if self.second is not None:
            second, rows = self.second
            row[split_of(second)] = second.evaluate(model, rows, self.processor.pad)
            tasks[second.task_name] = second
        dev = self.encoded["dev"].rows
        settings = {name: settings_of(task) for name, task in tasks.items()}  # with values of this seed: a threshold

        def write(out: Path) -> None:
            plain = merged(model).cpu()
            for name, task in tasks.items():
                own = plain if self.second is None else alone(plain, task)
                huggingface.save(out / name, own, self.processor, labels=task.labels, settings=settings[name])
            self.task.save_beside(out, model)
            dev_rows.write(out, self.task, answers, dev)
            if examples := self.task.examples(answers, dev):
                write_text(out / EXAMPLES, json.dumps({"dev": examples}, indent=2, ensure_ascii=False) + "\n")

        curves, confusion = self.task.curves(answers, dev), self.task.confusion(answers, dev)
        tables = self.task.tables(answers, dev)
        return Seed(row, self.task.report(answers, dev), write, curves, confusion, tables)


def prepare(config: FineTuning, say: Notes) -> PreparedEncoder:
    """Read and encode the rows, and check them and the model. Raises UnmaskError if they do not fit."""
    begun = config
    start = config.start
    if config.rows.train is None:
        raise UnmaskError("Give a model and rows: --model FOLDER --train FILE.")
    if config.model is not None and huggingface.holds_encoder_decoder(config.model):  # `text_to_text` prepares these
        options = "--search, --curve, --advise and --dry-run"
        raise UnmaskError(f"{options} are for encoders: fine-tune {config.model} without them.")
    sizes = config.page or huggingface.config_of(Path(start))  # before the rows, whose reading may take long
    config.kind.check_model(sizes, start)
    sets = read_sets(config.task, config.rows, say, np.random.default_rng(config.seed))
    others = config.second.sets(say, np.random.default_rng(config.seed), allow_overlap=config.rows.allow_overlap)
    config = _settled(config, len(sets["train"]), say)
    fresh = config.from_scratch or config.page is not None
    config = _with_strategy(config, None if fresh else sizes, say)
    config = _with_rate(config, sizes, say)
    held_out = config.rows.dev is None and config.rows.benchmark is None
    config = replace(config, options=config.options.continuing(None if config.model is None else Path(config.model)))
    task = config.kind.learned(sets, config.options, say, held_out=held_out)
    processor: Processor[Any] | None = None
    if config.page is not None:
        texts = [row for one in (sets, others) if one for row in one["train"].rows]
        page, processor = config.kind.new(config.page, texts)
        config = replace(config, page=page)
    both = TwoTasks(task, config.second.learned(others, say), config.second.second_weight) if others else None
    auxiliary: Distilled | WithLanguageModel | None = _with_language_model(config, task)
    aim: Aim | None = auxiliary or both
    loaded = _load(config, aim or task, task.labels, config.seed, processor)
    length = _length(config, loaded.model)
    tuning = strategy.prepare(loaded.model, config.transfer)  # only a check, as the next: each seed has its own model
    config.fit.optimizer.build(loaded.model, scale=tuning.scale)
    processor = task.processor_of(loaded, start)
    say(loaded.notice if not fresh else "Every weight is new: the model starts from scratch.")
    encoded = {name: task.encode(rows, processor, length) for name, rows in sets.items()}
    for rows in encoded.values():
        task.check_encoded(rows)
    encoded["train"] = task.for_training(encoded["train"], processor)
    for name, rows in encoded.items():
        say((note := rows.said(processor)) and f"{name}: {note}")
    baseline = {name: task.baseline(rows, sets["train"].rows) for name, rows in sets.items() if name != "train"}
    say(f"Baseline from the training rows, {task.reference}: {shown(baseline['dev'])}.")
    say(task.notice)
    check_metric(config.fit.metric, baseline["dev"], lambda: task.evaluate(loaded.model, encoded["dev"], processor.pad))
    if config.distillation.teacher is not None and config.fit.workers:
        raise UnmaskError("--teacher and --workers cannot be combined: leave one of them out.")
    second = None
    if both is not None:
        if auxiliary is not None or config.distillation.teacher is not None or config.fit.sampling == "balanced":
            raise UnmaskError("A second task excludes --teacher, --language-model and --sampling balanced.")
        added = {name: both.second.encode(rows, processor, length) for name, rows in others.items()}
        encoded["train"], second = both.together(encoded["train"], added["train"]), (both.second, added["dev"])
        baseline[split_of(both.second)] = both.second.baseline(others["dev"].rows, others["train"].rows)
    elif (aim := auxiliary or _distilled(config.distillation, task, processor)) is not None:
        encoded["train"] = aim.prepare(encoded["train"])
    if config.distillation.teacher is not None:
        say(f"Teacher: {config.distillation.teacher}.")
    task.check_rows(loaded.model, sets["train"].rows)
    config = config.replace(rows={"length": length})
    return PreparedEncoder(config, begun, task, processor, encoded, baseline, aim, second)


def split_of(second: Task) -> str:
    """The name of the dev rows of a second task among the scores."""
    return f"{second.task_name} dev"


def _with_language_model(config: FineTuning, task: Task) -> WithLanguageModel | None:
    """The task with the next token as auxiliary objective, or None if its weight is 0."""
    if not config.language_model:
        return None
    if config.distillation.teacher is not None:
        raise UnmaskError("--teacher and --language-model cannot be combined: leave one of them out.")
    return WithLanguageModel(task, config.language_model)


def _distilled(config: Distillation, task: Task, processor: Processor[Any]) -> Distilled | None:
    if config.teacher is None:
        return None
    teacher, view = load_teacher(config.teacher, task, processor)
    fields = {name: getattr(config, name) for name in ("temperature", "weight", "hidden", "hard")}
    return Distilled(task, teacher, view=view, **fields)


def run_seed(
    prepared: PreparedEncoder,
    seed: int,
    folder: Path,
    display: Display | None,
    say: Notes,
    *,
    resume: bool | None = None,
) -> tuple[Model, dict[str, Any], list[Any]]:
    """Train one seed; returns its model, its row of results, and its predictions of the dev rows. For `resume` see
    `fit`.

    If the model gives every dev row the same answer, it is trained once more with another order of rows, which often
    helps: some seeds fail on small sets (Devlin et al. 2018, section 4.1; Mosbach et al. 2021). Raises Stopped after a
    signal.
    """
    config, task, encoded, pad = prepared.config, prepared.task, prepared.encoded, prepared.processor.pad
    collapsed = f"Seed {seed} collapsed: it gives every dev row the same answer. It is started again, once."
    for restarted in (False, True):
        drawn = seed + ANEW * restarted
        if resume and not restarted and begun_with(folder) == seed + ANEW:
            say(collapsed)
            continue
        gc.collect()  # frees the optimizer state of an earlier run, which PyTorch keeps in a reference cycle
        model = _load(config, prepared.aim or task, task.labels, drawn, prepared.processor).model
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
    # Not `fitted.best`, which may come from bfloat16 and from another threshold than that of the folder.
    found = task.judge(model, answers, encoded["dev"].rows)
    say(task.advice(found))
    row = {"seed": seed, "metric": fitted.metric, "step": fitted.step, "total": fitted.total}
    row |= {"evaluations": len(fitted.evaluations), "last": fitted.evaluations[-1]}
    row |= {"stopped": fitted.stopped, "restarted": restarted, "dev": found}
    return model, row, answers


def cost(prepared: PreparedEncoder) -> dict[str, Any]:
    """The size, time and memory of the training of the first seed (`Trainer.plan`). Nothing is trained or written."""
    config, task, encoded, aim = prepared.config, prepared.task, prepared.encoded, prepared.aim
    model = _load(config, aim or task, task.labels, config.seed, prepared.processor).model
    with ExitStack() as stack:
        if aim is not None:
            stack.enter_context(aim.projecting(model, config.seed))
        settings: dict[str, Any] = {
            "pad": prepared.processor.pad,
            "seed": config.seed,
            "objective": aim,
            "transfer": config.transfer,
        }
        run = stack.enter_context(running(model, task, encoded["train"], encoded["dev"], config.fit, **settings))
        return {**run.plan(), "seeds": config.seeds}


def _settled(config: FineTuning, rows: int, say: Notes) -> FineTuning:
    """The config, with the fields filled in that depend on the rows and the strategy."""
    config = config.replace(seeds=config.number_of_seeds(rows))
    config.fit.check()
    if config.fit.sampling == "balanced" and not config.kind.one_label:
        known = " or ".join(name for name, kind in TASKS.items() if kind.one_label)
        raise UnmaskError(f"--sampling balanced is for --task {known}; leave it out for {config.task}.")
    if config.rows.benchmark is not None and config.fit.metric is None:
        config = config.replace(fit={"metric": config.kind.metric_of(glue.find(config.rows.benchmark))})
    return config


def _with_strategy(config: FineTuning, pretrained: ModelConfig | None, say: Notes) -> FineTuning:
    """The config with the usual strategy of a pre-trained model, unless another one is given."""
    found = config.transfer.settled(pretrained)
    if found != config.transfer and found.strategy != "full":
        say(f"The strategy is {found.strategy}, as usual for a {type(pretrained).__name__}; full trains all weights.")
    return config.replace(transfer=found.to_dict())


def _with_rate(config: FineTuning, sizes: ModelConfig, say: Notes) -> FineTuning:
    """The config with the default learning rate of the strategy and of the model, unless another one is given."""
    if config.fit.optimizer.lr is not None:
        return config
    shares, before = config.kind.rate_shares, rate_of(config.model) if config.model is not None else None
    if config.transfer.strategy in ("frozen", "lora"):
        lr = BOLD
        say(f"With the strategy {config.transfer.strategy}, the default learning rate is {lr:g}.")
    elif shares is not None and before is not None:
        lr = shares[sizes.width > SMALL] * before
        say(f"The default learning rate is {lr:g}, as {config.model} was trained at {before:g}.")
    else:
        lr = usual_rate(sizes.width) if shares is None else USUAL
        if lr != USUAL:
            say(f"The default learning rate is {lr:g}, as the model is only {sizes.width} wide; --lr sets another.")
    return config.replace(fit={"optimizer": {"lr": lr}})


def usual_rate(width: int) -> float:
    """The default learning rate of a text model of this width: that of BERT-base, or for a narrower one as many times
    more as it is narrower, up to 1e-3 (docs/decisions/0054-narrow-models-take-larger-steps.md)."""
    return float(f"{min(BOLD, USUAL * max(1.0, OF_BASE / width)):.2g}")


def rate_of(folder: Path | str) -> float | None:
    """The learning rate at which a folder was trained from new weights, by its run.json; None if it does not tell, as
    for a folder that started from another one or that another program wrote."""
    path = Path(folder) / checkpoint.RUN
    config = read_json(path).get("config") if path.is_file() else None
    if not isinstance(config, Mapping) or config.get("start") or isinstance(config.get("model"), str):
        return None
    for name in ("fit", "training"):  # of fine-tuning, of pre-training
        match config.get(name):
            case {"optimizer": {"lr": float(lr)}}:
                return lr
    return None


def _load(
    config: FineTuning, aim: Objective, labels: Sequence[str], seed: int, processor: Processor[Any] | None
) -> huggingface.Loaded:
    """The model with the heads that `aim` needs; a stored head for other labels is replaced. Raises UnmaskError if it
    lacks a head for the next token.

    processor  that of a new model
    """
    if config.page is not None:
        new = huggingface.Loaded(config.page.build(heads=aim.heads, seed=seed), processor, (), (), ())
        return config.kind.prepared(new, config.options)
    assert config.model is not None
    loaded = huggingface.load(config.model, huggingface.SINGLE_STACK, heads=aim.heads, outputs=labels, seed=seed)
    loaded = config.kind.prepared(loaded, config.options)
    config.kind.processor_of(loaded, config.model)
    if config.from_scratch:
        fresh = loaded.model.config.build(heads=aim.heads, seed=seed)
        return huggingface.Loaded(fresh, loaded.processor, (), loaded.new, loaded.dropped)
    return loaded


def _length(config: FineTuning, model: Model) -> int:
    positions, length = model.positions or UNBOUNDED, config.rows.length
    least = min(3, positions)  # a text has at least one token between two special ones
    if length is not None and not least <= length <= positions:
        raise UnmaskError(
            f"The length must be between {least} and {positions}, the positions of the model, not {length}."
        )
    usual = config.kind.usual_length * getattr(model.config, "spelling", 1)
    return length or min(usual, positions)

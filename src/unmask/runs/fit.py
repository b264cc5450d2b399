"""Fit a model to labelled rows: batches by (seed, epoch), evaluation on the way, the best weights kept."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from unmask.config import Config, read_json
from unmask.data.examples import Groups, labelled
from unmask.data.rows import Row
from unmask.errors import UnmaskError, plural, unknown
from unmask.files import sweep, write_text
from unmask.kernels.processor import Precision
from unmask.models.model import Model
from unmask.runs.transfer import Transfer, prepare, remembering
from unmask.tasks import Encoded, Task
from unmask.train import checkpoint, distributed
from unmask.train.checkpoint import LOCK, RUN
from unmask.train.display import Display
from unmask.train.engine import Minimised
from unmask.train.events import Evaluated, Evaluation, Event
from unmask.train.interrupt import cuttable
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Trainer, Training

RESULTS = "results.json"  # of a folder of fine-tuning: what came out
EPOCHS, LEAST_STEPS = 3.0, 200  # where nothing is said
LOWER_IS_BETTER = frozenset({"loss", "rmse"})


def sign_of(metric: str) -> int:
    """What a metric is multiplied with so that more is better."""
    return -1 if metric in LOWER_IS_BETTER else 1


@dataclass(frozen=True, kw_only=True)
class Fit(Config):
    """How a model is fitted to labelled rows. The defaults suit a BERT-base that was pre-trained at length (Devlin et
    al. 2018, appendix A.3: 2e-5 to 5e-5, 2 to 4 epochs); one of a few million parameters wants 3e-4 to 1e-3.

    epochs       passes over the training rows; None: 3, and at least 200 steps
    least_steps  steps to take at least, in as many more passes; None: 200 where `epochs` is None, for small sets need
                 them (Mosbach et al. 2021; Zhang et al. 2021, section 6), else 1: epochs that are asked for are obeyed
    batch_size   rows of one step, over all micro-batches and processes
    sampling     "balanced" draws every class alike in each epoch, with repetition; "plain" takes every row once
    evaluations  of the dev rows, per epoch; below 1, one in several epochs
    patience     evaluations without a gain after which to stop; None: never early
    metric       that decides which weights are kept; None: the task's first
    """

    epochs: float | None = None
    least_steps: int | None = None
    batch_size: int = 32
    sampling: Literal["plain", "balanced"] = "plain"
    evaluations: float = 1.0
    patience: int | None = None
    metric: str | None = None
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(lr=5e-5))
    schedule: Schedule = field(default_factory=Schedule)
    precision: Precision = "auto"
    device: str = "auto"

    @property
    def passes(self) -> float:
        """Over the training rows, unless that is fewer than the `least` steps."""
        return EPOCHS if self.epochs is None else self.epochs

    @property
    def least(self) -> int:
        """Steps to take at least."""
        usual = LEAST_STEPS if self.epochs is None else 1
        return usual if self.least_steps is None else self.least_steps

    def check(self) -> None:
        """Raises UnmaskError for settings that make no run."""
        if self.passes <= 0 or self.batch_size < 1 or self.evaluations <= 0:
            raise UnmaskError("The epochs, the batch size and the evaluations per epoch must be above 0.")


@dataclass(frozen=True)
class Fitted:
    """What `fit` found. The model holds the weights of the best evaluation, or its last ones where there was none.

    metric, best  what decided, and the metrics of the dev rows where it was best; empty where a signal ended the run
                  before its first evaluation
    step, total   of that evaluation, and of the whole run as planned
    history       (step, metrics) of every evaluation
    stopped       why the run ended before its last step, else None
    """

    metric: str
    best: dict[str, float]
    step: int
    total: int
    history: list[tuple[int, dict[str, float]]]
    stopped: str | None

    @property
    def value(self) -> float:
        return self.best[self.metric]

    @property
    def evaluations(self) -> list[float]:
        """The values of the metric that the best one was chosen from, in order."""
        return [found[self.metric] for step, found in self.history if step]


def class_shares(rows: Sequence[Row]) -> np.ndarray:
    """[N]: how often each row is to be drawn, so that all labels are seen alike."""
    counts = Counter(row.label for row in rows)
    return np.array([1 / counts[row.label] for row in rows])


def fit(
    model: Model,
    task: Task,
    train: Encoded,
    dev: Encoded,
    config: Fit,
    *,
    pad: int,
    seed: int = 0,
    out: Path | None = None,
    display: Display | None = None,
    objective: Minimised | None = None,
    transfer: Transfer | None = None,
    resume: bool | None = None,
) -> Fitted:
    """Train `model` on `train` and leave it, in evaluation mode, with the weights that were best on `dev`.

    pad        id of the padding token
    out        folder for metrics.jsonl; None leaves nothing on disk
    objective  what is minimised, where it is not the task alone: with a teacher, say
    transfer   what of the model is trained, and how fast; None is all of it
    resume     a checkpoint is written to `out` with every evaluation, and stays; True goes on from the last sound one,
               bit for bit ("frozen": but for the last bit, `transfer/remembered.py`). None keeps none

    Raises UnmaskError for settings that make no run, a metric that the task lacks, and losses that are not finite.
    """
    config.check()
    balanced = config.sampling == "balanced"
    data = labelled(
        Groups(train.examples, train.of_rows if train.together or balanced else None),
        config.batch_size,
        pad=pad,
        seed=seed,
        rank=distributed.rank(),
        ranks=distributed.ranks(),
        shares=class_shares(train.rows) if balanced else None,
    )
    planned = max(1, round(config.passes * data.steps()))
    total = max(planned, config.least)
    evaluate_every = data.steps() / config.evaluations * total / planned  # no more of them in a longer run
    evaluate_steps = max(1, round(evaluate_every))
    training = Training(
        steps=total,
        optimizer=config.optimizer,
        schedule=config.schedule,
        precision=config.precision,
        device=config.device,
        seed=seed,
        log_every=max(1, min(10, total // 20)),
        evaluate_every=evaluate_steps,
        save_every=None if resume is None else evaluate_steps,
        keep=2,
    )
    best = _Best(config.metric or task.metric, config.patience)
    spent = f"no gain in {plural(config.patience or 0, 'evaluation')}"

    def evaluate_dev(model: Any, step: int) -> Evaluation:
        with cuttable():
            return Evaluation(task.evaluate(model, dev, pad))

    def choose(event: Event) -> None:
        if isinstance(event, Evaluated) and best.is_exhausted(model, event.step, event.numbers):
            trainer.stop(spent)

    tuning = prepare(model, transfer or Transfer(), seed)
    with ExitStack() as stack:
        if objective is None:  # a teacher may look into the trunk while it reads
            stack.enter_context(remembering(model, transfer or Transfer()))
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="unmask-")))
        aim = objective or task
        found = checkpoint.latest(folder / "checkpoints") if resume else None
        if found is not None:
            best.load(found.folder)
        elif resume and display is not None and (folder / "metrics.jsonl").exists():
            display.note(f"{folder} has no checkpoint yet: it begins from the start, with the settings of the run.")
        trainer = Trainer(
            model,
            aim,
            data,
            training,
            folder,
            evaluate=evaluate_dev,
            save=best.save,
            tuning=tuning,
            resume=found is not None,
        )
        if best.is_spent:
            trainer.stop(spent)
        result = trainer.train(choose, display=display)
        if resume is None:
            forget(folder)
    if best.found:  # not where a signal came before the first evaluation, and leaves no time for one
        best.restore(model)
    model.eval()
    return Fitted(best.metric, best.found, best.step, total, best.history, result.stopped)


def run_settings(out: Path) -> dict[str, Any]:
    """The config of the fine-tuning run in a folder that was cut short. Raises UnmaskError where there is none, or it
    ended."""
    checkpoint.require_begun(out)
    values = read_json(out / RUN) if (out / RUN).exists() else {}
    if values.get("recipe") != "finetune" or not isinstance(values.get("config"), dict):
        raise UnmaskError(f"{out} holds a run that is no fine-tuning; go on with it by the verb that began it.")
    if (out / RESULTS).exists() and not (out / LOCK).exists():
        raise UnmaskError(f"The run in {out} has ended; its scores are in {out / RESULTS}.")
    return values["config"]


def check_metric(metric: str | None, baseline: Mapping[str, float], evaluate: Callable[[], dict[str, float]]) -> None:
    """Raises UnmaskError for a metric that the task lacks. The baseline has nearly all of them; where it has not this
    one, such as the loss, `evaluate` asks a model."""
    if metric is not None and metric not in baseline and metric not in (found := evaluate()):
        raise unknown("metric", metric, found)


def refuse_taken(out: Path) -> None:
    """Raises UnmaskError where a folder holds more than what a run that was killed before it began leaves there."""
    if out.is_dir():
        sweep(out)
        if (out / LOCK).exists() and (out / RUN).exists() and read_json(out / RUN).get("recipe") == "finetune":
            raise UnmaskError(f"{out} holds a run that was cut short; go on with --resume, or choose another folder.")
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - {LOCK}):
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")


def begun_with(folder: Path) -> int | None:
    """The seed of the run of `fit` in a folder, which its last sound checkpoint knows; None where there is none."""
    found = checkpoint.latest(folder / "checkpoints")
    return None if found is None else found.state["config"]["seed"]


def forget(folder: Path) -> None:
    """Remove what a run of `fit` goes on from; what it measured stays."""
    if distributed.is_main():
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        (folder / LOCK).unlink(missing_ok=True)


class _Best:
    """The best evaluation so far, and the weights that gave it; a part of every checkpoint."""

    FACTS, WEIGHTS = "best.json", "best.safetensors"

    def __init__(self, metric: str, patience: int | None) -> None:
        self.metric, self.patience = metric, patience
        self.sign = sign_of(metric)
        self.value, self.step, self.waited = -math.inf, 0, 0
        self.found: dict[str, float] = {}
        self.history: list[tuple[int, dict[str, float]]] = []
        self.weights: dict[str, Tensor] = {}

    def is_exhausted(self, model: Model, step: int, found: dict[str, float]) -> bool:
        """Note an evaluation; True where it is the one too many without a gain."""
        if self.metric not in found:
            raise unknown("metric", self.metric, found)
        self.history.append((step, found))
        if step == 0:  # what an untrained head gets right is luck
            return False
        value = self.sign * found[self.metric]
        if value > self.value or not self.found:
            self.value, self.step, self.found, self.waited = value, step, found, 0
            self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}
            return False
        self.waited += 1
        return self.is_spent

    @property
    def is_spent(self) -> bool:
        """Whether there was no gain for so long that the run ends."""
        return self.patience is not None and self.waited >= self.patience

    def save(self, folder: Path) -> None:
        """Write it into the folder of a checkpoint."""
        names = ("value", "step", "waited", "found", "history")
        facts = {name: getattr(self, name) for name in names if self.found or name == "history"}
        write_text(folder / self.FACTS, json.dumps(facts, indent=2) + "\n")
        save_file({name: x.contiguous() for name, x in self.weights.items()}, folder / self.WEIGHTS)

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote into a sound checkpoint."""
        facts = read_json(folder / self.FACTS)
        for name, value in facts.items():
            setattr(self, name, value)
        self.history = [(step, found) for step, found in facts["history"]]
        self.weights = load_file(folder / self.WEIGHTS)

    def restore(self, model: Model) -> None:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(self.weights[name])

"""A supervised run: trains a model on labelled rows, scores it on dev rows, and keeps the best weights."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from unmask.config import read_json
from unmask.data.examples import Groups, labelled
from unmask.data.labelled.rows import Row
from unmask.errors import unknown
from unmask.files import write_text
from unmask.models.model import Model
from unmask.nn import stored
from unmask.runs.finetuning.config import IN_MINUTES, Fit
from unmask.runs.run import Best, Run
from unmask.runs.transfer import Transfer, prepare, remembering
from unmask.tasks import Encoded, Task
from unmask.train import checkpoint, distributed
from unmask.train.checkpoint import LOCK
from unmask.train.display import Display
from unmask.train.engine import Data, Minimised
from unmask.train.events import Evaluation, Result
from unmask.train.interrupt import cuttable
from unmask.train.optim import Tuning
from unmask.train.trainer import Training


@dataclass(frozen=True)
class Fitted:
    """The result of `fit`. The model has the weights of the best evaluation, or the last ones if there was none.

    metric, best  the metric that decides, and all dev metrics of the best evaluation; empty if a signal ended the run
                  before the first evaluation
    step, total   the step of the best evaluation, and the planned number of steps
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
        """The values of the metric at all evaluations but that of step 0, in order."""
        return [found[self.metric] for step, found in self.history if step]


def class_shares(rows: Sequence[Row]) -> np.ndarray:
    """[N] weights of the rows for sampling that draws all labels equally often."""
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
    objective  the objective if it is not the task alone, such as the task with a teacher
    transfer   which weights are trained, and how fast; None: all
    resume     None keeps no checkpoints. Otherwise every evaluation writes a checkpoint to `out`; True continues from
               the last one, bit for bit (with "frozen" up to rounding, see `transfer/remembered.py`)

    Raises UnmaskError for invalid settings, a metric that the task lacks, and losses that are not finite.
    """
    with running(
        model, task, train, dev, config, pad=pad, seed=seed, out=out, display=display, objective=objective,
        transfer=transfer, resume=resume,
    ) as run:  # fmt: skip
        result = run.run()
        if resume is None:
            forget(run.out)
    best = run.restored()
    del run.trainer  # breaks a reference cycle, which would keep the optimizer state during the next run
    return Fitted(best.metric, best.found, best.step, result.total, best.history, result.stopped)


@contextmanager
def running(
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
) -> Iterator[Supervised]:
    """The run of `fit`, which has not begun: `run.plan()` measures its cost, and `run.run()` trains."""
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
        classes=train.classes,
        collate=train.collating(pad),
        workers=config.workers,
    )
    total, evaluate_every = _planned(config, data.steps())
    training = Training(
        steps=total,
        minutes=config.minutes,
        optimizer=config.optimizer,
        schedule=config.schedule,
        precision=config.precision,
        device=config.device,
        seed=seed,
        log_every=10 if total is None else max(1, min(10, total // 20)),
        evaluate_every=evaluate_every,
        save_every=None if resume is None else evaluate_every,
        keep=2,
    )
    tuning = prepare(model, transfer or Transfer(), seed)
    with ExitStack() as stack:
        if objective is None and train.collate is None:  # a teacher may need inner states; augmented rows never repeat
            stack.enter_context(remembering(model, transfer or Transfer()))
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="unmask-")))
        found = checkpoint.latest(folder / "checkpoints") if resume else None
        if found is None and resume and display is not None and (folder / "metrics.jsonl").exists():
            display.note(f"{folder} has no checkpoint yet: it begins from the start, with the settings of the run.")
        yield Supervised(
            model,
            objective or task,
            data,
            training,
            folder,
            scores=lambda model: task.evaluate(model, dev, pad),
            best=Best(config.metric or task.metric, patience=config.patience),
            tuning=tuning,
            resume=found is not None,
            display=display,
        )


def _planned(config: Fit, steps: int) -> tuple[int | None, float]:
    """The number of steps, None if it follows from the minutes; and the steps between evaluations, or a fraction of all
    steps. `steps` are those of an epoch."""
    if config.minutes is not None:
        return None, 1 / (config.evaluations or IN_MINUTES)
    planned = max(1, round(config.passes * steps))
    total = max(planned, config.least)
    every = steps / (config.evaluations or 1.0) * total / planned  # `least` does not add evaluations
    return total, max(1, round(every))


class Supervised(Run):
    """A run on labelled rows. It keeps the best weights in memory and in its checkpoints; it writes no model folder.

    scores  model -> metrics of the dev rows
    """

    FACTS, WEIGHTS = "best.json", "best.safetensors"

    best: Best

    def __init__(
        self,
        model: Model,
        objective: Minimised,
        data: Data,
        training: Training,
        out: Path,
        *,
        scores: Callable[[Any], dict[str, float]],
        best: Best,
        tuning: Tuning,
        resume: bool,
        display: Display | None,
    ) -> None:
        self.scores = scores
        self.weights: dict[str, Tensor] = {}
        super().__init__(
            model, objective, data, training, out, best=best, tuning=tuning, resume=resume, display=display
        )

    @property
    def is_evaluated(self) -> bool:
        return True

    def evaluate(self, model: Any, step: int) -> Evaluation:
        with cuttable():
            return Evaluation(self.scores(model))

    def keep(self) -> None:
        self.weights = {name: x.clone() for name, x in stored(self.model).items()}

    def save(self, folder: Path) -> None:
        """Write the best evaluation and its weights into the folder of a checkpoint."""
        names = ("value", "step", "waited", "found", "history")
        facts = {name: getattr(self.best, name) for name in names if self.best.found or name == "history"}
        write_text(folder / self.FACTS, json.dumps(facts, indent=2) + "\n")
        save_file({name: x.contiguous() for name, x in self.weights.items()}, folder / self.WEIGHTS)

    def restore_best(self, best: Best) -> None:
        """Read the best evaluation and its weights from the last sound checkpoint."""
        found = checkpoint.latest(self.out / "checkpoints")
        assert found is not None
        facts = read_json(found.folder / self.FACTS)
        for name, value in facts.items():
            setattr(best, name, value)
        best.history = [(step, numbers) for step, numbers in facts["history"]]
        self.weights = load_file(found.folder / self.WEIGHTS)

    def write_settings(self, folder: Path) -> None:
        """Does nothing: the folder of the whole fine-tuning run has the settings."""

    def finish(self, result: Result) -> None:
        """Does nothing: `restored` passes the weights on in memory."""

    def restored(self) -> Best:
        """Give the model its best weights, and set it to evaluation mode. After a signal before the first evaluation,
        the model keeps its current weights."""
        with torch.no_grad():
            for name, x in stored(self.model).items():
                if name in self.weights:
                    x.copy_(self.weights[name])
        self.model.eval()
        return self.best


def check_metric(metric: str | None, baseline: Mapping[str, float], evaluate: Callable[[], dict[str, float]]) -> None:
    """Raises UnmaskError for a metric that the task lacks. If the baseline lacks the metric too, as it does the loss,
    `evaluate` runs a model to find all metrics."""
    if metric is not None and metric not in baseline and metric not in (found := evaluate()):
        raise unknown("metric", metric, found)


def begun_with(folder: Path) -> int | None:
    """The seed of the run of `fit` in a folder, from its last sound checkpoint; None if there is none."""
    found = checkpoint.latest(folder / "checkpoints")
    return None if found is None else found.state["config"]["seed"]


def forget(folder: Path) -> None:
    """Remove the checkpoints of a run of `fit`; its metrics stay."""
    if distributed.is_main():
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        (folder / LOCK).unlink(missing_ok=True)

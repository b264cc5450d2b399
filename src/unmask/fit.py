"""Fit a model to labelled rows: batches by (seed, epoch), evaluation on the way, the best weights kept."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from unmask.config import Config
from unmask.data import collate
from unmask.errors import UnmaskError, unknown
from unmask.models.model import Model
from unmask.tasks import Encoded, Task
from unmask.train import distributed
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Display, Trainer, Training
from unmask.types import Batch, Example

TOKENS_AT_ONCE = 16_384  # of a micro-batch; a larger batch is accumulated
LOWER_IS_BETTER = frozenset({"loss", "rmse"})


@dataclass(frozen=True, kw_only=True)
class Fit(Config):
    """How a model is fitted to labelled rows. The defaults suit a BERT-base that was pre-trained at length (Devlin et
    al. 2018, appendix A.3: 2e-5 to 5e-5, 2 to 4 epochs); one of a few million parameters wants 3e-4 to 1e-3.

    epochs       passes over the training rows
    batch_size   rows of one step, over all micro-batches and processes
    evaluations  of the dev rows, per epoch; below 1, one in several epochs
    patience     evaluations without a gain after which to stop; None: never early
    metric       that decides which weights are kept; None: the task's first
    """

    epochs: float = 3.0
    batch_size: int = 32
    evaluations: float = 1.0
    patience: int | None = None
    metric: str | None = None
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(lr=5e-5))
    schedule: Schedule = field(default_factory=Schedule)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    device: str = "auto"


@dataclass(frozen=True)
class Fitted:
    """What `fit` found. The model holds the weights of the best evaluation.

    metric, best  what decided, and the metrics of the dev rows where it was best
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


class Examples:
    """Encoded examples as training data: every epoch is a permutation that depends on (seed, epoch) alone.

    A step has `batch_size` examples, the last one of an epoch what is left; each rank takes its share of them, packs
    it into rows without padding between, and cuts it into micro-batches of about 16,000 tokens.
    """

    def __init__(self, examples: Sequence[Example], batch_size: int, *, pad: int, seed: int) -> None:
        self.examples, self.batch_size, self.pad, self.seed = examples, batch_size, pad, seed
        self.lengths = np.array([len(example.tokens) for example in examples])
        rest = len(examples) % batch_size
        # What is left must give every rank something to do.
        self.steps_per_epoch = len(examples) // batch_size + (rest >= distributed.ranks())
        if self.steps_per_epoch == 0:
            raise UnmaskError(f"{len(examples)} training rows are too few for {distributed.ranks()} processes.")

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
        """(micro-batches of this rank, position after them) for each step from `position` on, without end."""
        step = 0 if position is None else position["step"]
        epoch, order = -1, np.empty(0, np.int64)
        while True:
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                order = np.random.default_rng([self.seed, epoch]).permutation(len(self.examples))
            begin = step % self.steps_per_epoch * self.batch_size
            step += 1
            yield self._micro_batches(order[begin : begin + self.batch_size]), {"step": step}

    def _micro_batches(self, chosen: np.ndarray) -> list[Batch]:
        own = chosen[distributed.rank() :: distributed.ranks()]
        parts = np.array_split(own, math.ceil(self.lengths[own].sum() / TOKENS_AT_ONCE))
        width = [-(-int(self.lengths[part].max()) // 8) * 8 for part in parts]
        return [
            collate.pack([self.examples[i] for i in part], longest, self.pad)
            for part, longest in zip(parts, width, strict=True)
        ]


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
) -> Fitted:
    """Train `model` on `train` and leave it, in evaluation mode, with the weights that were best on `dev`.

    pad  id of the padding token
    out  folder for metrics.jsonl; None leaves nothing on disk

    Raises UnmaskError for settings that make no run, a metric that the task lacks, and losses that are not finite.
    """
    if config.epochs <= 0 or config.batch_size < 1 or config.evaluations <= 0:
        raise UnmaskError("The epochs, the batch size and the evaluations per epoch must be above 0.")
    data = Examples(train.examples, config.batch_size, pad=pad, seed=seed)
    total = max(1, round(config.epochs * data.steps_per_epoch))
    training = Training(
        steps=total,
        optimizer=config.optimizer,
        schedule=config.schedule,
        precision=config.precision,
        device=config.device,
        seed=seed,
        log_every=max(1, min(10, total // 20)),
        evaluate_every=max(1, round(data.steps_per_epoch / config.evaluations)),
        save_every=None,
        keep=1,
    )
    best = _Best(config.metric or task.metric, config.patience)

    def evaluate_dev(model: Any, step: int) -> dict[str, float]:
        found = task.evaluate(model, dev, pad)
        if best.is_exhausted(model, step, found):
            trainer.stop(f"no gain in {config.patience} evaluations")
        return found

    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="unmask-")))
        trainer = Trainer(model, task, data, training, folder, evaluate=evaluate_dev, display=display)
        result = trainer.train()
        if distributed.is_main():  # the trainer's own state is for going on with a run, and this one is over
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
            (folder / ".lock").unlink(missing_ok=True)
    if not best.found:  # interrupted before the first evaluation
        best.is_exhausted(model, result.step, task.evaluate(model, dev, pad))
    best.restore(model)
    return Fitted(best.metric, best.found, best.step, total, best.history, result.stopped)


class _Best:
    """The best evaluation so far, and the weights that gave it."""

    def __init__(self, metric: str, patience: int | None) -> None:
        self.metric, self.patience = metric, patience
        self.sign = -1 if metric in LOWER_IS_BETTER else 1
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
        return self.patience is not None and self.waited >= self.patience

    def restore(self, model: Model) -> None:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(self.weights[name])
        model.eval()

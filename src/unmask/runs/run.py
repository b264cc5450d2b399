"""Run: trains a model by an objective on data, and writes a folder with checkpoints, metrics and the finished model.

Every kind of training is a Run. A kind of run chooses the parts that it passes, and overrides public methods:
`evaluate`, `write_model`, `facts`, `finish`, `sentences`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

from torch import nn

from unmask import huggingface
from unmask.config import flatten
from unmask.errors import plural, unknown
from unmask.files import write_text
from unmask.huggingface.card import Card
from unmask.models.model import Model
from unmask.runs import cards, probes
from unmask.train import checkpoint, distributed
from unmask.train.display import Display, on_main
from unmask.train.engine import Data, Minimised
from unmask.train.events import Began, Evaluated, Evaluation, Event, Listener, Planned, Result
from unmask.train.interrupt import cuttable
from unmask.train.metrics import read as read_metrics
from unmask.train.optim import Tuning
from unmask.train.trackers import About, Tracking, installed
from unmask.train.trainer import Trainer, Training
from unmask.types import Batch

BEST = "best"
"""Folder, inside the folder of a run, of the model of the best evaluation."""

LOWER_IS_BETTER = frozenset(
    {"loss", "rmse", "mae", "mase", "smape", "wql", "eer", "mindcf", "wer", "cer", "substitutions", "deletions"}
    | {"insertions"}
)
"""Metrics that are better when they are lower; all others are better when they are higher."""


def sign_of(metric: str) -> int:
    """The factor, 1 or -1, that makes higher values of a metric better."""
    return -1 if metric in LOWER_IS_BETTER else 1


def claim(out: Path, device: str, *, resume: bool) -> None:
    """Join the processes of the run, and check that its folder is free, or holds the run to resume.

    Call it first, because later code needs the number of processes. Raises UnmaskError for a folder in use.
    """
    distributed.init(device)
    checkpoint.refuse_taken(out, resume=resume)


class Best:
    """The best evaluation so far, by one metric.

    metric    name of the metric that decides
    patience  evaluations without improvement after which the run ends; None: it never ends early
    later     whether the later of two equal evaluations is the best
    history   (step, numbers) of every evaluation
    """

    def __init__(self, metric: str, *, patience: int | None = None, later: bool = False) -> None:
        self.metric, self.patience, self.later = metric, patience, later
        self.value, self.step, self.waited = -math.inf, 0, 0
        self.found: dict[str, float] = {}
        self.history: list[tuple[int, dict[str, float]]] = []

    def note(self, step: int, found: Mapping[str, float]) -> bool:
        """Add an evaluation; True if it is the best so far. The evaluation of step 0 is never the best.

        Every process must call it. Raises UnmaskError if the metric is not among the numbers.
        """
        self.history.append((step, dict(found)))
        if step == 0:
            return False
        if self.metric not in found:
            raise unknown("metric", self.metric, found)
        value = distributed.from_main(sign_of(self.metric) * found[self.metric])
        if value > self.value or not self.found or (self.later and value == self.value):
            self.value, self.step, self.found, self.waited = value, step, dict(found), 0
            return True
        self.waited += 1
        return False

    @property
    def is_spent(self) -> bool:
        """Whether the run ends because the metric has not improved for `patience` evaluations."""
        return self.patience is not None and self.waited >= self.patience

    def replay(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the evaluations of an earlier part of the run, from metrics.jsonl."""
        for row in rows:
            self.note(row["step"], row)


class Run:
    """One training run: `plan` estimates its time and memory; `run` trains, and writes the finished folder.

    model, objective, data  the model, the objective to minimise, and the batches
    training   how the model is trained
    out        folder of the run: checkpoints, metrics.jsonl, samples.jsonl, run.json and, at the end, the model
    processor  turns items into examples; it is saved beside the model
    best       decides which evaluation is the best; the finished folder gets its model. None: the finished folder gets
               the last weights
    tuning     which parameters are trained, and how fast; None: all of them
    resume     continue from the last sound checkpoint in `out`

    Raises UnmaskError at construction for every error that can be found before the first step.
    """

    kind: ClassVar[str] = "run"  # the kind of report, in run.json
    recipe: str = ""  # name of the recipe, if the config has one
    heldout: Sequence[Batch] = ()  # rows of evaluations; without any, the run is not evaluated
    notes: Sequence[str] = ()  # sentences about the data and the model, for the display
    began: int = 0  # the step from which this process trains

    def __init__(
        self,
        model: Model,
        objective: Minimised,
        data: Data,
        training: Training,
        out: Path | str,
        *,
        processor: Any = None,
        best: Best | None = None,
        tuning: Tuning | None = None,
        resume: bool = False,
        display: Display | None = None,
    ) -> None:
        self.model, self.objective, self.data, self.out = model, objective, data, Path(out)
        self.processor, self.best = processor, best
        self.tracked = installed((*training.track, *(("tensorboard",) if training.tensorboard else ())))
        self.trainer = Trainer(
            model,
            objective,
            data,
            training,
            self.out,
            evaluate=self.evaluate if self.is_evaluated else None,
            save=self.save,
            tuning=tuning,
            resume=resume,
        )
        if resume and best is not None:
            self.restore_best(best)
            self._stop_if_spent()
        self.display = on_main(display)
        for note in self.notes:
            self.display.note(note)

    def plan(self) -> dict[str, Any]:
        """The size, memory and time of the run, measured on a few steps that change nothing (`Trainer.plan`)."""
        self.display.note("Measuring the time of a few steps.")
        return self.trainer.plan()

    def run(self, *listeners: Listener) -> Result:
        """Train, pass all events to `listeners`, and write the finished folder.

        The run can be resumed until then, and its folder is sound at any time.
        """
        names = self.tracked if distributed.is_main() else ()
        with Tracking(names, About(self.out, settings=lambda: flatten(self.settings())), self.display.note) as tracking:
            with distributed.connected():
                heard: list[Listener] = [self.hear, probes.writing(self.out), *listeners, tracking]
                result = self.trainer.train(*heard, display=self.display)
            self.trainer.engine.on_main(lambda: self.finish(result))
            tracking.scores = self.scores_of(result)
        return result

    def hear(self, event: Event) -> None:
        """The first listener: it writes the settings when a run begins, and keeps the best model."""
        match event:
            case Began() if distributed.is_main():
                self.write_settings(self.out)
            case Planned(step=step, total=total):
                self.began = step
                self.planned(total)
            case Evaluated(step=step, numbers=numbers) if self.best is not None:
                if self.best.note(step, numbers):
                    self.keep()
                self._stop_if_spent()

    # Methods that kinds of runs override

    @property
    def is_evaluated(self) -> bool:
        """Whether there is data to evaluate on."""
        return len(self.heldout) > 0

    def planned(self, total: int) -> None:
        """Called with the number of steps, before the first step."""

    def evaluate(self, model: nn.Module, step: int) -> Evaluation:
        """The mean losses and metrics of the held-out rows, under the names that training uses."""
        with cuttable():
            return Evaluation(mean_losses(self.objective, cast(Model, model), self.heldout))

    def write_model(self, folder: Path) -> None:
        """Write the model and its processor into a folder; `transformers` reads it if it has the system."""
        huggingface.save(folder, self.model, self.processor)

    def scores_of(self, result: Result) -> dict[str, float]:
        """The scores of the finished model: those of the best evaluation, or of the last one."""
        return result.heldout if self.best is None else self.best.found

    def facts(self) -> dict[str, Any]:
        """What run.json has of this kind of run: the settings for `--resume`, and the facts for the report."""
        return {"training": self.trainer.config.to_dict()}

    def keep(self) -> None:
        """Keep the model of the best evaluation. Every process calls it."""
        self.trainer.engine.on_main(lambda: self.save(self.out / BEST))

    def restore_best(self, best: Best) -> None:
        """Give `best` the evaluations up to the checkpoint that the run continues from; later ones are repeated."""
        last = max(checkpoint.steps(self.out / "checkpoints"), default=0)
        best.replay(row for row in self.evaluations() if row["step"] <= last and best.metric in row)

    def finish(self, result: Result) -> None:
        """Write the finished folder and its model card, on the main process."""
        self.save(self.out)
        cards.write(self.out, self.card(result))

    def card(self, result: Result) -> Card:
        """What the model card says, besides what the folder itself does."""
        length = {"steps": result.step, "minutes": round(result.seconds / 60, 1)}
        settings = length | cards.settings(self.trainer.config.to_dict(), without=length)
        return Card(settings=settings, warnings=[*cards.unfinished(result), *self.doubts(result)])

    def doubts(self, result: Result) -> list[str]:
        """Sentences for a model that has hardly learned."""
        return []

    def sentences(self, result: Result) -> list[str]:
        """Sentences for the summary, besides the length and the folder of the run."""
        return []

    # Methods that they share

    def summary(self, result: Result) -> str:
        """How the run ended, in a few lines of text."""
        done = f"{result.step:,} of {plural(result.total, 'step')} in {result.seconds / 60:.1f} minutes"
        first = f"{done}; stopped by {result.stopped}." if result.stopped else f"{done}. The model is in {self.out}."
        return "\n".join([first, *self.sentences(result)])

    def save(self, folder: Path) -> None:
        """Write the model, its processor and the settings of the run into a folder."""
        self.write_model(folder)
        self.write_settings(folder)

    def write_settings(self, folder: Path) -> None:
        """Write run.json."""
        write_text(folder / checkpoint.RUN, json.dumps(self.settings(), indent=2, ensure_ascii=False) + "\n")

    def settings(self) -> dict[str, Any]:
        """The content of run.json."""
        common = {"kind": self.kind, "recipe": self.recipe, "parameters": self.model.parameters_total}
        return common | self.facts()

    def _stop_if_spent(self) -> None:
        if self.best is not None and self.best.is_spent:
            self.trainer.stop(f"no gain in {plural(self.best.waited, 'evaluation')}")

    def evaluations(self) -> list[dict[str, Any]]:
        """The evaluations that metrics.jsonl holds, in order."""
        path = self.out / "metrics.jsonl"
        return read_metrics(path, "heldout") if path.exists() else []


def mean_losses(objective: Minimised, model: Model, batches: Iterable[Batch]) -> dict[str, float]:
    """`loss/TERM` and `TERM/METRIC`: means over all targets of some batches. Call it without gradients."""
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for batch in batches:
        for name, loss in objective.loss(model, batch.to(model.device)).items():
            counts[name] = counts.get(name, 0) + loss.count
            metrics = {f"{name}/{metric}": value for metric, value in loss.metrics.items()}
            for key, value in {f"loss/{name}": loss.sum, **metrics}.items():
                sums[key] = sums.get(key, 0.0) + float(value)
    return {key: value / max(1, counts[_term(key)]) for key, value in sums.items()}


def _term(key: str) -> str:
    """The loss term of `loss/TERM` or `TERM/METRIC`."""
    kind, _, rest = key.partition("/")
    return rest if kind == "loss" else kind

"""Trackers: the settings and numbers of a run in TensorBoard, Weights & Biases, MLflow or trackio.

Each goes through its own client, which reads its own environment: the place, the project, offline modes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from unmask.config import read_json
from unmask.errors import Missing, UnmaskError, needs
from unmask.files import write_text
from unmask.train.events import Evaluated, Event, Measured, Opened

Name = Literal["tensorboard", "wandb", "mlflow", "trackio"]
PROJECT = "unmask"  # if the client has none
FILE = "trackers.json"
"""File, in the folder of a run, with the names that trackers gave it; a resumed run continues under them."""


@dataclass(frozen=True)
class About:
    """The run that is tracked.

    folder    folder of the run
    part      the part of a run that trains several models, such as "seed 0"; empty: all of it
    settings  function that returns the settings by dotted names; called once, when the training begins
    """

    folder: Path
    part: str = ""
    settings: Callable[[], Mapping[str, Any]] = field(default=dict)

    @property
    def name(self) -> str:
        """The last two parts of the folder's path, and the part."""
        return " ".join(["/".join(self.folder.parts[-2:]), *([self.part] if self.part else [])])


class Tracker(ABC):
    """What a client does for one run; every method may raise any error of the client."""

    package: ClassVar[str]

    @staticmethod
    @abstractmethod
    def missing() -> Missing:
        """The error if the package is not installed."""

    @abstractmethod
    def start(self, about: About, step: int, known: str | None) -> str:
        """Open a run at `step`, or continue the `known` one. Returns the name to continue it under."""

    @abstractmethod
    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Add numbers by name."""

    @abstractmethod
    def finish(self, scores: Mapping[str, float], step: int, ok: bool) -> None:
        """Add the final scores, and close the run; `ok` is false if an error ended it."""


class TensorBoard(Tracker):
    """Event files in the folder `tensorboard` of the run."""

    package = "tensorboard"

    @staticmethod
    def missing() -> Missing:
        return needs("--track tensorboard needs the package tensorboard", "tensorboard")

    def start(self, about: About, step: int, known: str | None) -> str:
        from torch.utils.tensorboard import SummaryWriter

        place = about.folder / "tensorboard" / about.part.replace(" ", "-")
        self.writer = SummaryWriter(place, purge_step=step + 1 if step else None)
        self.writer.add_text("settings", f"```\n{json.dumps(about.settings(), indent=2, default=str)}\n```")
        return about.name

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)

    def finish(self, scores: Mapping[str, float], step: int, ok: bool) -> None:
        self.log(scores, step)
        self.writer.close()


class Wandb(Tracker):
    """Weights & Biases. Project: WANDB_PROJECT, else `unmask`; WANDB_MODE=offline writes files to sync later."""

    package = "wandb"

    @staticmethod
    def missing() -> Missing:
        return needs("--track wandb needs the package wandb", "wandb")

    def start(self, about: About, step: int, known: str | None) -> str:
        import wandb

        how = {"id": known, "resume": "allow"} if known else {}
        self.run = wandb.init(
            project=wandb.setup().settings.project or PROJECT,
            name=about.name,
            group=about.folder.name if about.part else None,
            config=dict(about.settings()),
            reinit="create_new",
            settings=wandb.Settings(console="off"),  # else all that the process prints is uploaded
            **how,
        )
        return str(self.run.id)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self.run.log(dict(numbers), step=step)

    def finish(self, scores: Mapping[str, float], step: int, ok: bool) -> None:
        self.run.summary.update(dict(scores))
        self.run.finish(exit_code=0 if ok else 1)


class MLflow(Tracker):
    """MLflow, in the experiment and at the place that it is set to (MLFLOW_TRACKING_URI, `mlflow.set_experiment`)."""

    package = "mlflow"
    MOST = 500  # characters of a parameter, the least of the limits of its stores

    @staticmethod
    def missing() -> Missing:
        return needs("--track mlflow needs the package mlflow or mlflow-skinny", "mlflow")

    def start(self, about: About, step: int, known: str | None) -> str:
        import mlflow

        self.client = mlflow.tracking.MlflowClient()
        if known is None:
            run = mlflow.start_run(run_name=about.name, nested=mlflow.active_run() is not None)
            mlflow.log_params({name: str(value)[: self.MOST] for name, value in about.settings().items()})
        else:
            run = mlflow.start_run(run_id=known, nested=mlflow.active_run() is not None)
        self.id = str(run.info.run_id)
        return self.id

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        import mlflow

        mlflow.log_metrics(dict(numbers), step=step, run_id=self.id)

    def finish(self, scores: Mapping[str, float], step: int, ok: bool) -> None:
        import mlflow

        self.log(scores, step)
        mlflow.end_run("FINISHED" if ok else "FAILED")


class Trackio(Tracker):
    """trackio, whose project `unmask` is on this machine unless it is told a Space (`trackio show`)."""

    package = "trackio"

    @staticmethod
    def missing() -> Missing:
        return needs("--track trackio needs the package trackio", "trackio")

    def start(self, about: About, step: int, known: str | None) -> str:
        import trackio

        name = known or about.name
        self.run = trackio.init(
            project=PROJECT, name=name, config=dict(about.settings()), resume="allow" if known else "never"
        )
        return str(self.run.name)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self.run.log(dict(numbers), step=step)

    def finish(self, scores: Mapping[str, float], step: int, ok: bool) -> None:
        if scores:
            self.log(scores, step)
        self.run.finish()


TRACKERS: Mapping[Name, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": MLflow,
    "trackio": Trackio,
}


def installed(names: Sequence[Name]) -> tuple[Name, ...]:
    """The names, each once. Raises UnmaskError, with the command that installs it, if the package of one is missing."""
    for name in names:
        if importlib.util.find_spec(TRACKERS[name].package) is None:
            raise TRACKERS[name].missing()
    return tuple(dict.fromkeys(names))


class Tracking:
    """A context in which trackers receive a run, as a listener. An error of a tracker never reaches the run: it is
    noted once, and the tracker receives nothing more.

    scores  the final scores, by split and metric; set before the context ends
    """

    def __init__(self, names: Sequence[Name], about: About, note: Callable[[str], None]) -> None:
        self.trackers = {name: TRACKERS[name]() for name in names}
        self.about, self.note = about, note
        self.scores: Mapping[str, float] = {}
        self.step, self.opened = 0, False

    def __call__(self, event: Event) -> None:
        match event:
            case Opened(step):
                self._start(step)
            case Measured(step=step) | Evaluated(step=step):
                self.step, split = step, event.row["split"]
                numbers = finite({f"{split}/{name}": value for name, value in event.numbers.items()})
                self._each(lambda tracker: tracker.log(numbers, step))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        scores = finite({f"final/{name}": value for name, value in self.scores.items()})
        self._each(lambda tracker: tracker.finish(scores, self.step, ok=kind is None))

    def _start(self, step: int) -> None:
        if self.opened:  # the training begins again, with other weights
            self._each(lambda tracker: tracker.finish({}, self.step, ok=False))
        self.opened = True
        if not self.trackers:
            return
        path = self.about.folder / FILE
        try:
            every: dict[str, dict[str, str]] = dict(read_json(path)) if path.is_file() else {}
        except UnmaskError as error:
            self.note(f"The runs of the trackers begin anew: {error}")
            every = {}
        known = every.get(self.about.part, {}) if step else {}
        named: dict[str, str] = {}
        self._each(lambda tracker: named.update({tracker.package: self._opened(tracker, step, known)}))
        write_text(path, json.dumps({**every, self.about.part: named}, indent=2) + "\n")

    def _opened(self, tracker: Tracker, step: int, known: Mapping[str, str]) -> str:
        return tracker.start(self.about, step, known.get(tracker.package))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                act(tracker)
            except Exception as error:  # of any client, and of its network
                del self.trackers[name]
                with contextlib.suppress(Exception):  # or the next run of the client would be part of this one
                    tracker.finish({}, self.step, ok=False)
                why = (str(error).strip() or type(error).__name__).splitlines()[0]
                self.note(f"{name} receives no more of this run, which goes on: {why}")


def finite(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The values that are finite numbers."""
    return {
        name: float(value)
        for name, value in numbers.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }

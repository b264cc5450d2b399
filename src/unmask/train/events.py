"""The events of a training run, as values; `listen` passes them to listeners."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Evaluation(NamedTuple):
    """The result of an evaluation.

    numbers  metrics by name, such as "loss/mlm" (natural logarithm) and "mlm/correct" (share, 0 to 1)
    samples  the model's predictions for the probes: {"text", "expected", "guesses"} each; only on the main process
    """

    numbers: dict[str, float]
    samples: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Began:
    """The run starts from the beginning, not from a checkpoint. The folder is locked, and no file is written yet."""


@dataclass(frozen=True)
class Noted:
    """A sentence about the run, for a person."""

    text: str


@dataclass(frozen=True)
class Opened:
    """Weights and optimizer are loaded. `step` steps are done; rows of later steps in the folder are now invalid."""

    step: int


@dataclass(frozen=True)
class Planned:
    """`step` steps are done, and the run will have `total`; the next step follows."""

    step: int
    total: int


@dataclass(frozen=True)
class Step:
    """The optimizer has done step number `step`, counted from 1. Its losses are in the next `Measured`."""

    step: int


@dataclass(frozen=True)
class Measured:
    """Metrics of training, every `log_every` steps.

    step     optimizer steps done
    seconds  time of the run so far, including the earlier parts of a resumed run
    numbers  means over all targets since the last `Measured`, `lr`, and rates of tokens (`Meter.read`, `Clock.rates`)
    """

    step: int
    seconds: float
    numbers: dict[str, float]

    @property
    def row(self) -> dict[str, Any]:
        """A row of metrics.jsonl."""
        return {"step": self.step, "seconds": self.seconds, "split": "train", **self.numbers}


@dataclass(frozen=True)
class Evaluated:
    """The evaluation after `step` steps; `seconds` as in `Measured`, the rest as in `Evaluation`."""

    step: int
    seconds: float
    numbers: dict[str, float]
    samples: Sequence[Mapping[str, Any]] = ()

    @property
    def row(self) -> dict[str, Any]:
        """A row of metrics.jsonl."""
        return {"step": self.step, "seconds": self.seconds, "split": "heldout", **self.numbers}


@dataclass(frozen=True)
class Saved:
    """The checkpoint of `step` is complete."""

    step: int
    folder: Path


@dataclass(frozen=True)
class Result:
    """The last event of a run.

    step, total  optimizer steps done, and planned
    seconds      time of training, including calibration and the earlier parts of a resumed run
    stopped      the reason why the run ended before its last step, else None
    heldout      the numbers of the last evaluation
    """

    step: int
    total: int
    seconds: float
    stopped: str | None
    heldout: dict[str, float] = field(default_factory=dict)


Event = Began | Noted | Opened | Planned | Step | Measured | Evaluated | Saved | Result
Events = Generator[Event, None, None]
Listener = Callable[[Event], object]


def listen(events: Events, *listeners: Listener) -> Result:
    """Run to the end. Each listener receives each event, in order, before the run continues.

    An error in a listener ends the run and is raised here.
    """
    with closing(events):
        for event in events:
            for listener in listeners:
                listener(event)
    assert isinstance(event, Result)
    return event

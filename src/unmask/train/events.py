"""What happens in a training run, as values; `listen` hands them to those that want to know."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Evaluation(NamedTuple):
    """What an evaluation finds.

    numbers  metrics by name, such as "loss/mlm" (natural logarithm) and "mlm/correct" (share, 0 to 1)
    samples  what the model answers to the probes: {"text", "expected", "guesses"} each; on the main process alone
    """

    numbers: dict[str, float]
    samples: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Began:
    """The run begins at its start, not at a checkpoint. The folder is locked, and nothing is written yet."""


@dataclass(frozen=True)
class Noted:
    """A sentence about the run, for a person."""

    text: str


@dataclass(frozen=True)
class Opened:
    """Weights and optimizer are loaded. `step` steps are done; what was written of later ones no longer holds."""

    step: int


@dataclass(frozen=True)
class Planned:
    """`step` steps are done, and the run will have `total`; the next step follows."""

    step: int
    total: int


@dataclass(frozen=True)
class Step:
    """The optimizer has made its step number `step`, counted from 1. Its losses are in the next `Measured`."""

    step: int


@dataclass(frozen=True)
class Measured:
    """Numbers of training, every `log_every` steps.

    step     optimizer steps done
    seconds  time of the run so far, earlier parts of a resumed run included
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
    """What the evaluation after `step` steps found; `seconds` as in `Measured`, the rest as in `Evaluation`."""

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
    """How a run ended: its last event.

    step, total  optimizer steps done, and planned
    seconds      time of training, calibration and earlier parts of a resumed run included
    stopped      why it ended before its last step, else None
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
    """Run to the end, and let each listener hear each event, in order, before the run goes on.

    Where a listener raises an error, the run ends as if it had raised it.
    """
    with closing(events):
        for event in events:
            for listener in listeners:
                listener(event)
    assert isinstance(event, Result)
    return event

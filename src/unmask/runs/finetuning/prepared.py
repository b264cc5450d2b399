"""Prepared: a fine-tuning run whose rows, model and settings were found good; one seed of it is a run of its own."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.runs.finetuning.config import FineTuning
from unmask.runs.run import sign_of
from unmask.train import distributed
from unmask.train.display import Display, on_main


class Notes:
    """Sentences about a run: shown on the display, and kept for its report."""

    def __init__(self, display: Display | None) -> None:
        self.display = on_main(display)
        self.notes: list[str] = []

    def __call__(self, text: str, note: bool = True) -> None:
        """Show a sentence; with `note`, keep it too. An empty one is left out."""
        if text:
            self.display.note(text)
            if note:
                self.notes.append(text)


@dataclass(frozen=True)
class Seed:
    """What a seed reached.

    row      of results.json: seed, metric, step, total, evaluations, last, stopped; the metrics of each split
    classes  label -> precision, recall, f1 and support on the dev rows; empty where there are no classes
    write    writes the folder of its model
    """

    row: dict[str, Any]
    classes: dict[str, dict[str, float]]
    write: Callable[[Path], None]

    @property
    def value(self) -> float:
        """The metric that decides between seeds, on the dev rows; more is better."""
        metric = self.row["metric"]
        return sign_of(metric) * self.row["dev"][metric]


class Prepared(ABC):
    """A fine-tuning run that has not begun.

    config    with what depends on the rows and the model filled in
    begun     what run.json says until the run has ended: what `--resume` prepares again
    baseline  split -> metrics of the task's plain reference
    """

    config: FineTuning
    begun: FineTuning
    baseline: Mapping[str, dict[str, float]]

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Class names, where there are classes."""

    @property
    @abstractmethod
    def pairs(self) -> bool:
        """Whether training rows are pairs of texts."""

    @abstractmethod
    def train_seed(
        self, seed: int, folder: Path, display: Display | None, say: Notes, *, resume: bool | None = None
    ) -> Seed:
        """Train once, and score every split.

        folder  of this seed: checkpoints and metrics.jsonl
        resume  None keeps no checkpoints; True continues from the last one, where there is one

        Raises Stopped after a signal.
        """


def clear(folder: Path) -> None:
    """Remove the folder of a run, while no other process reads or writes it. Every process must call it."""
    distributed.barrier()
    if distributed.is_main():
        shutil.rmtree(folder, ignore_errors=True)
    distributed.barrier()

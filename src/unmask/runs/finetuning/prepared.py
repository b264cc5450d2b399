"""Prepared: a fine-tuning run whose rows, model and settings have been checked; each seed is one training."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
        """Show a sentence, and keep it if `note` is true. An empty sentence is ignored."""
        if text:
            self.display.note(text)
            if note:
                self.notes.append(text)


@dataclass(frozen=True)
class Seed:
    """The result of one seed.

    row      its row in results.json: seed, metric, step, total, evaluations, last, stopped; the metrics of each split
    classes  label -> precision, recall, f1 and support on the dev rows; empty if the task has no classes
    write    function that writes the model into a folder
    curves   title -> curve of the answers to the dev rows (`Task.curves`)
    confusion  label -> prediction -> number of dev rows; empty unless each row has one label
    tables   title -> table of the answers to the dev rows (`Task.tables`)
    """

    row: dict[str, Any]
    classes: dict[str, dict[str, float]]
    write: Callable[[Path], None]
    curves: dict[str, Any] = field(default_factory=dict)
    confusion: dict[str, dict[str, int]] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The metric on the dev rows that decides between seeds, with the sign that makes higher values better."""
        metric = self.row["metric"]
        return sign_of(metric) * self.row["dev"][metric]


class Prepared(ABC):
    """A fine-tuning run that has not begun.

    config    the config, with the fields filled in that depend on the rows and the model
    begun     the config for `--resume`, in run.json until the run has ended
    baseline  split -> metrics of the task's plain reference
    """

    config: FineTuning
    begun: FineTuning
    baseline: Mapping[str, dict[str, float]]

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Class names; empty if the task has no classes."""

    @property
    @abstractmethod
    def pairs(self) -> bool:
        """Whether training rows are pairs of texts."""

    @property
    @abstractmethod
    def counts(self) -> Mapping[str, int]:
        """Split -> number of its rows."""

    @property
    def pipeline(self) -> str:
        """What the model is for, by the name of the Hugging Face hub (`Task.pipeline`)."""
        return self.config.kind.pipeline

    @property
    def notice(self) -> str:
        """One sentence on how the scores are computed; empty for most tasks."""
        return ""

    @abstractmethod
    def train_seed(
        self, seed: int, folder: Path, display: Display | None, say: Notes, *, resume: bool | None = None
    ) -> Seed:
        """Train once, and score every split.

        folder  folder of this seed, for checkpoints and metrics.jsonl
        resume  None keeps no checkpoints; True continues from the last one, if there is one

        Raises Stopped after a signal.
        """


def clear(folder: Path) -> None:
    """Remove the folder of a run while no other process uses it. Every process must call it."""
    distributed.barrier()
    if distributed.is_main():
        shutil.rmtree(folder, ignore_errors=True)
    distributed.barrier()

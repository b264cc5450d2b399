"""Text-to-text: the tasks that a T5 answers in writing, their settings in a folder, and labels that it cannot write."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.config import Config
from unmask.data.labelled.rows import Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.tasks.registry import TASKS, task_named
from unmask.tasks.written import Written, squeezed

REMEMBERED = "written"
"""Name among the settings of a folder (`Loaded.settings`)."""


@dataclass(frozen=True, kw_only=True)
class Remembered(Config):
    """The settings of a task in a folder: `Written.settings`."""

    family: str = ""
    name: str = ""
    labels: tuple[str, ...] = ()
    mean: float = 0.0


def writing(task: str) -> type[Written]:
    """The written form of a task. Raises UnmaskError for a task without one."""
    written = task_named(task).written
    if written is None:
        known = ", ".join(name for name, kind in TASKS.items() if kind.written is not None)
        raise UnmaskError(f"A T5 answers --task {known} in writing; {task} is for encoders.")
    return written


def written_task(task: str, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> Written:
    """The written form of a task, from training rows. Raises UnmaskError for a task without one."""
    return writing(task).learned(name, train, labels)


def remembered(settings: Mapping[str, Any]) -> Written | None:
    """The task that a folder was fine-tuned to write (`Loaded.settings`); None where it was not.

    Raises UnmaskError for settings that are not those of a task.
    """
    given = settings.get(REMEMBERED)
    if given is None:
        return None
    place = "The task of the model (unmask_task in config.json)"
    try:
        task = Remembered.from_dict(given)
    except (UnmaskError, TypeError) as problem:
        raise UnmaskError(f"{place} is damaged: {problem}") from None
    kind = TASKS[task.family].written if task.family in TASKS else None
    if kind is None or not math.isfinite(task.mean):
        raise UnmaskError(f"{place} is damaged: it is not a task that a T5 writes, or its mean score is not finite.")
    return kind(task.name, task.labels, task.mean)


def check_written(labels: Sequence[str], tokenizer: Tokenizer, folder: Path | str) -> None:
    """Raises UnmaskError for a vocabulary that cannot write a label, or that writes two labels in the same way."""
    written = {label: tokenizer.target.decode(tokenizer.target.ids([label])[0]) for label in labels}
    for label, text in written.items():
        if squeezed(text) != squeezed(label):
            raise UnmaskError(
                f"The vocabulary of {folder} cannot write '{label}'; it would write '{text}'. Take a model whose "
                "vocabulary has its characters, or rename the label in the files, if it is yours."
            )
    groups: dict[str, list[str]] = {}
    for label in written:
        groups.setdefault(squeezed(label), []).append(label)
    for alike in groups.values():  # equal except for capitals and spaces
        if len(alike) > 1 and any(written[label] != label for label in alike):
            raise UnmaskError(
                f"The vocabulary of {folder} does not tell the labels '{alike[0]}' and '{alike[1]}' apart: rename one "
                "of them in the files."
            )

"""Text-to-text: which tasks a T5 answers in writing, what a folder remembers of one, and what it cannot write."""

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
    """What a folder remembers of a task: `Written.settings`."""

    family: str = ""
    name: str = ""
    labels: tuple[str, ...] = ()
    mean: float = 0.0


def writing(task: str) -> type[Written]:
    """The written form of a task. Raises UnmaskError for one that is not answered in words here."""
    written = task_named(task).written
    if written is None:
        known = ", ".join(name for name, kind in TASKS.items() if kind.written is not None)
        raise UnmaskError(f"A T5 answers --task {known} in words; {task} is for encoders.")
    return written


def written_task(task: str, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> Written:
    """A task of the toolkit as text. Raises UnmaskError for one that is not answered in words here."""
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
        raise UnmaskError(f"{place} is damaged: it is none that is answered in words, or has no mean score.")
    return kind(task.name, task.labels, task.mean)


def check_written(labels: Sequence[str], tokenizer: Tokenizer, folder: Path | str) -> None:
    """Raises UnmaskError where a vocabulary cannot write a label, or writes two alike: no answer could be right."""
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
    for alike in groups.values():  # but for capitals and spaces
        if len(alike) > 1 and any(written[label] != label for label in alike):
            raise UnmaskError(
                f"The vocabulary of {folder} does not tell the labels '{alike[0]}' and '{alike[1]}' apart: call one of "
                "them otherwise in the files."
            )

"""Tasks: objectives that can also answer: classification, tagging, question answering, choices, similarity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from unmask.config import typed
from unmask.errors import UnmaskError, kind_of, unknown
from unmask.models.model import Model
from unmask.tasks.balance import ClassLoss
from unmask.tasks.classification import Classification, MultiLabel, Regression
from unmask.tasks.embedding import Embedding, metric_for
from unmask.tasks.multiple_choice import MultipleChoice
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.similarity import loss_for
from unmask.tasks.tagging import Tagging, needs_segments, scheme_of
from unmask.tasks.task import Encoded, Task, answered, evaluating

__all__ = [
    "ClassLoss",
    "Classification",
    "Embedding",
    "Encoded",
    "MultiLabel",
    "MultipleChoice",
    "QuestionAnswering",
    "Regression",
    "Tagging",
    "Task",
    "answered",
    "doubting",
    "evaluating",
    "is_encoder",
    "loss_for",
    "metric_for",
    "needs_segments",
    "scheme_of",
    "task_of",
]

ANSWERING = ("classification", "multilabel", "regression", "tagging", "span", "choice")
"""Heads that answer for labelled rows."""


def task_of(model: Model, labels: Sequence[str] = (), settings: Mapping[str, Any] | None = None) -> Task:
    """The task that a model was fine-tuned for, from its head and what its folder remembers (`Loaded`).

    Raises UnmaskError where it has no head for labelled rows, and for settings that are not those of its task.
    """
    if is_encoder(settings):
        return Embedding(**_settings(Embedding, settings))
    name = next((name for name in ANSWERING if name in model.heads), None)
    if name is None:
        heads = ", ".join(model.heads) or "none"
        raise UnmaskError(f"The model has no head for labelled rows (heads: {heads}); fine-tune it first.")
    plain: dict[str, type[Task]] = {"regression": Regression, "span": QuestionAnswering, "choice": MultipleChoice}
    if name in plain:
        return plain[name](**_settings(plain[name], settings))
    outputs = int(list(model.heads[name].parameters())[-1].shape[0])
    labels = tuple(labels) or tuple(f"LABEL_{i}" for i in range(outputs))
    if name == "tagging":
        given = _settings(Tagging, settings)
        if given.setdefault("crf", "crf" in model.heads) != ("crf" in model.heads):
            has, said = ("a", "none") if "crf" in model.heads else ("no", "one")
            raise UnmaskError(f"The model has {has} CRF, but config.json (unmask_task) speaks of {said}.")
        return Tagging(labels, **given)
    kind: type[Classification] | type[MultiLabel] = Classification if name == "classification" else MultiLabel
    return kind(labels, **_settings(kind, settings))


def doubting(task: Task | None, threshold: float) -> QuestionAnswering:
    """The task, answering nothing above a threshold. Raises UnmaskError for one that answers no questions."""
    if not isinstance(task, QuestionAnswering):
        raise UnmaskError("Only models that answer questions about a context can say that there is no answer.")
    if math.isnan(threshold):
        raise UnmaskError("The threshold above which nothing is answered must be a number, not nan.")
    return task.doubting(threshold)


def is_encoder(settings: Any) -> bool:
    """Whether what a folder remembers (`Loaded.settings`) is that of a sentence encoder, which has no head."""
    return isinstance(settings, Mapping) and "pooling" in settings


def _settings(kind: type[Task], given: Any) -> dict[str, Any]:
    """Settings from a file, as the arguments of a task. Raises UnmaskError for what is not one, or of a wrong type."""
    place = f"Settings of {kind.__name__} (unmask_task in config.json)"
    if given is not None and not isinstance(given, Mapping):
        raise UnmaskError(f"{place} must be a JSON object, not {kind_of(given)}.")
    hints = get_type_hints(kind.__init__)
    known = {name: hint for name, hint in hints.items() if name not in ("labels", "return")}
    values = dict(given or {})
    for name in values.keys() - known.keys():
        raise unknown(f"setting of {kind.__name__} (unmask_task in config.json)", str(name), known)
    return {name: typed(value, known[name], f"{place}: {name}") for name, value in values.items()}

"""Distillation: a student learns a task from its labels and from the predictions of a larger teacher.

Shapes: B rows, T tokens of a row, M places, C outputs, N sequences, D width of the student, E of the teacher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import huggingface
from unmask.config import Config
from unmask.data.processor import Processor
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.nn import Classifier
from unmask.objectives.distillation import HIDDEN, SOFT, check
from unmask.objectives.objective import Objective
from unmask.tasks.batching import evaluating
from unmask.tasks.task import Encoded, Task
from unmask.types import Batch, Loss, Target

PROJECTION = "distill"
"""The head that projects the student's hidden states to the width of the teacher's during training."""


@dataclass(frozen=True, kw_only=True)
class Distillation(Config):
    """A teacher for fine-tuning; the defaults of temperature and weight are usual values, from which to search.

    teacher      folder of a larger model that was fine-tuned on the same task; None: labels alone
    temperature  that softens the predictions of both models; above 1, less likely classes count for more
    weight       of the teacher's predictions, from 0 to 1; the labels have the rest. 1 needs no true labels
    hidden       weight of the difference between the last hidden states
    hard         learn the teacher's most likely class instead of its probabilities (Touvron et al. 2021, section 4)
    """

    teacher: Path | None = None
    temperature: float = 2.0
    weight: float = 0.5
    hidden: float = 0.0
    hard: bool = False

    def check(self) -> None:
        """Raises UnmaskError for a field that is set but has no effect without a teacher."""
        usual = Distillation().places()
        given = [name for name, value in self.places().items() if value != usual[name]]
        if given and self.teacher is None:
            raise UnmaskError(f"--{given[0]} needs a teacher: name it with --teacher FOLDER, or leave it out.")


class Distilled(Objective):
    """A task with a teacher that reads the same rows (Hinton et al. 2015, "Distilling the Knowledge in a Neural
    Network", section 2). Up to three loss terms:

    <task>  the loss of the task, with the weight 1 - `weight`
    soft    with `weight`: T^2 KL(teacher || student), both softened by the temperature T, at the places of the task's
            targets. The distributions are over the classes of a text or word, yes and no for each of several labels,
            the tokens of a window for the begin and the end of an answer, or the choices of a row. For a score, the
            squared error. With `hard`, the cross-entropy with the teacher's most likely class
    hidden  with the weight `hidden`: mean squared error of the last hidden states of every token (Jiao et al. 2020,
            "TinyBERT", equation 8)

    task     the task, which gives the scores of the student; not a sentence embedding, and not with a CRF
    teacher  a model with the same head and labels (`load_teacher`). It runs in evaluation mode, without gradients; it
             moves to the student's device and is never saved
    view     a batch of the student -> the batch that the teacher reads (`Task.for_teacher`); None: the same

    A student with separate outputs for the labels and for the teacher, such as DeiT, learns each from its own term.

    Training rows go through `prepare`; if `hidden` is above 0, the model is trained inside `projecting`. Each term runs
    the student's head, so the dropout before it is drawn for each term. A term of weight 0 is left out, except that of
    the task, which has metrics.

    Raises UnmaskError for a task that cannot be distilled and for weights and temperatures out of range.
    """

    def __init__(
        self,
        task: Task,
        teacher: Model,
        *,
        view: Callable[[Batch], Batch] | None = None,
        temperature: float = 2.0,
        weight: float = 0.5,
        hidden: float = 0.0,
        hard: bool = False,
    ) -> None:
        task.check_teachable()
        check(temperature, weight, hidden)
        if hard and temperature != Distillation().temperature:
            raise UnmaskError("--temperature softens probabilities, which --hard does not use: leave one of them out.")
        self.task, self.teacher, self.temperature, self.hard = task, teacher, temperature, hard
        self.view = view
        self.name, self.heads = task.name, task.heads
        terms = {SOFT: float(weight), HIDDEN: float(hidden)}
        self._weights = {task.name: 1.0 - weight, **{name: w for name, w in terms.items() if w > 0}}

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights

    def prepare(self, encoded: Encoded) -> Encoded:
        """The same rows, whose batches get targets for the teacher's terms (`with_targets`).

        Raises UnmaskError for a row that is longer than the teacher's positions.
        """
        longest = int(encoded.lengths.max(initial=0))
        positions = self.teacher.positions
        if self.view is None and positions is not None and longest > positions:
            raise UnmaskError(
                f"The rows have up to {longest} tokens, but the teacher has {positions} positions: set --length "
                f"{positions} or less, or take another teacher."
            )
        return replace(encoded, targets=self.with_targets)

    def with_targets(self, batch: Batch) -> Batch:
        """The batch with targets for the teacher's terms: at the task's targets, and at every token."""
        targets: dict[str, Target] = {}
        if SOFT in self.weights and self.task.name in batch.targets:
            targets[SOFT] = batch.targets[self.task.name]
        if HIDDEN in self.weights:
            real = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
            places_M = real.flatten().nonzero().squeeze(-1)
            targets[HIDDEN] = Target(places_M, torch.zeros_like(places_M))
        return batch.with_targets(**targets)

    @contextmanager
    def projecting(self, model: Model, seed: int = 0) -> Iterator[None]:
        """Add a linear layer that projects the student's hidden states to the teacher's width; remove it at the end.

        It is the head "distill", initialised from `seed`. A folder has no name for it, so save the model afterwards.
        Nothing is added where the widths are equal, or hidden states have no weight.
        """
        student, teacher = _width(model), _width(self.teacher)
        if HIDDEN not in self.weights or student == teacher:
            yield
            return
        projection = Classifier(student, teacher)
        model.config.initialise(projection, seed)
        model.heads[PROJECTION] = projection.to(model.device)
        try:
            yield
        finally:
            del model.heads[PROJECTION]

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        """One Loss for each term. Raises UnmaskError for a batch of rows that did not go through `prepare`."""
        missing = [name for name in self.weights if name not in batch.targets]
        if missing:
            raise UnmaskError(f"The rows have no targets for {', '.join(missing)}: encode them with Distilled.prepare.")
        hidden_BTD = model(batch)
        name, places_M = self.task.name, self.task.places(batch)
        apart = model.answers_apart(name, hidden_BTD, places_M, batch)
        if apart is None:
            losses = {name: self.task.score(model, hidden_BTD, batch)}
        else:
            losses = {name: self.task.of_answers(apart[0], batch.targets[name].values)}
        if len(self.weights) == 1:
            return losses
        if self.teacher.device != hidden_BTD.device:
            self.teacher.to(hidden_BTD.device)
        seen = batch if self.view is None else self.view(batch)
        with evaluating(self.teacher):
            teacher_BTE = self.teacher(seen)
        if SOFT in self.weights:
            student_MC = model.answer(name, hidden_BTD, places_M, batch) if apart is None else apart[1]
            with evaluating(self.teacher):
                teacher_MC = self.teacher.answer(name, teacher_BTE, self.task.places(seen), seen).float()
            losses[SOFT] = Loss(self._soft(student_MC.float(), teacher_MC, batch), losses[name].count)
        if HIDDEN in self.weights:
            losses[HIDDEN] = self._hidden(model, hidden_BTD, teacher_BTE, batch)
        return losses

    def _soft(self, student_MC: Tensor, teacher_MC: Tensor, batch: Batch) -> Tensor:
        if not self.hard:
            return self.task.divergence(student_MC, teacher_MC, batch, self.temperature)
        log_p_MC = self.task.log_probabilities(student_MC, batch)
        return F.nll_loss(log_p_MC, teacher_MC.argmax(-1), reduction="sum")

    def _hidden(self, model: Model, hidden_BTD: Tensor, teacher_BTE: Tensor, batch: Batch) -> Loss:
        places_M = batch.targets[HIDDEN].places
        if hidden_BTD.shape[:2] != batch.tokens.shape:
            raise UnmaskError(
                "The student merges the patches of a picture, and has no state for each of them: leave "
                "--distillation.hidden out."
            )
        if teacher_BTE.shape[:2] != hidden_BTD.shape[:2]:
            raise UnmaskError(
                f"The student has {hidden_BTD.shape[1]} states for a row and the teacher {teacher_BTE.shape[1]}: leave "
                "--distillation.hidden out, or take a teacher with the same places."
            )
        if PROJECTION in model.heads:
            student_ME = model.answer(PROJECTION, hidden_BTD, places_M)
        elif hidden_BTD.shape[-1] == teacher_BTE.shape[-1]:
            student_ME = hidden_BTD.flatten(0, 1)[places_M]
        else:
            raise UnmaskError(
                f"The hidden states of the student have {hidden_BTD.shape[-1]} numbers and the teacher's "
                f"{teacher_BTE.shape[-1]}: train the student inside Distilled.projecting."
            )
        errors_ME = student_ME.float() - teacher_BTE.flatten(0, 1)[places_M].float()
        return Loss(errors_ME.square().mean(-1).sum(), len(places_M))


def load_teacher(
    folder: Path | str, task: Task, processor: Processor[Any]
) -> tuple[Model, Callable[[Batch], Batch] | None]:
    """The model of a folder, as the teacher of a student with this processor and this task, and how a batch of the
    student becomes one of the teacher (`Task.for_teacher`).

    Raises UnmaskError as `check_teacher` does, and for a folder that cannot be read.
    """
    teacher = huggingface.load(folder, huggingface.SINGLE_STACK)
    return teacher.model, check_teacher(teacher, processor, task, place=folder)


def check_teacher(
    teacher: Loaded, student: Loaded | Processor[Any], task: Task, *, place: object = "The teacher"
) -> Callable[[Batch], Batch] | None:
    """How a batch of the student becomes one of the teacher; None: it is the same.

    Raises UnmaskError for a teacher without the task's head, with a processor that cannot read the student's items, or
    with other labels than the task.

    student  the student's folder, or its processor
    place    name of the teacher in messages
    """
    task.check_teachable()
    heads = teacher.model.heads
    if task.name not in heads or "crf" in heads:
        raise UnmaskError(
            f"{place} cannot teach {task.name} (its heads: {', '.join(heads) or 'none'}): fine-tune it on this task "
            "first, without a CRF."
        )
    processor = task.processor_of(student, "The student") if isinstance(student, Loaded) else student
    view = task.for_teacher(processor, task.processor_of(teacher, place), place)
    if task.labels and teacher.labels != task.labels:
        raise UnmaskError(
            f"{place} has the labels {_shown(teacher.labels)}, but the task has {_shown(task.labels)}: fine-tune the "
            "teacher on rows with the same labels, in the same order (id2label in its config.json)."
        )
    return view


def _width(model: Model) -> int:
    """The width of the hidden states."""
    return model.config.width


def _shown(labels: Sequence[str], most: int = 10) -> str:
    return ", ".join(labels[:most]) + (f", … ({len(labels)})" if len(labels) > most else "") or "none"

"""Distillation in pre-training: words are guessed from the text, and as a larger model guesses them.

Shapes: B rows, T tokens of a row, M places, V vocabulary, D width, H attention heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.nn import record_attention
from unmask.objectives.objective import Joint, Objective, Term
from unmask.types import Batch, Document, Example, Loss, Target

SOFT, HIDDEN, ATTENTION = "soft", "hidden", "attention"
"""Loss terms, and the targets that say where they are computed."""


@dataclass(frozen=True, kw_only=True)
class TeacherConfig(Config):
    """A teacher for pre-training.

    teacher      folder of a larger model with the same tokenizer, which guesses words as this one does; None: none
    temperature  that softens the guesses of both models; above 1 it shows what the teacher thinks of wrong words
    weight       of the teacher's guesses, from 0 to 1; the words of the text have the rest
    states       weight of the difference between the hidden states, layer by layer; it asks for equal widths
    attention    weight of the difference between attention maps, layer by layer; it asks for as many heads
    inherit      begin with the teacher's embedding and heads, and with as many of its layers as there are here, evenly
                 spaced (Sanh et al. 2019, section 3); it asks for a model that differs in depth alone
    """

    teacher: Path | None = None
    temperature: float = 2.0
    weight: float = 0.5
    states: float = 0.0
    attention: float = 0.0
    inherit: bool = False


class WithTeacher(Objective):
    """What is learned from a text, and what a teacher makes of the same tokens (Hinton et al. 2015; DistilBERT, Sanh et
    al. 2019; MobileBERT, Sun et al. 2020, whose knowledge transfer is an auxiliary task here).

    L = (1 - weight) L_guess + weight L_soft + states L_hidden + attention L_attention
        + whatever else is learned, such as L_NSP

    soft       T^2 KL(teacher || student) of the guesses at every place, both softened by the temperature T
    hidden     mean squared error of hidden states, at every token, in the mean over the student's layers; layer m of M
               has its teacher in layer m N / M of N (MobileBERT's feature map transfer, equation 1, with TinyBERT's
               pairs of layers)
    attention  KL(teacher || student) of where every token looks, in the mean over heads and over the same pairs of
               layers (MobileBERT's attention transfer, equation 2)

    learned  masked words, next tokens or spans that were cut out, alone or joined with sentences
    teacher  answers in evaluation mode, without gradients, follows the student to its device, and is part of nothing
             that is saved

    Raises UnmaskError where the two do not fit, and for weights and temperatures out of range.
    """

    added: ClassVar[tuple[Term, ...]] = (
        Term(SOFT, "the teacher's guesses"),
        Term(HIDDEN, "the teacher's hidden states"),
        Term(ATTENTION, "the teacher's attention"),
    )

    def __init__(
        self,
        learned: Objective,
        teacher: Model,
        *,
        temperature: float = 2.0,
        weight: float = 0.5,
        states: float = 0.0,
        attention: float = 0.0,
    ) -> None:
        check(temperature, weight, states, attention)
        self.parts = learned.parts if isinstance(learned, Joint) else (learned,)
        guesses = [part for part in self.parts if part.teachable]
        if len(guesses) != 1:
            kinds = " and ".join(type(part).__name__ for part in self.parts)
            raise UnmaskError(
                f"{kinds} cannot be learned from a teacher, who helps to guess the tokens of rows that are read one by "
                "one: leave --teacher out."
            )
        self.guess = guesses[0]
        self.head = self.guess.teachable
        if self.head not in teacher.heads:
            raise UnmaskError(
                f"The teacher has no head for {self.head} (its heads: {', '.join(teacher.heads) or 'none'}): "
                "take a folder that was pre-trained so, with its output layer."
            )
        self.learned, self.teacher, self.temperature = learned, teacher, temperature
        self.name, self.heads, self.terms = learned.name, learned.heads, (*learned.terms, *self.added)
        own = dict(learned.weights)
        own[self.guess.name] *= 1.0 - weight
        terms = {SOFT: weight, HIDDEN: states, ATTENTION: attention}
        self._weights = own | {name: w for name, w in terms.items() if w > 0}

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights

    def __getstate__(self) -> dict[str, Any]:
        """Without the teacher: it is not sent to the processes that prepare rows, which do not ask it."""
        return {**self.__dict__, "teacher": None}

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        return self.learned.sample(documents, length, rng)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """As it is learned without a teacher, with the places of the teacher's terms: where a word is guessed, and
        every real token."""
        batch = self.learned.corrupt(batch, rng)
        more = {}
        if SOFT in self.weights and self.guess.name in batch.targets:
            more[SOFT] = batch.targets[self.guess.name]
        for term in {HIDDEN, ATTENTION} & self.weights.keys():
            real = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
            places = real.flatten().nonzero().squeeze(1)
            more[term] = Target(places, torch.zeros_like(places))
        return batch.with_targets(**more)

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        """One Loss for each term, after one pass through either model."""
        if not {SOFT, HIDDEN, ATTENTION} & self.weights.keys():
            return self.learned.loss(model, batch)
        batch = batch.asking(self.weights)
        if self.teacher.device != batch.tokens.device:
            self.teacher.to(batch.tokens.device)
        with torch.no_grad():
            teacher_BTD, theirs = self._read(self.teacher.eval(), batch)
            theirs = {term: _of_layers(found, _depth(model)) for term, found in theirs.items() if found}
        hidden_BTD, own = self._read(model, batch)
        losses = {part.name: part.score(model, hidden_BTD, batch) for part in self.parts if part is not self.guess}
        target = batch.targets[self.guess.name]
        student_MV = model.answer(self.head, hidden_BTD, target.places)
        losses[self.guess.name] = self.guess.of_answers(student_MV, target.values)
        if SOFT in self.weights:
            with torch.no_grad():
                teacher_MV = self.teacher.answer(self.head, teacher_BTD, target.places)
            losses[SOFT] = Loss(softened(student_MV, teacher_MV, self.temperature), len(target.places))
        for term, difference in ((HIDDEN, squared), (ATTENTION, divergence)):
            if term in self.weights:
                places_M = batch.targets[term].places
                pairs = zip(own[term], theirs[term], strict=True)
                errors = [difference(mine, other).flatten()[places_M].sum() for mine, other in pairs]
                losses[term] = Loss(torch.stack(errors).mean(), len(places_M))
        return losses

    def _read(self, model: Model, batch: Batch) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """The last hidden states and, where they count, hidden states and attention maps of all layers."""
        with ExitStack() as looking:
            states = looking.enter_context(layers(model)) if HIDDEN in self.weights else []
            maps = looking.enter_context(record_attention(model)) if ATTENTION in self.weights else []
            hidden_BTD = model(batch)
        return hidden_BTD, {HIDDEN: states, ATTENTION: [one.weights for one in maps]}  # empty where they do not count


def squared(mine_BTD: Tensor, theirs_BTD: Tensor) -> Tensor:
    """[B, T] mean squared difference of the hidden states of each token."""
    return (mine_BTD.float() - theirs_BTD.float()).square().mean(-1)


def divergence(mine_BHTT: Tensor, theirs_BHTT: Tensor) -> Tensor:
    """[B, T] KL(theirs || mine) of the attention of each token, in the mean over heads."""
    log_mine = mine_BHTT.float().clamp(min=torch.finfo(torch.float32).tiny).log()
    theirs = theirs_BHTT.float()
    return (torch.xlogy(theirs, theirs) - theirs * log_mine).sum(-1).mean(1)


def _depth(model: Model) -> int:
    """How many layers run one after the other."""
    return len(model.blocks) if model.transformer is None else len(model.transformer.order)


def _of_layers(layers: Sequence[Tensor], depth: int) -> list[Tensor]:
    """Of N layers of a teacher, that of each of M of a student: m N / M for layer m."""
    return [layers[max(1, m * len(layers) // depth) - 1] for m in range(1, depth + 1)]


def check(temperature: float, weight: float, states: float, attention: float = 0.0) -> None:
    """Raises UnmaskError for numbers that make no distillation."""
    if not 0 < temperature < math.inf:
        raise UnmaskError(f"The temperature of distillation must be above 0, not {temperature}.")
    if not 0 <= weight <= 1:
        raise UnmaskError(f"The weight of the teacher's answers must be between 0 and 1, not {weight}.")
    for what, size in (("hidden states", states), ("attention", attention)):
        if not 0 <= size < math.inf:
            raise UnmaskError(f"The weight of the teacher's {what} must be 0 or more, not {size}.")


def softened(student_MC: Tensor, teacher_MC: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher || student), summed over the places; the gradient of what is softened shrinks with T^2.

    Where one vocabulary was filled up with entries that stand for nothing, those that both have count.
    """
    C = min(student_MC.shape[-1], teacher_MC.shape[-1])
    student, teacher = ((x[:, :C].float() / temperature).log_softmax(-1) for x in (student_MC, teacher_MC))
    return temperature**2 * F.kl_div(student, teacher, reduction="sum", log_target=True)


@contextmanager
def layers(model: Model) -> Iterator[list[Tensor]]:
    """A list that fills with the output [B, T, D] of each layer, in the order in which they run, while `model` does."""
    found: list[Tensor] = []

    def keep(part: nn.Module, given: object, said: Tensor) -> None:
        found.append(said)

    handles = [block.register_forward_hook(keep) for block in model.blocks]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()

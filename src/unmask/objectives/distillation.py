"""Distillation in pre-training: learn the words of the text, and the predictions of a larger model for them.

Shapes: B rows, T tokens of a row, M places, V vocabulary, D width, H attention heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

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
"""Loss terms, and the targets at whose places they are computed."""

Transfer = Literal["auxiliary", "joint", "progressive"]
Difference = Callable[[Tensor, Tensor], Tensor]
"""Hidden states [B, T, D] of a student and of its teacher -> [B, T]."""


@dataclass(frozen=True, kw_only=True)
class TeacherConfig(Config):
    """A teacher for pre-training.

    teacher      folder of a larger model with the same tokenizer, trained by the same objective; None: no teacher
    temperature  that softens the predictions of both models; above 1, less likely words count for more
    weight       of the teacher's predictions, from 0 to 1; the words of the text have the rest
    states       weight of the difference between the hidden states, layer by layer; the widths must be equal
    attention    weight of the difference between attention maps, layer by layer; the numbers of heads must be equal
    normalised_states  compare normalised hidden states, and their means and variances apart from them (`normalised`)
    transfer     when the layers learn from those of the teacher: all the time, beside the predictions ("auxiliary");
                 before the predictions, all at once ("joint") or one after the other ("progressive"). The last two
                 start from the teacher's embedding and heads (MobileBERT, Sun et al. 2020)
    transfer_share  share of the steps in which the layers learn, for a joint or progressive transfer
    inherit      start from the teacher's embedding, heads and evenly spaced layers (Sanh et al. 2019, section 3); the
                 models may differ only in depth
    """

    teacher: Path | None = None
    temperature: float = 2.0
    weight: float = 0.5
    states: float = 0.0
    attention: float = 0.0
    normalised_states: bool = False
    transfer: Transfer = "auxiliary"
    transfer_share: float = 0.3
    inherit: bool = False


@dataclass(frozen=True)
class Phases:
    """When the layers of a student learn from those of its teacher (`TeacherConfig`): Sun et al. 2020, "Training
    strategies"."""

    transfer: Transfer = "auxiliary"
    share: float = 0.3

    def only_layers(self, step: int, total: int) -> bool:
        """Whether, at a step, layers learn from layers and nothing else is learned."""
        return self.apart and step < self._end(total)

    def layer(self, step: int, total: int, depth: int) -> int | None:
        """The only layer of `depth` that learns at a step, from 0; None: all of them learn."""
        if self.transfer != "progressive" or not self.only_layers(step, total):
            return None
        return step * depth // self._end(total)

    @property
    def apart(self) -> bool:
        """Whether the layers learn before the predictions, not beside them."""
        return self.transfer != "auxiliary"

    def _end(self, total: int) -> int:
        return max(1, round(self.share * total))


class WithTeacher(Objective):
    """An objective with a teacher that reads the same tokens (Hinton et al. 2015; DistilBERT, Sanh et al. 2019;
    MobileBERT, Sun et al. 2020).

    L = (1 - weight) L_guess + weight L_soft + states L_hidden + attention L_attention
        + the other terms of the objective, such as L_NSP

    soft       T^2 KL(teacher || student) of the predictions at every target, both softened by the temperature T
    hidden     mean squared error of the hidden states of every token, or another difference, averaged over the
               student's layers; layer m of M learns from the teacher's layer m N / M of N (MobileBERT's feature map
               transfer, equation 1, with TinyBERT's pairs of layers)
    attention  KL(teacher || student) of the attention of every token, averaged over heads and over the same pairs of
               layers (MobileBERT's attention transfer, equation 2)

    learned  the objective: masked tokens, next tokens or corrupted spans, alone or joined with sentence pairs
    teacher  runs in evaluation mode, without gradients; it moves to the student's device and is never saved
    phases   when the layers learn; in a phase of their own, all other terms have the weight 0, and after it theirs is 0

    Raises UnmaskError where the two do not go together, and for weights and temperatures out of range.
    """

    added: ClassVar[tuple[Term, ...]] = (
        Term(SOFT, "the teacher's predictions"),
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
        difference: Difference | None = None,
        phases: Phases | None = None,
    ) -> None:
        check(temperature, weight, states, attention)
        self.parts = learned.parts if isinstance(learned, Joint) else (learned,)
        guesses = [part for part in self.parts if part.teachable]
        if len(guesses) != 1:
            kinds = " and ".join(type(part).__name__ for part in self.parts)
            raise UnmaskError(
                f"{kinds} cannot be learned from a teacher, which needs one objective that predicts tokens in rows "
                "without a memory: leave --teacher out."
            )
        self.guess = guesses[0]
        self.head = self.guess.teachable
        if self.head not in teacher.heads:
            raise UnmaskError(
                f"The teacher has no head for {self.head} (its heads: {', '.join(teacher.heads) or 'none'}): "
                "take a folder that was pre-trained by this objective, with its output layer."
            )
        self.learned, self.teacher, self.temperature = learned, teacher, temperature
        self.name, self.heads, self.terms = learned.name, learned.heads, (*learned.terms, *self.added)
        own = dict(learned.weights)
        own[self.guess.name] *= 1.0 - weight
        terms = {SOFT: weight, HIDDEN: states, ATTENTION: attention}
        self._weights = own | {name: w for name, w in terms.items() if w > 0}
        self.difference, self.phases, self.moment = difference or squared, phases or Phases(), (1, 1)

    @property
    def weights(self) -> Mapping[str, float]:
        """Loss term -> weight in the total at this step; 0 for the terms of the other phase."""
        if not self.phases.apart:
            return self._weights
        of_layers = self.phases.only_layers(*self.moment)
        return {term: w * ((term in (HIDDEN, ATTENTION)) == of_layers) for term, w in self._weights.items()}

    def __getstate__(self) -> dict[str, Any]:
        """The state without the teacher, which the processes that prepare rows do not need."""
        return {**self.__dict__, "teacher": None}

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        return self.learned.sample(documents, length, rng)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """As without a teacher, with targets for the teacher's terms: where a token is predicted, and at every real
        token."""
        batch = self.learned.corrupt(batch, rng)
        more = {}
        if SOFT in self.weights and self.guess.name in batch.targets:
            more[SOFT] = batch.targets[self.guess.name]
        for term in {HIDDEN, ATTENTION} & self.weights.keys():
            real = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
            places = real.flatten().nonzero().squeeze(1)
            more[term] = Target(places, torch.zeros_like(places))
        return batch.with_targets(**more)

    def on_step(self, step: int, total: int) -> None:
        self.moment = (step, total)
        self.learned.on_step(step, total)

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        """One Loss for each term, after one pass through each model; in training without those of the other phase."""
        if not {SOFT, HIDDEN, ATTENTION} & self.weights.keys():
            return self.learned.loss(model, batch)
        batch = batch.asking(self.weights)
        terms = {term for term, w in self.weights.items() if w or not (self.phases.apart and model.training)}
        if self.teacher.device != batch.tokens.device:
            self.teacher.to(batch.tokens.device)
        with torch.no_grad():
            teacher_BTD, theirs = self._read(self.teacher.eval(), batch, terms)
            theirs = {term: _of_layers(found, _depth(model)) for term, found in theirs.items() if found}
        hidden_BTD, own = self._read(model, batch, terms)
        losses = {} if self.guess.name not in terms else self._predictions(model, hidden_BTD, teacher_BTD, batch)
        layer = self.phases.layer(*self.moment, _depth(model)) if model.training else None
        chosen = slice(None) if layer is None else slice(layer, layer + 1)
        for term, difference in ((HIDDEN, self.difference), (ATTENTION, divergence)):
            if term in terms:
                places_M = batch.targets[term].places
                pairs = zip(own[term][chosen], theirs[term][chosen], strict=True)
                errors = [difference(mine, other).flatten()[places_M].sum() for mine, other in pairs]
                losses[term] = Loss(torch.stack(errors).mean(), len(places_M))
        return losses

    def _predictions(self, model: Model, hidden_BTD: Tensor, teacher_BTD: Tensor, batch: Batch) -> dict[str, Loss]:
        """The terms of the objective itself, and that of the teacher's predictions if it has weight."""
        losses = {part.name: part.score(model, hidden_BTD, batch) for part in self.parts if part is not self.guess}
        target = batch.targets[self.guess.name]
        student_MV = model.answer(self.head, hidden_BTD, target.places)
        losses[self.guess.name] = self.guess.of_answers(student_MV, target.values)
        if SOFT in self.weights:
            with torch.no_grad():
                teacher_MV = self.teacher.answer(self.head, teacher_BTD, target.places)
            losses[SOFT] = Loss(softened(student_MV, teacher_MV, self.temperature), len(target.places))
        return losses

    def _read(self, model: Model, batch: Batch, terms: Collection[str]) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """The last hidden states, and the states and attention maps of all layers where `terms` has them."""
        with ExitStack() as looking:
            states = looking.enter_context(layers(model)) if HIDDEN in terms else []
            maps = looking.enter_context(record_attention(model)) if ATTENTION in terms else []
            hidden_BTD = model(batch)
        return hidden_BTD, {HIDDEN: states, ATTENTION: [one.weights for one in maps]}  # empty without weight


def squared(mine_BTD: Tensor, theirs_BTD: Tensor) -> Tensor:
    """[B, T] mean squared difference of the hidden states of each token."""
    return (mine_BTD.float() - theirs_BTD.float()).square().mean(-1)


def normalised(mine_BTD: Tensor, theirs_BTD: Tensor) -> Tensor:
    """[B, T] mean squared difference of the normalised hidden states of each token, and the differences of their means
    and variances, which would be lost. The factors are those of the authors' code (google-research, mobilebert), where
    the first term has the weight 100."""
    D = mine_BTD.shape[-1]
    mine_BTD, theirs_BTD = mine_BTD.float(), theirs_BTD.float()
    apart = squared(F.layer_norm(mine_BTD, (D,)), F.layer_norm(theirs_BTD, (D,)))
    means = (mine_BTD.mean(-1) - theirs_BTD.mean(-1)).square()
    variances = (mine_BTD.var(-1, correction=0) - theirs_BTD.var(-1, correction=0)).abs()
    return apart + 50 * means + 0.05 * variances


def divergence(mine_BHTT: Tensor, theirs_BHTT: Tensor) -> Tensor:
    """[B, T] KL(theirs || mine) of the attention of each token, averaged over heads."""
    log_mine = mine_BHTT.float().clamp(min=torch.finfo(torch.float32).tiny).log()
    theirs = theirs_BHTT.float()
    return (torch.xlogy(theirs, theirs) - theirs * log_mine).sum(-1).mean(1)


def _depth(model: Model) -> int:
    """How many layers run one after the other."""
    return len(model.blocks) if model.transformer is None else len(model.transformer.order)


def _of_layers(layers: Sequence[Tensor], depth: int) -> list[Tensor]:
    """The teacher's layer for each of the student's `depth` layers: m N / M of N for layer m of M."""
    return [layers[max(1, m * len(layers) // depth) - 1] for m in range(1, depth + 1)]


def check(temperature: float, weight: float, states: float, attention: float = 0.0) -> None:
    """Raises UnmaskError for a temperature or a weight out of range."""
    if not 0 < temperature < math.inf:
        raise UnmaskError(f"The temperature of distillation must be above 0, not {temperature}.")
    if not 0 <= weight <= 1:
        raise UnmaskError(f"The weight of the teacher's predictions must be between 0 and 1, not {weight}.")
    for what, size in (("hidden states", states), ("attention", attention)):
        if not 0 <= size < math.inf:
            raise UnmaskError(f"The weight of the teacher's {what} must be 0 or more, not {size}.")


def softened(student_MC: Tensor, teacher_MC: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher || student), summed over the places; T^2 makes up for the gradients, which shrink by it.

    Where one vocabulary has unused entries at its end, only the entries that both vocabularies have count.
    """
    C = min(student_MC.shape[-1], teacher_MC.shape[-1])
    student, teacher = ((x[:, :C].float() / temperature).log_softmax(-1) for x in (student_MC, teacher_MC))
    return temperature**2 * F.kl_div(student, teacher, reduction="sum", log_target=True)


@contextmanager
def layers(model: Model) -> Iterator[list[Tensor]]:
    """A list that fills with the output [B, T, D] of each layer, in the order in which they run, while `model` does."""
    found: list[Tensor] = []

    def keep(part: nn.Module, given: object, output: Tensor) -> None:
        found.append(output)

    handles = [block.register_forward_hook(keep) for block in model.blocks]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()

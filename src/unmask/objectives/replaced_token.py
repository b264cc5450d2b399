"""Replaced-token detection: a small generator fills in masked tokens, the model detects the replaced ones (ELECTRA).

Shapes: B rows, T tokens of a row, M targets, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.cross_entropy import of_logits
from unmask.objectives.language_modeling import MaskedLM, MaskedLMConfig
from unmask.objectives.objective import Joint, Objective, Term
from unmask.types import Batch, Document, Example, Head, Loss, Target

CHOSEN = (0.85, 0.0)
"""Shares of the chosen tokens that the generator sees as [MASK], and as a random token. The paper masks all of them;
the code of its models leaves 15 % as they are (google-research/electra, pretrain/pretrain_helpers.py, `mask`)."""

DRAWS = "draws"
"""A target without a loss, which holds the random number that draws the token at each masked place."""


class ReplacedToken(Objective):
    """L = L_MLM(generator) + weight * L_RTD(discriminator) (Clark et al. 2020, section 2).

    The generator predicts masked tokens. One token is drawn from its distribution at each masked place. The
    discriminator decides for every token of the text, special tokens included, whether it was replaced; a drawn token
    that equals the original counts as original. No gradient goes through the draw: the generator learns from its own
    loss alone.

    All random numbers come with the batch: one between 0 and 1 for each masked place, which selects a token from the
    generator's cumulative distribution. So a batch is the same in a resumed run and in every evaluation.

    masked  chooses the tokens to mask and samples the text
    weight  of the discriminator's loss, lambda
    """

    name = "rtd"
    terms = (*MaskedLM.terms, Term(name, "replaced tokens"))
    head_labels = ((name, "replaced-token (rtd)"),)

    def __init__(self, masked: MaskedLM, *, weight: float = 50.0) -> None:
        if not weight > 0:
            raise UnmaskError(f"The weight of replaced tokens must be above 0, not {weight}.")
        self.masked, self.weight = masked, weight
        self.heads = {self.name: Head("token", 1, pretraining=True), **masked.heads}

    @property
    def weights(self) -> Mapping[str, float]:
        return {**self.masked.weights, self.name: self.weight}

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        return self.masked.sample(documents, length, rng)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Mask tokens; the target of every real token is the original token, from which a replaced one differs."""
        real = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
        places = real.flatten().nonzero().squeeze(1)
        hidden = self.masked.corrupt(batch, rng)
        chosen = hidden.targets[self.masked.name].places
        draws = torch.from_numpy(rng.random(len(chosen), dtype=np.float32))
        whole = Target(places, batch.tokens.flatten()[places])
        return hidden.with_targets(**{self.name: whole, DRAWS: Target(chosen, draws)})

    def read(self, model: Model, batch: Batch) -> tuple[Tensor, Batch, dict[str, Loss]]:
        """The discriminator's hidden states of the text with the generator's tokens, that text, and the generator's
        loss. Raises UnmaskError for a model without a generator."""
        generator = model.auxiliary.get("generator")
        if generator is None:
            raise UnmaskError("Only an ELECTRA with its generator learns replaced tokens; this model has no generator.")
        hidden, name = batch.targets[self.masked.name], self.masked.name
        logits_MV = generator.answer(name, generator(batch), hidden.places).float()
        filled = _filled(batch, hidden.places, draw(logits_MV, batch.targets[DRAWS].values))
        return model(filled), filled, {name: of_logits(logits_MV, hidden.values)}

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Binary cross-entropy of "replaced" at every token. `replaced` counts the replaced tokens, `correct` the
        correct decisions: a model that always decides "original" has an accuracy of 1 - replaced."""
        target = batch.targets[self.name]
        logits_M = model.answer(self.name, hidden_BTD, target.places).squeeze(-1).float()
        replaced_M = batch.tokens.flatten()[target.places] != target.values
        total = F.binary_cross_entropy_with_logits(logits_M, replaced_M.float(), reduction="sum")
        correct = ((logits_M > 0) == replaced_M).sum()
        return Loss(total, target.values.numel(), {"correct": correct, "replaced": replaced_M.sum()})

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        lines = self.masked.summary(found, baseline, before)
        if "rtd/correct" not in found:
            return lines
        correct, replaced = found["rtd/correct"], found["rtd/replaced"]
        return [
            *lines,
            f"Replaced tokens: accuracy {correct:.1%} on all tokens, of which {replaced:.1%} were replaced.",
        ]


@dataclass(frozen=True, kw_only=True)
class ReplacedTokenConfig(ObjectiveConfig):
    """Detect the tokens that a small generator has replaced (RTD), as ELECTRA does.

    masked  the objective of the generator, which chooses the masked tokens
    """

    masked: MaskedLMConfig = field(default_factory=MaskedLMConfig)

    kind = "replaced"
    learned = "replaced tokens"
    example = "electra-tiny"
    objective = ReplacedToken
    requires = frozenset({"generator"})
    own_heads = frozenset({ReplacedToken.name})
    choices = (("replaced", "true"), ("replaced", "false"))
    optional = True

    @classmethod
    def chosen(cls, current: ObjectiveConfig, option: str, value: str) -> ObjectiveConfig | None:
        """As `ObjectiveConfig.chosen`; it is added to masked tokens, and leaves them when turned off."""
        own, masked = current.part(cls), current.part(MaskedLMConfig)
        if value == "false":
            return current if own is None else own.masked
        return current if own is not None else None if masked is None else cls(masked=masked)

    @classmethod
    def continued(cls, current: ObjectiveConfig, heads: Collection[str]) -> ObjectiveConfig:
        """A folder of an ELECTRA continues with replaced tokens where the run has masked tokens."""
        return cls(masked=current) if cls.own_heads <= set(heads) and isinstance(current, MaskedLMConfig) else current

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        question = self.masked.sentences.question(tokenizer)
        replaced = ReplacedToken(self.masked.hidden(tokenizer, becomes=CHOSEN))
        return replaced if question is None else Joint(question, replaced)


@torch.no_grad()
def draw(logits_MV: Tensor, uniform_M: Tensor) -> Tensor:
    """[M] a token of each distribution: the first where the sum of the probabilities exceeds the given number."""
    sums_MV = logits_MV.softmax(-1).cumsum(-1)
    drawn_M1 = torch.searchsorted(sums_MV, uniform_M[:, None] * sums_MV[:, -1:], right=True)
    return drawn_M1.squeeze(-1).clamp(max=logits_MV.shape[-1] - 1)


def _filled(batch: Batch, places_M: Tensor, tokens_M: Tensor) -> Batch:
    """The batch with these tokens at these places."""
    tokens = batch.tokens.flatten().clone()
    tokens[places_M] = tokens_M
    return replace(batch, tokens=tokens.view_as(batch.tokens))

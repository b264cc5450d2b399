"""ELECTRA: a discriminator that finds the tokens that a small generator has replaced (Clark et al., 2020)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from unmask.models.bert import Bert
from unmask.models.heads import head_of
from unmask.models.model import Model
from unmask.models.stack_model import StackModel
from unmask.nn import (
    ACTIVATIONS,
    Classifier,
    Dropout,
    Embedding,
    LanguageModelHead,
    Pooler,
    Projection,
    Segment,
    Stack,
    Token,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class Electra(Bert):
    """The numbers that make an ELECTRA; the defaults are ELECTRA-small.

    factor          E, width of the token, segment and position vectors; where it is not `dim`, a linear map follows
    generator       size of the generator, as a share of the discriminator's width, heads and feed-forward
    choice_dropout  before the layer that scores a choice
    choice_input_dropout  before the dense layer that precedes it
    """

    dim: int = 256
    heads: int = 4
    hidden: int = 1_024
    factor: int = 128
    generator: float = 0.25
    choice_dropout: float = 0.1
    choice_input_dropout: float = 0.0

    offers = frozenset({"bidirectional", "generator"})
    pools = False

    def embedding(self) -> Embedding:
        """Token + segment + position, normalised, then projected to the width of the stack (section 3.3)."""
        return Embedding(
            Token(self.vocabulary, self.factor),
            segment=Segment(self.segments, self.factor),
            position=self.position(self.factor),
            norm=nn.LayerNorm(self.factor, self.eps),
            dropout=self.dropout,
            project=nn.Linear(self.factor, self.dim) if self.factor != self.dim else None,
        )

    def pooler(self, heads: Collection[Head]) -> Pooler | None:
        """None: heads for sequences have their own dense layer instead."""
        return None

    def masked_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return LanguageModelHead(token, self.dim, activation=F.gelu, eps=self.eps)

    def token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """In pre-training, the logit that a token was replaced (section 2)."""
        if head.pretraining:
            return Projection(self.dim, self.dim, head.outputs, ACTIVATIONS[self.activation])
        return super().token_head(head, token)

    def sequence_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        rate = self.classifier_dropout
        return DenseClassifier(self.dim, head.outputs, before=rate, after=rate)

    def choice_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return DenseClassifier(self.dim, head.outputs, before=self.choice_input_dropout, after=self.choice_dropout)

    @property
    def smaller(self) -> Electra:
        """The generator, as deep as the discriminator and `generator` times as wide (section 3.2)."""
        dim, hidden = round(self.dim * self.generator), round(self.hidden * self.generator)
        return self.replace(dim=dim, hidden=hidden, heads=max(1, round(self.heads * self.generator)))

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """A freshly initialised model. With a head for masked tokens and a pre-training head for every token, as by
        default, it is the discriminator with its generator, which has the head for masked tokens. With other heads it
        is a single network.

        pooler  has no effect: an ELECTRA has none
        """
        if heads is None:
            heads = {"rtd": Head("token", 1, pretraining=True), "mlm": Head("masked_token")}
        masked = {name: head for name, head in heads.items() if head.kind == "masked_token"}
        if not masked or not any(head.kind == "token" and head.pretraining for head in heads.values()):
            return super().build(heads, seed=seed)
        embedding = self.embedding()
        token = embedding.token
        assert isinstance(token, Token)
        smaller = self.smaller
        generator = StackModel(
            smaller,
            _sharing(smaller.embedding(), embedding),
            smaller.stack(),
            heads={name: head_of(smaller, head, token) for name, head in masked.items()},
        )
        own = {name: head_of(self, head, token) for name, head in heads.items() if name not in masked}
        model = Discriminator(self, embedding, self.stack(), own, generator)
        if seed is not None:
            self.initialise(model, seed)
        return model


def _sharing(embedding: Embedding, other: Embedding) -> Embedding:
    """Make an embedding share the vectors and the norm of another, but not the projection to the stack (section 3.2,
    "Weight Sharing")."""
    embedding.token, embedding.segment = other.token, other.segment
    embedding.position, embedding.norm = other.position, other.norm
    return embedding


class Discriminator(StackModel):
    """The discriminator, which is kept after pre-training, and `generator`, the auxiliary model in its training."""

    def __init__(
        self,
        config: Electra,
        embedding: Embedding,
        stack: Stack,
        heads: Mapping[str, nn.Module],
        generator: StackModel,
    ) -> None:
        super().__init__(config, embedding, stack, heads=heads)
        self.generator = generator

    @property
    def auxiliary(self) -> Mapping[str, StackModel]:
        return {"generator": self.generator}


class DenseClassifier(Classifier):
    """output(dropout(gelu(dense(dropout(x))))) for the first token of a sequence.

    before, after  rates of the dropout before the dense layer and after it
    """

    def __init__(self, dim: int, outputs: int, *, before: float, after: float):
        super().__init__(dim, outputs, after)
        self.before, self.dense = Dropout(before), nn.Linear(dim, dim)

    def forward(self, x_MD: Tensor) -> Tensor:
        """[M, D] -> logits [M, outputs]."""
        return super().forward(F.gelu(self.dense(self.before(x_MD))))


SIZES: dict[str, dict[str, int | float]] = {
    "tiny": {"layers": 2, "dim": 128, "heads": 2, "hidden": 512, "factor": 64, "generator": 0.5},
    "small": {"layers": 12, "dim": 256, "heads": 4, "hidden": 1_024, "factor": 128, "generator": 0.25},
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3_072, "factor": 768, "generator": 1 / 3},
    "large": {"layers": 24, "dim": 1_024, "heads": 16, "hidden": 4_096, "factor": 1_024, "generator": 0.25},
}
"""Published sizes (Clark et al. 2020, appendix A, table 6), and one of BERT's for a CPU."""

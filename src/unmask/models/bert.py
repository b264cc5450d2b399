"""BERT: a post-norm Transformer encoder over token, segment and position embeddings (Devlin et al., 2018)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import nn

from unmask.models.heads import head_of, summarises
from unmask.models.model import Model, ModelConfig
from unmask.models.stack_model import StackModel
from unmask.nn import (
    ACTIVATIONS,
    ActivationName,
    Attention,
    Block,
    Classifier,
    Embedding,
    FeedForward,
    LanguageModelHead,
    Learned,
    Pooler,
    Residual,
    Segment,
    Sinusoidal,
    Span,
    Stack,
    Token,
    truncated_normal,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class Bert(ModelConfig):
    """The numbers that make a BERT; the defaults are BERT-base, uncased.

    vocabulary  V, entries of the tokenizer        dim     D, width of the hidden states
    layers      number of blocks                   heads   H, attention heads of each
    hidden      width inside the feed-forward      length  longest sequence, in tokens
    segments    number of segment embeddings       std     of the initialisation
    positions   initial position vectors: random, as published, or sinusoids (Vaswani et al. 2017, section 3.5), with
                which attention to neighbours is learned several times sooner (docs/log.md)
    dropout     after embeddings and sub-layers    attention_dropout  on attention weights
    head_dropout  before a classifier; None is `dropout`
    padding        id of the padding token
    """

    vocabulary: int = 30_522
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3_072
    length: int = 512
    segments: int = 2
    activation: ActivationName = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    head_dropout: float | None = None
    eps: float = 1e-12
    std: float = 0.02
    positions: Literal["normal", "sinusoids"] = "normal"
    padding: int = 0

    pools = True
    sentence_encoder = True

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"bidirectional"})

    @property
    def width(self) -> int:
        return self.dim

    def embedding(self) -> Embedding:
        """Token + segment + position, normalised (section 3, "Input/Output Representations")."""
        return Embedding(
            Token(self.vocabulary, self.dim),
            segment=Segment(self.segments, self.dim),
            position=self.position(self.dim),
            norm=nn.LayerNorm(self.dim, self.eps),
            dropout=self.dropout,
        )

    def position(self, dim: int) -> Learned:
        """Learned position vectors of this width."""
        return Learned(self.length, dim)

    def block(self) -> Block:
        """Self-attention and feed-forward, each followed by a residual sum and a norm (Vaswani et al. 2017, 3.1)."""
        norm = partial(nn.LayerNorm, self.dim, self.eps)
        attention = Attention(self.dim, self.heads, dropout=self.attention_dropout)
        feedforward = FeedForward(self.dim, self.hidden, ACTIVATIONS[self.activation])
        return Block(
            Residual(attention, after=norm(), dropout=self.dropout),
            Residual(feedforward, after=norm(), dropout=self.dropout),
        )

    def stack(self) -> Stack:
        """The blocks, one after the other."""
        return Stack([self.block() for _ in range(self.layers)])

    def pooler(self, heads: Collection[Head]) -> Pooler | None:
        """The layer through which heads for sequences read the first token."""
        return Pooler(self.dim)

    @property
    def classifier_dropout(self) -> float:
        return self.dropout if self.head_dropout is None else self.head_dropout

    def masked_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Logits over the vocabulary, tied to the token vectors (section 3.1, Task #1)."""
        return LanguageModelHead(token, self.dim, activation=ACTIVATIONS[self.activation], eps=self.eps)

    def token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(self.dim, head.outputs, dropout=0.0 if head.pretraining else self.classifier_dropout)

    sequence_head = choice_head = token_head

    def span_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Span(self.dim)

    def vectors_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(3 * self.dim, head.outputs)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; the default heads are those of masked tokens and next-sentence prediction."""
        if heads is None:
            heads = {"mlm": Head("masked_token"), "nsp": Head("sequence", 2, pretraining=True)}
        embedding = self.embedding()
        token = embedding.token
        assert isinstance(token, Token)
        model = StackModel(
            self,
            embedding,
            self.stack(),
            pooler=self.pooler(heads.values()) if pooler or summarises(heads) else None,
            heads={name: head_of(self, head, token) for name, head in heads.items()},
        )
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set the initial weights of a model, or of a part of one: see `truncated_normal`."""
        truncated_normal(module, self.std, torch.Generator().manual_seed(seed))
        if self.positions == "sinusoids":
            for part in module.modules():
                if isinstance(part, Learned):
                    shape = part.table.weight.shape
                    waves_TD = Sinusoidal(shape[1]).embed(torch.zeros(1, *shape))[0]
                    with torch.no_grad():
                        part.table.weight.copy_(waves_TD * self.std / waves_TD.std())


@dataclass(frozen=True, kw_only=True)
class Roberta(Bert):
    """RoBERTa (Liu et al. 2019): BERT with byte-level BPE, one segment, and positions that begin at padding + 1.

    As in `transformers`, the head for masked tokens uses GELU whatever `activation` is, and the head for choices uses
    `dropout` whatever `head_dropout` is.
    """

    vocabulary: int = 50_265
    segments: int = 1
    eps: float = 1e-5
    padding: int = 1

    token_kind, about = "bpe", "RoBERTa: BERT with byte-level BPE, trained without sentence pairs (Liu et al., 2019)."

    def position(self, dim: int) -> Learned:
        """A table of length + 2 rows whatever the padding is, as in the published models."""
        return Learned(self.length + 1 - self.padding, dim, offset=self.padding + 1)

    def pooler(self, heads: Collection[Head]) -> Pooler:
        """For classes or a score, the pooler is part of the published classifier, which has dropout before it too."""
        classifies = any(head.kind == "sequence" and not head.pretraining for head in heads)
        return Pooler(self.dim, self.classifier_dropout if classifies else 0.0)

    def masked_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return LanguageModelHead(token, self.dim, eps=self.eps)

    def choice_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(self.dim, head.outputs, dropout=self.dropout)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "dim": 128, "heads": 2, "hidden": 512},
    "mini": {"layers": 4, "dim": 256, "heads": 4, "hidden": 1_024},
    "small": {"layers": 4, "dim": 512, "heads": 8, "hidden": 2_048},
    "medium": {"layers": 8, "dim": 512, "heads": 8, "hidden": 2_048},
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3_072},
    "large": {"layers": 24, "dim": 1_024, "heads": 16, "hidden": 4_096},
}
"""Published sizes: Devlin et al. 2018 (base, large) and Turc et al. 2019 (the others)."""

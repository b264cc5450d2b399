"""BERT: a post-norm Transformer encoder over token, segment and position embeddings (Devlin et al., 2018)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import nn

from unmask.models.model import POOLED, Model, ModelConfig, truncated_normal
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
    LinearChainCRF,
    Pooler,
    Residual,
    Segment,
    Sinusoidal,
    Span,
    Stack,
    Token,
)


@dataclass(frozen=True, kw_only=True)
class Bert(ModelConfig):
    """The numbers that make a BERT; the defaults are BERT-base, uncased.

    vocabulary  V, entries of the tokenizer        dim     D, width of the hidden states
    layers      number of blocks                   heads   H, attention heads of each
    hidden      width inside the feed-forward      length  longest sequence, in tokens
    segments    number of segment embeddings       std     of the initialisation
    positions   what the position table starts from: random vectors, as published, or sinusoids (Vaswani et al. 2017,
                section 3.5), from which attention finds neighbours several times sooner (docs/log.md)
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

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"bidirectional"})

    @property
    def pools(self) -> bool:
        return True

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
        """A vector of this width for each place."""
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

    def pooler(self, heads: Collection[str]) -> Pooler | None:
        """What stands between the first token of a sequence and those of these heads that answer for it."""
        return Pooler(self.dim)

    def head(self, name: str, outputs: int, token: Token) -> nn.Module:
        """The layer that answers for `name`: over the vocabulary for "mlm", else over `outputs` classes."""
        if name == "mlm":
            return LanguageModelHead(token, self.dim, activation=ACTIVATIONS[self.activation], eps=self.eps)
        if name == "span":
            return Span(self.dim)
        if name == "crf":
            return LinearChainCRF(outputs)  # reads what "tagging" says, not hidden states
        if name == "pairs":
            return Classifier(3 * self.dim, outputs)  # of (u, v, |u - v|)
        pretraining = name in ("nsp", "sop")
        dropout = self.dropout if self.head_dropout is None else self.head_dropout
        return Classifier(self.dim, outputs, dropout=0.0 if pretraining else dropout)

    def build(self, heads: Mapping[str, int] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """A freshly initialised model.

        heads   name -> outputs; default: masked words and next sentence, as in pre-training
        seed    of the initialisation; None leaves that to the caller, who fills the parameters anyway
        pooler  keep the pooler though no head needs it
        """
        heads = {"mlm": 0, "nsp": 2} if heads is None else heads
        embedding = self.embedding()
        token = embedding.token
        assert isinstance(token, Token)
        model = Model(
            self,
            embedding,
            self.stack(),
            pooler=self.pooler(heads) if pooler or POOLED & set(heads) else None,
            heads={name: self.head(name, outputs, token) for name, outputs in heads.items()},
        )
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Give a model, or a part of one, the weights it starts from."""
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

    As in `transformers`, the head for hidden words has GELU whatever `activation` is, and the head for choices drops at
    `dropout` whatever `head_dropout` is.
    """

    vocabulary: int = 50_265
    segments: int = 1
    eps: float = 1e-5
    padding: int = 1

    token_kind = "bpe"

    def position(self, dim: int) -> Learned:
        """The table has length + 2 rows whatever the padding is, as published ones have."""
        return Learned(self.length + 1 - self.padding, dim, offset=self.padding + 1)

    def pooler(self, heads: Collection[str]) -> Pooler:
        """That of a text's classes or score is part of the published classifier, which drops before it as well."""
        dropout = self.dropout if self.head_dropout is None else self.head_dropout
        return Pooler(self.dim, dropout if {"classification", "multilabel", "regression"} & set(heads) else 0.0)

    def head(self, name: str, outputs: int, token: Token) -> nn.Module:
        if name == "mlm":
            return LanguageModelHead(token, self.dim, eps=self.eps)
        if name == "choice":
            return Classifier(self.dim, outputs, dropout=self.dropout)
        return super().head(name, outputs, token)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "dim": 128, "heads": 2, "hidden": 512},
    "mini": {"layers": 4, "dim": 256, "heads": 4, "hidden": 1_024},
    "small": {"layers": 4, "dim": 512, "heads": 8, "hidden": 2_048},
    "medium": {"layers": 8, "dim": 512, "heads": 8, "hidden": 2_048},
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3_072},
    "large": {"layers": 24, "dim": 1_024, "heads": 16, "hidden": 4_096},
}
"""Published sizes: Devlin et al. 2018 (base, large) and Turc et al. 2019 (the others)."""

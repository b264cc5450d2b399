"""ModernBERT: a pre-norm encoder with rotary positions, gated feed-forwards, and mostly local attention (Warner et al.,
2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.stack_model import MeanModel, StackModel
from unmask.nn import (
    ACTIVATIONS,
    ActivationName,
    Attention,
    Block,
    Classifier,
    Embedding,
    GatedFeedForward,
    Residual,
    Rotary,
    Stack,
    TiedHead,
    Token,
    Transform,
    TransformedClassifier,
    TransformedHead,
    UntiedHead,
    truncated_normal,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class ModernBert(ModelConfig):
    """The numbers that make a ModernBERT; the defaults are ModernBERT-base.

    vocabulary  V, entries of the tokenizer        dim     D, width of the hidden states
    layers      number of blocks                   heads   H, attention heads of each
    hidden      width inside the feed-forward      length  longest sequence, in tokens
    every       the first layer and each `every`-th one after it are global; the others are local
    local       width of a local window: a token sees local // 2 tokens on either side of it
    global_base, local_base  bases of the rotary positions of both kinds of layers
    norm_bias, attention_bias, feedforward_bias  whether these parts have biases
    head_bias, head_activation  of the layer before each output; its norm is as the others
    decoder_bias, tied  of the output over the vocabulary: whether it has a bias, and the token vectors as weights
    pooling     what classifiers of sequences read: the first token ("cls"), or the mean of all tokens ("mean")
    embedding_dropout  after the embedding         attention_dropout  on attention weights, and after attention
    hidden_dropout     inside the feed-forward     head_dropout       before a classifier
    std, cutoff  deviation of the initial weights, and where it is truncated, in deviations
    padding      id of the padding token
    """

    vocabulary: int = 50_368
    dim: int = 768
    layers: int = 22
    heads: int = 12
    hidden: int = 1_152
    length: int = 8_192
    every: int = 3
    local: int = 128
    global_base: float = 160_000.0
    local_base: float = 10_000.0
    activation: ActivationName = "gelu"
    eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    feedforward_bias: bool = False
    head_bias: bool = False
    head_activation: ActivationName = "gelu"
    decoder_bias: bool = True
    tied: bool = True
    pooling: Literal["cls", "mean"] = "cls"
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    head_dropout: float = 0.0
    std: float = 0.02
    cutoff: float = 2.0
    padding: int = 50_283

    offers = frozenset({"bidirectional"})
    unweighted = frozenset({"length", "every", "local", "global_base", "local_base"})
    sentence_encoder = True

    def __post_init__(self) -> None:
        if self.every < 1 or self.local < 0:
            raise UnmaskError(f"A ModernBERT needs every >= 1 and local >= 0, not {self.every} and {self.local}.")

    @property
    def width(self) -> int:
        return self.dim

    def norm(self) -> nn.LayerNorm:
        """A layer norm, without a bias as published (section 2.1, "Bias Terms")."""
        return nn.LayerNorm(self.dim, self.eps, bias=self.norm_bias)

    def embedding(self) -> Embedding:
        """Token vectors, normalised (section 2.1, "Normalization"); no positions and no segments."""
        return Embedding(Token(self.vocabulary, self.dim), norm=self.norm(), dropout=self.embedding_dropout)

    def is_global(self, layer: int) -> bool:
        """Whether all tokens of a sequence see each other in this layer, from 0 (2.1, "Alternating Attention")."""
        return layer % self.every == 0

    def block(self, layer: int, position: Rotary) -> Block:
        """x + Attention(norm(x)), x + GeGLU(norm(x)). The first attention has no norm: the embedding has one."""
        rate, bias = self.attention_dropout, self.attention_bias
        attention = Attention(self.dim, self.heads, position=position, bias=bias, dropout=rate)
        feedforward = GatedFeedForward(
            self.dim, self.hidden, ACTIVATIONS[self.activation], bias=self.feedforward_bias, dropout=self.hidden_dropout
        )
        return Block(
            Residual(attention, before=self.norm() if layer else None, dropout=rate),
            Residual(feedforward, before=self.norm()),
        )

    def stack(self) -> Stack:
        """Global and local blocks in turn, and a norm of the last sum."""
        far, near = (Rotary(self.dim // self.heads, base) for base in (self.global_base, self.local_base))
        kinds = [self.is_global(layer) for layer in range(self.layers)]
        blocks = [self.block(layer, far if is_global else near) for layer, is_global in enumerate(kinds)]
        windows = [None if is_global else self.local // 2 + 1 for is_global in kinds]
        return Stack(blocks, norm=self.norm(), windows=windows)

    def transform(self) -> Transform:
        """The layer before each output."""
        return Transform(self.dim, ACTIVATIONS[self.head_activation], self.norm(), bias=self.head_bias)

    def masked_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Logits over the vocabulary; the only bias of the published model is here (2.1, "Bias Terms")."""
        if self.tied:
            return TransformedHead(self.transform(), TiedHead(token, bias=self.decoder_bias))
        return TransformedHead(self.transform(), UntiedHead(self.dim, self.vocabulary, bias=self.decoder_bias))

    def token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        rate = 0.0 if head.pretraining else self.head_dropout
        return TransformedClassifier(self.transform(), self.dim, head.outputs, rate)

    sequence_head = choice_head = span_head = token_head

    def vectors_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(3 * self.dim, head.outputs)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; the default head is that of masked tokens.

        pooler  has no effect: each head has its own layer instead
        """
        heads = {"mlm": Head("masked_token")} if heads is None else heads
        embedding = self.embedding()
        token = embedding.token
        assert isinstance(token, Token)
        kind = MeanModel if self.pooling == "mean" else StackModel
        model = kind(
            self,
            embedding,
            self.stack(),
            heads={name: head_of(self, head, token) for name, head in heads.items()},
        )
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Megatron's initialisation (section 2.2): the last weights of each of the 2 L sub-layers, and of a layer
        before an output, are smaller by sqrt(2 L); those of classifiers have a deviation of D^-0.5."""
        truncated_normal(module, self.std, torch.Generator().manual_seed(seed), cutoff=self.cutoff)
        smaller = (2 * self.layers) ** -0.5
        with torch.no_grad():
            for part in module.modules():
                if isinstance(part, Block):
                    part.attention.f.get_parameter("output.weight").mul_(smaller)
                    part.feedforward.f.get_parameter("down.weight").mul_(smaller)
                elif isinstance(part, Transform):
                    part.dense.weight.mul_(smaller)
                elif isinstance(part, UntiedHead):
                    part.output.weight.mul_(smaller)
                elif isinstance(part, TransformedClassifier):
                    part.output.weight.mul_(self.dim**-0.5 / self.std)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 3, "dim": 128, "heads": 2, "hidden": 192},
    "mini": {"layers": 6, "dim": 256, "heads": 4, "hidden": 384},
    "small": {"layers": 6, "dim": 512, "heads": 8, "hidden": 768},
    "base": {"layers": 22, "dim": 768, "heads": 12, "hidden": 1_152},
    "large": {"layers": 28, "dim": 1_024, "heads": 16, "hidden": 2_624},
}
"""Published sizes, and sizes for a CPU: as wide as BERT's, and deeper, with about as many weights in the blocks."""

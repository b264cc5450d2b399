"""T5: a text-to-text Transformer with relative position biases, RMS norms and no other biases (Raffel et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unmask.errors import unknown
from unmask.models.encoder_decoder import TextToTextConfig
from unmask.models.transformer_model import TransformerModel
from unmask.nn import (
    FEEDFORWARDS,
    Attention,
    Block,
    Classifier,
    Dropout,
    Embedding,
    Residual,
    ScaledTiedHead,
    Stack,
    T5Bias,
    TiedHead,
    Token,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class T5(TextToTextConfig):
    """The numbers that make a T5; the defaults are T5-small, version 1.0.

    vocabulary  V, entries of the tokenizer, sentinels included     dim     D, width of the hidden states
    heads       H, attention heads                                  head_dim  K, width of each, whatever D / H is
    hidden      width inside the feed-forward                       feedforward  its kind, a name of `FEEDFORWARDS`
    encoder_layers, decoder_layers                                  number of blocks
    buckets, furthest  of the relative biases: how many a head has, and from which distance on they are all equal
    output      weights of the output layer. "scaled": the token vectors, with the state times D^-0.5 (1.0);
                "untied": a separate table (1.1); "tied": the token vectors, with the state as it is
    dropout     after embeddings, sub-layers and the last norm, on attention weights, and inside the feed-forward
    factor      scale of all initial weights
    start, end, padding  ids of the token that starts a target (the padding, as published), of </s>, of padding
    """

    vocabulary: int = 32_128
    dim: int = 512
    heads: int = 8
    head_dim: int = 64
    hidden: int = 2_048
    encoder_layers: int = 6
    decoder_layers: int = 6
    length: int | None = None
    feedforward: str = "relu"
    buckets: int = 32
    furthest: int = 128
    output: Literal["scaled", "tied", "untied"] = "scaled"
    dropout: float = 0.1
    eps: float = 1e-6
    factor: float = 1.0
    padding: int = 0
    start: int = 0
    end: int = 1

    offers = frozenset({"encoder-decoder"})
    adafactor = True

    def __post_init__(self) -> None:
        if self.feedforward not in FEEDFORWARDS:
            raise unknown("feed-forward layer", self.feedforward, FEEDFORWARDS)

    @property
    def width(self) -> int:
        return self.dim

    def residual(self, f: nn.Module) -> Residual:
        """x + dropout(f(norm(x))): norms stand outside the residual path (section 2.1)."""
        return Residual(f, before=self.norm(), dropout=self.dropout)

    def norm(self) -> nn.RMSNorm:
        """x / rms(x), times a weight for each feature: layer norm without a mean and a bias (section 2.1)."""
        return nn.RMSNorm(self.dim, self.eps)

    def attention(self) -> Residual:
        """Multi-head attention without a scale of the scores: the initialisation of the queries includes it."""
        return self.residual(
            Attention(self.dim, self.heads, head_dim=self.head_dim, bias=False, scale=1.0, dropout=self.dropout)
        )

    def mlp(self) -> Residual:
        """The feed-forward as a sub-layer."""
        return self.residual(FEEDFORWARDS[self.feedforward](self.dim, self.hidden, dropout=self.dropout))

    def tables(self) -> tuple[Token, Token]:
        token = Token(self.vocabulary, self.dim)
        return token, token

    def embedding(self, token: Token) -> Embedding:
        return Embedding(token, dropout=self.dropout)

    def stack(self, blocks: list[Block], *, causal: bool) -> Stack:
        """Blocks that share one relative bias, and a norm of the last block's output (section 2.1)."""
        bias = T5Bias(self.heads, self.buckets, self.furthest, causal)
        return Stack(blocks, position=bias, norm=nn.Sequential(self.norm(), Dropout(self.dropout)))

    def encoder(self) -> Stack:
        """Blocks of self-attention and feed-forward."""
        return self.stack([Block(self.attention(), self.mlp()) for _ in range(self.encoder_layers)], causal=False)

    def decoder(self) -> Stack:
        """Blocks of causal self-attention, attention to the encoder's outputs, and feed-forward."""
        blocks = [Block(self.attention(), self.mlp(), cross=self.attention()) for _ in range(self.decoder_layers)]
        return self.stack(blocks, causal=True)

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Logits over the vocabulary."""
        if self.output == "untied":
            return Classifier(self.dim, self.vocabulary, bias=False)
        return ScaledTiedHead(token) if self.output == "scaled" else TiedHead(token)

    def assemble(self, **parts: Any) -> T5Model:
        return T5Model(self, **parts)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set the initial weights of a model, or of a part of one: normal, with a variance of 1 / inputs.

        The variance of queries is 1 / (inputs * K), in place of a scale of the scores; that of token vectors is 1.
        """
        generator = torch.Generator().manual_seed(seed)

        def normal(weight: Tensor, variance: float) -> None:
            nn.init.normal_(weight, std=self.factor * math.sqrt(variance), generator=generator)

        queries = {id(part.query) for part in module.modules() if isinstance(part, Attention)}
        for part in module.modules():
            if isinstance(part, nn.Linear):
                normal(part.weight, 1 / (part.in_features * (self.head_dim if id(part) in queries else 1)))
            elif isinstance(part, T5Bias):
                normal(part.table.weight, 1 / self.dim)
            elif isinstance(part, Token):
                normal(part.weight, 1.0)


class T5Model(TransformerModel):
    """A Transformer that is built of T5's parts."""

    config: T5


def _sizes(table: Mapping[str, tuple[int, int, int, int, int]], **fields: object) -> dict[str, dict[str, object]]:
    names = ("dim", "heads", "head_dim", "hidden", "encoder_layers", "decoder_layers")
    return {size: {**dict(zip(names, (*row, row[-1]), strict=True)), **fields} for size, row in table.items()}


SIZES = _sizes(
    {
        "tiny": (128, 2, 64, 512, 2),
        "mini": (256, 4, 64, 1_024, 4),
        "small": (512, 8, 64, 2_048, 6),
        "base": (768, 12, 64, 3_072, 12),
        "large": (1_024, 16, 64, 4_096, 24),
        "3b": (1_024, 32, 128, 16_384, 24),
        "11b": (1_024, 128, 128, 65_536, 24),
    }
)
"""Version 1.0: as published (section 3.7), except for tiny and mini, which are for a CPU."""

SIZES_V11 = _sizes(
    {
        "tiny": (128, 2, 64, 344, 2),
        "mini": (256, 4, 64, 688, 4),
        "small": (512, 6, 64, 1_024, 8),
        "base": (768, 12, 64, 2_048, 12),
        "large": (1_024, 16, 64, 2_816, 24),
        "xl": (2_048, 32, 64, 5_120, 24),
        "xxl": (4_096, 64, 64, 10_240, 24),
    },
    feedforward="gated-gelu",
    output="untied",
    dropout=0.0,
)
"""Version 1.1, with gated feed-forwards and an untied output, pre-trained without dropout."""

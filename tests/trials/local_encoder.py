"""LocalEncoder, a model page in one file: an encoder whose tokens see their neighbours alone (Beltagy et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from unmask.huggingface.table import Table
from unmask.models.heads import head_of
from unmask.models.model import ModelConfig
from unmask.models.stack_model import StackModel
from unmask.nn import (
    Attention,
    Block,
    Classifier,
    Embedding,
    GatedFeedForward,
    Mask,
    Residual,
    Rotary,
    Stack,
    TiedHead,
    Token,
    truncated_normal,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class LocalEncoder(ModelConfig):
    """`window` places on either side are seen in each layer, the token's own included."""

    vocabulary: int = 100
    length: int | None = 64
    padding: int = 0
    dim: int = 32
    layers: int = 2
    heads: int = 2
    window: int = 4

    offers = frozenset({"bidirectional"})

    @property
    def width(self) -> int:
        return self.dim

    def block(self) -> Block:
        attention = Attention(self.dim, self.heads, position=Rotary(self.dim // self.heads))
        feedforward = GatedFeedForward(self.dim, 2 * self.dim, nn.functional.silu, bias=False)
        return Block(*(Residual(part, before=nn.LayerNorm(self.dim)) for part in (attention, feedforward)))

    def masked_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return TiedHead(token, bias=True)

    def sequence_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(self.dim, head.outputs)

    def build(
        self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> StackModel:
        token = Token(self.vocabulary, self.dim)
        asked = {"mlm": Head("masked_token")} if heads is None else heads
        made = {name: head_of(self, head, token) for name, head in asked.items()}
        stack = Stack([self.block() for _ in range(self.layers)], norm=nn.LayerNorm(self.dim))
        model = StackModel(self, Embedding(token), stack, heads=made, mask=Mask(window=self.window))
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        truncated_normal(module, 0.1, torch.Generator().manual_seed(seed))


FIELDS = {name: name for name in LocalEncoder().to_dict()}
NAMES = (("embedding", "embedding"), ("stack", "stack"))
TABLE = Table("local-encoder", LocalEncoder, "", FIELDS, {}, trunk=NAMES, pooler=(), heads={}, architectures={})

"""A page of another modality, written against the public contracts alone: ViT (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.stack_model import StackModel
from unmask.nn import (
    Attention,
    Block,
    Classifier,
    Embedding,
    FeedForward,
    Learned,
    Patch,
    Places,
    Residual,
    Stack,
    truncated_normal,
)
from unmask.types import Example, Head, Kind


@dataclass(frozen=True, kw_only=True)
class Vit(ModelConfig):
    """Patches as words: a class token, learned positions, pre-norm blocks."""

    vocabulary: int = 0
    length: int = 17
    dim: int = 24
    layers: int = 2
    heads: int = 3
    hidden: int = 48
    patch: int = 4
    channels: int = 3
    eps: float = 1e-12

    offers = frozenset[str]()

    @property
    def width(self) -> int:
        return self.dim

    def block(self) -> Block:
        attention, feedforward = Attention(self.dim, self.heads), FeedForward(self.dim, self.hidden, F.gelu)
        return Block(
            Residual(attention, before=nn.LayerNorm(self.dim, self.eps)),
            Residual(feedforward, before=nn.LayerNorm(self.dim, self.eps)),
        )

    def token_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.dim, head.outputs)

    sequence_head = token_head

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        patches = Patch(self.channels * self.patch**2, self.dim)
        embedding = Embedding(Places(patches, self.dim, (Kind.CLS, Kind.MASK)), position=Learned(self.length, self.dim))
        stack = Stack([self.block() for _ in range(self.layers)], norm=nn.LayerNorm(self.dim, self.eps))
        made = {name: head_of(self, head) for name, head in (heads or {}).items()}
        model = StackModel(self, embedding, stack, heads=made)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        truncated_normal(module, 0.02, torch.Generator().manual_seed(seed))


def encode(picture_CHW: np.ndarray, patch: int) -> Example:
    """A class token, then the patches of a picture, from left to right and from top to bottom."""
    C, H, W = picture_CHW.shape
    if H % patch or W % patch:
        raise UnmaskError(f"A picture of {H} x {W} pixels cannot be cut into patches of {patch}.")
    patches = picture_CHW.reshape(C, H // patch, patch, W // patch, patch).transpose(1, 3, 0, 2, 4)
    values = patches.reshape(-1, C * patch**2).astype(np.float32)
    tokens = np.full(len(values) + 1, Kind.SIGNAL)
    tokens[0] = Kind.CLS
    return Example(tokens, signal=(np.arange(1, len(tokens)), values))

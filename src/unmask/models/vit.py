"""ViT: a Transformer over patches of a picture (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
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
    LearnedGrid,
    Patch,
    Places,
    Pooler,
    Residual,
    Stack,
    truncated_normal,
)
from unmask.types import Head, Kind


@dataclass(frozen=True, kw_only=True)
class Vit(ModelConfig):
    """The numbers that make a ViT; the defaults are ViT-base of 224 pixels with patches of 16.

    size        pixels of a picture's side         patch   pixels of a patch's side
    channels    numbers of a pixel: 3, or 1 for grey
    dim         D, width of the hidden states      layers  number of blocks
    heads       H, attention heads of each         hidden  width inside the feed-forward
    dropout     after embeddings and sub-layers    attention_dropout  on attention weights
    drop_path   rate of stochastic depth in the last block; it grows linearly from 0 in the first
    hides       whether it has a vector for masked patches, which pre-training with masked patches needs
    std         of the initialisation
    vocabulary, length, padding  follow from the others: no vocabulary, and one place for each patch and summary token

    Raises UnmaskError for a size that patches do not divide.
    """

    size: int = 224
    patch: int = 16
    channels: int = 3
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3_072
    activation: ActivationName = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    eps: float = 1e-12
    std: float = 0.02
    hides: bool = False
    vocabulary: int = 0
    length: int | None = None
    padding: int | None = None

    summaries: ClassVar[tuple[Kind, ...]] = (Kind.CLS,)

    def __post_init__(self) -> None:
        if self.patch < 1 or self.size < self.patch or self.size % self.patch:
            raise UnmaskError(
                f"A picture of {self.size} pixels cannot be cut into patches of {self.patch}: choose a size that the "
                "patch divides."
            )
        if not 0 <= self.drop_path < 1:
            raise UnmaskError(f"drop_path must be at least 0 and less than 1, not {self.drop_path}.")
        object.__setattr__(self, "length", self.grid**2 + len(self.summaries))

    @property
    def grid(self) -> int:
        """Number of patches along a side."""
        return self.size // self.patch

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"pictures", "masked patches", "patch states", "projections"})

    @property
    def width(self) -> int:
        return self.dim

    def embedding(self) -> Embedding:
        """[x_class; x_p^1 E; ...; x_p^N E] + E_pos (equation 1)."""
        patches = Patch(self.channels * self.patch**2, self.dim)
        kinds = (*self.summaries, Kind.MASK) if self.hides else self.summaries
        position = LearnedGrid(self.grid, self.dim, before=len(self.summaries))
        return Embedding(Places(patches, self.dim, kinds), position=position, dropout=self.dropout)

    def block(self, drop_path: float = 0.0) -> Block:
        """z' = MSA(LN(z)) + z; MLP(LN(z')) + z' (equations 2 and 3)."""
        attention = Attention(self.dim, self.heads, dropout=self.attention_dropout)
        feedforward = FeedForward(self.dim, self.hidden, ACTIVATIONS[self.activation])
        return Block(
            self._residual(attention, drop_path),
            self._residual(feedforward, drop_path),
        )

    def _residual(self, f: nn.Module, drop_path: float) -> Residual:
        norm = nn.LayerNorm(self.dim, self.eps)
        return Residual(f, before=norm, dropout=self.dropout, drop_path=drop_path)

    def stack(self) -> Stack:
        """The blocks, and a norm of their output (equation 4)."""
        rates = [self.drop_path * i / max(self.layers - 1, 1) for i in range(self.layers)]
        return Stack([self.block(rate) for rate in rates], norm=nn.LayerNorm(self.dim, self.eps))

    def token_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.dim, head.outputs)

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.dim, head.outputs)

    def embedding_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """The layer of a classifier, whose outputs are the numbers of a vector."""
        return self.sequence_head(head, token)

    def projection_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """W2 relu(W1 h) (Chen et al. 2020, section 2.1)."""
        return nn.Sequential(nn.Linear(self.dim, self.dim), nn.ReLU(), nn.Linear(self.dim, head.outputs))

    def assemble(self, pooler: nn.Module | None, heads: Mapping[str, nn.Module]) -> Model:
        """A model with this pooler and these heads."""
        return StackModel(self, self.embedding(), self.stack(), pooler=pooler, heads=heads)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; by default there are no heads and no pooler."""
        made = {name: head_of(self, head) for name, head in (heads or {}).items()}
        model = self.assemble(Pooler(self.dim) if pooler else None, made)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Weights, position vectors and summary tokens from a truncated normal; biases and the MASK vector are zero."""
        generator = torch.Generator().manual_seed(seed)
        truncated_normal(module, self.std, generator)
        for part in module.modules():
            if isinstance(part, Places):
                for name, vector_D in part.kinds.items():
                    if name != Kind.MASK.name:
                        nn.init.trunc_normal_(vector_D, std=self.std, generator=generator)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 12, "dim": 192, "heads": 3, "hidden": 768},
    "small": {"layers": 12, "dim": 384, "heads": 6, "hidden": 1_536},
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3_072},
    "large": {"layers": 24, "dim": 1_024, "heads": 16, "hidden": 4_096},
    "huge": {"layers": 32, "dim": 1_280, "heads": 16, "hidden": 5_120},
}
"""Published sizes: Touvron et al. 2021, table 1 (tiny, small); Dosovitskiy et al. 2021, table 1 (the others)."""

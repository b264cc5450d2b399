"""SignalTransformer: a Transformer over the segments of a record, as a ViT over the patches of a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.signal_model import RecordSummaries, SignalConfig
from unmask.nn import (
    ACTIVATIONS,
    ActivationName,
    Attention,
    Block,
    Embedding,
    FeedForward,
    Patch,
    Places,
    Residual,
    Rotary,
    Sinusoidal,
    Stack,
    truncated_normal,
)
from unmask.types import Kind


@dataclass(frozen=True, kw_only=True)
class SignalTransformer(SignalConfig):
    """The numbers that make a Transformer over segments.

    segment   S, samples of a segment, of all leads: one linear map makes them a vector (Dosovitskiy et al. 2021,
              equation 1)
    dim       D, width of the hidden states      layers  number of blocks, each with its norms first
    heads     attention heads of each            hidden  width inside the feed-forward
    dropout   after embeddings and sub-layers    std     of the initialisation
    hides     whether it has a vector for masked segments, which pre-training with masked segments needs
    position  "sines" added to the segments (Vaswani et al. 2017, section 3.5), or "rotary" (Su et al. 2021, section
              3.2.2): attention by distance, with which masked segments are learned much sooner

    Neither limits the length of a record. Raises UnmaskError for sizes that do not go together.
    """

    segment: int = 25
    dim: int = 128
    layers: int = 4
    heads: int = 4
    hidden: int = 512
    activation: ActivationName = "gelu"
    dropout: float = 0.1
    eps: float = 1e-6
    std: float = 0.02
    hides: bool = False
    position: Literal["sines", "rotary"] = "sines"

    def __post_init__(self) -> None:
        if self.segment < 1 or self.leads < 1 or self.heads < 1 or self.dim % (2 * self.heads):
            raise UnmaskError(
                f"segment = {self.segment} and leads = {self.leads} must be at least 1, and dim = {self.dim} a "
                f"multiple of twice heads = {self.heads}."
            )

    @property
    def width(self) -> int:
        return self.dim

    @property
    def offers(self) -> frozenset[str]:
        return super().offers | {"masked segments"}

    def embedding(self) -> Embedding:
        kinds = (Kind.MASK,) if self.hides else ()
        segments = Places(Patch(self.leads * self.segment, self.dim), self.dim, kinds)
        position = Sinusoidal(self.dim) if self.position == "sines" else None
        return Embedding(segments, position=position, dropout=self.dropout)

    def block(self) -> Block:
        """z' = MSA(LN(z)) + z; MLP(LN(z')) + z'."""
        feedforward = FeedForward(self.dim, self.hidden, ACTIVATIONS[self.activation])
        position = Rotary(self.dim // self.heads) if self.position == "rotary" else None
        return Block(self._residual(Attention(self.dim, self.heads, position=position)), self._residual(feedforward))

    def _residual(self, f: nn.Module) -> Residual:
        return Residual(f, before=nn.LayerNorm(self.dim, self.eps), dropout=self.dropout)

    def stack(self) -> Stack:
        return Stack([self.block() for _ in range(self.layers)], norm=nn.LayerNorm(self.dim, self.eps))

    def assemble(self, heads: Mapping[str, nn.Module]) -> RecordSummaries:
        return RecordSummaries(self, self.embedding(), self.stack(), heads=heads)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Weights from a truncated normal; biases and the MASK vector are zero."""
        truncated_normal(module, self.std, torch.Generator().manual_seed(seed))


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {},
    "small": {"dim": 256, "layers": 8, "heads": 8, "hidden": 1_024},
}
"""Models of 0.8 M and 6.3 M parameters."""

"""Captioner: a ViT reads a picture; the decoder of a Transformer attends to its patches and writes a text.

Attention of a decoder to the places of a picture: Xu et al. 2015, "Show, Attend and Tell"; both sides as Transformers:
Li et al. 2021, "TrOCR".
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from unmask.models.transformer import Transformer
from unmask.models.vit import Vit
from unmask.nn import Embedding, Places, Stack, Token


@dataclass(frozen=True, kw_only=True)
class Captioner(Transformer):
    """The numbers that make a captioner: those of a Transformer, and of its pictures.

    size      pixels of a picture's side
    patch     pixels of a patch's side
    channels  numbers of a pixel: 3, or 1 for grey

    Raises UnmaskError for a size that patches do not divide.
    """

    size: int = 224
    patch: int = 16
    channels: int = 3

    reads_pictures = True
    summaries = Vit.summaries

    def __post_init__(self) -> None:
        self.pictures()

    def pictures(self) -> Vit:
        """The ViT that reads the pictures."""
        return Vit(
            size=self.size,
            patch=self.patch,
            channels=self.channels,
            dim=self.dim,
            layers=self.encoder_layers,
            heads=self.encoder_heads,
            hidden=self.encoder_hidden,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )

    def source_embedding(self, token: Token) -> Embedding:
        """The patches of the picture, and their positions."""
        return self.pictures().embedding()

    def encoder(self) -> Stack:
        """The blocks of the ViT, and the norm of their output."""
        return self.pictures().stack()

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set the initial weights of a model, or of a part of one: those of a Transformer, and for the embedding of the
        pictures those of a ViT."""
        super().initialise(module, seed)
        for part in module.modules():
            if isinstance(part, Embedding) and isinstance(part.token, Places):
                self.pictures().initialise(part, seed)

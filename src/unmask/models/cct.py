"""CCT, the Compact Convolutional Transformer: convolutions cut the picture into tokens, and a weighted mean of all
tokens is classified (Hassani et al. 2021).

Shapes: B rows, T places of a row, M pictures, G tokens of a side, N = G * G tokens of a picture, P patches of all
pictures, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.stack_model import StackModel
from unmask.models.vit import Vit
from unmask.nn import Classifier, Embedding, LearnedGrid, Places
from unmask.nn.feature_maps import pictures
from unmask.types import Batch, Head, Kind, Signal


@dataclass(frozen=True, kw_only=True)
class Cct(Vit):
    """The numbers that make a CCT; the defaults are CCT-7/3x1 of 32 pixels. Fields of a ViT have the same meaning.

    kernel         pixels of the side of each convolution of the tokenizer
    convolutions   number of these convolutions; each is followed by pooling, which halves the feature map

    A patch is the square of pixels that one token stands for: 2 ** convolutions pixels. A convolution sees beyond it.
    """

    size: int = 32
    patch: int = 2
    dim: int = 256
    layers: int = 7
    heads: int = 4
    hidden: int = 512
    attention_dropout: float = 0.1
    drop_path: float = 0.1
    eps: float = 1e-5
    kernel: int = 3
    convolutions: int = 1

    summaries: ClassVar[tuple[Kind, ...]] = ()

    def __post_init__(self) -> None:
        if self.convolutions < 1 or self.kernel < 1 or self.kernel % 2 == 0:
            raise UnmaskError("A tokenizer needs at least one convolution, with an odd kernel.")
        object.__setattr__(self, "patch", 2**self.convolutions)
        super().__post_init__()

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"pictures"})

    def embedding(self) -> Embedding:
        """x_0 = MaxPool(ReLU(Conv2d(x))) (section 3.2, equation 1), and learned positions."""
        tokenizer = Tokenizer(self)
        return Embedding(
            Places(tokenizer, self.dim, ()), position=LearnedGrid(self.grid, self.dim), dropout=self.dropout
        )

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.dim, head.outputs)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; the default has no heads. The sequence pooling is always there."""
        made = {name: head_of(self, head) for name, head in (heads or {}).items()}
        model = CctModel(self, self.embedding(), self.stack(), pooler=nn.Linear(self.dim, 1), heads=made)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """As in a ViT; convolutions for layers with ReLU (He et al. 2015), as published."""
        super().initialise(module, seed)
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, generator=generator)


class Tokenizer(nn.Module):
    """Convolutions, each with pooling of 3 x 3 with stride 2, and ReLU (section 3.2)."""

    def __init__(self, page: Cct):
        super().__init__()
        self.channels, self.patch, self.size = page.channels, page.patch, page.size
        widths = [page.channels, *[FIRST] * (page.convolutions - 1), page.dim]
        layers = [
            nn.Sequential(
                nn.Conv2d(inputs, outputs, page.kernel, padding=page.kernel // 2, bias=False),
                nn.MaxPool2d(3, stride=2, padding=1),
                nn.ReLU(),  # after the pooling, of a quarter of the numbers: both keep the order of numbers
            )
            for inputs, outputs in pairwise(widths)
        ]
        self.layers = nn.Sequential(*layers)

    def forward(self, signal: Signal, shape: torch.Size) -> Tensor:
        """The patches [P, C * p * p] of a signal in rows of `shape` [B, T] -> [B, T, D], zero at all other places.
        Raises UnmaskError for pictures of another size."""
        N = (self.size // self.patch) ** 2
        if len(signal.places) % N or signal.values.shape[1] != self.channels * self.patch**2:
            raise UnmaskError(
                f"Pictures must have {N} patches of {self.patch} pixels for this model: prepare them by its image "
                "processor."
            )
        pixels_MCSS = pictures(signal.values, self.channels, self.patch, self.size)
        map_MDGG = self.layers(pixels_MCSS.contiguous(memory_format=torch.channels_last))
        tokens_PD = map_MDGG.flatten(2).transpose(1, 2).flatten(0, 1)
        rows_D = tokens_PD.new_zeros(shape.numel(), tokens_PD.shape[-1])
        return rows_D.index_copy(0, signal.places, tokens_PD).unflatten(0, shape)


class CctModel(StackModel):
    """A stack whose heads for pictures read a weighted mean of the tokens."""

    config: ModelConfig

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """softmax(g(x)) x, over the tokens of each picture that begins at one of these places (section 3.3, equations 3
        and 4), [M, D]; g is the pooler."""
        N = self.config.length
        assert N is not None
        assert self.pooler is not None
        inside_MN = places_M[:, None] + torch.arange(N, device=places_M.device)
        tokens_MND = hidden_BTD.flatten(0, 1)[inside_MN]
        weights_MN1 = self.pooler(tokens_MND).softmax(1)
        return (weights_MN1 * tokens_MND).sum(1)


FIRST = 64
"""Channels between two convolutions of a tokenizer, as published."""

SIZES: dict[str, dict[str, Any]] = {
    "2/3x2": {"layers": 2, "dim": 128, "heads": 2, "hidden": 128, "convolutions": 2},
    "4/3x2": {"layers": 4, "dim": 128, "heads": 2, "hidden": 128, "convolutions": 2},
    "6/3x1": {"layers": 6, "dim": 256, "heads": 4, "hidden": 512},
    "7/3x1": {"layers": 7, "dim": 256, "heads": 4, "hidden": 512},
}
"""Published sizes for pictures of 32 pixels: layers / side of a convolution x number of convolutions."""

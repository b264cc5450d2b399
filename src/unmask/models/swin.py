"""Swin: attention within shifted windows, on a grid of patches that is merged from stage to stage (Liu et al. 2021).

Shapes: G patches of a side of the grid, D width.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.swin_model import SwinModel
from unmask.nn import (
    ACTIVATIONS,
    ActivationName,
    Attention,
    Classifier,
    Embedding,
    FeedForward,
    LearnedGrid,
    Patch,
    Places,
    Residual,
    truncated_normal,
)
from unmask.nn.windows import MergedPatches, PatchMerging, Stages, WindowAttention, WindowBias, stage
from unmask.types import Head, Kind


@dataclass(frozen=True, kw_only=True)
class Swin(ModelConfig):
    """The numbers that make a Swin; the defaults are Swin-T of 224 pixels with patches of 4 and windows of 7.

    size        pixels of a side of a picture      patch  of a patch       channels  numbers of a pixel: 3, or 1 of grey
    dim         D of the first stage, which doubles from stage to stage
    depths      number of blocks of each stage     heads  attention heads of each block of a stage
    window      patches of a side of a window; a stage whose grid is smaller has windows of its grid
    ratio       width inside the feed-forward, divided by D    bias   whether queries, keys and values have one
    absolute    whether patches also have learned position vectors (section 4.4)    std  of the initialisation
    hides       whether it has a vector for masked patches, which pre-training with masked patches needs
    dropout     after embeddings and sub-layers    attention_dropout  on attention weights
    drop_path   rate of stochastic depth of the last block while training; it grows from 0 at the first
    vocabulary, length, padding  follow from the others: it has no vocabulary, and a place for each patch

    Raises UnmaskError for sizes that do not go together.
    """

    size: int = 224
    patch: int = 4
    channels: int = 3
    dim: int = 96
    depths: tuple[int, ...] = (2, 2, 6, 2)
    heads: tuple[int, ...] = (3, 6, 12, 24)
    window: int = 7
    ratio: float = 4.0
    bias: bool = True
    absolute: bool = False
    hides: bool = False
    activation: ActivationName = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.1
    eps: float = 1e-5
    std: float = 0.02
    vocabulary: int = 0
    length: int | None = None
    padding: int | None = None

    summaries: ClassVar[tuple[Kind, ...]] = ()

    def __post_init__(self) -> None:
        if self.patch < 1 or self.size < self.patch or self.size % self.patch:
            raise UnmaskError(
                f"A picture of {self.size} pixels cannot be cut into patches of {self.patch}: choose a size that the "
                "patch divides."
            )
        if not self.depths or len(self.depths) != len(self.heads) or min(*self.depths, 1) < 1:
            raise UnmaskError(
                f"depths = {list(self.depths)} and heads = {list(self.heads)} must name one number of blocks, and one "
                "of heads, for each stage."
            )
        if self.window < 1:
            raise UnmaskError(f"A window of {self.window} patches sees nothing: it must be at least 1.")
        if not 0 <= self.drop_path < 1:
            raise UnmaskError(f"drop_path must be at least 0 and less than 1, not {self.drop_path}.")
        object.__setattr__(self, "length", self.grid**2)

    @property
    def grid(self) -> int:
        """Patches of a side in the first stage."""
        return self.size // self.patch

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"pictures", "masked patches"})

    @property
    def width(self) -> int:
        return self.dim * self.merged

    @property
    def merged(self) -> int:
        """Patches of a side of what one place of the last stage covers."""
        return 2 ** (len(self.depths) - 1)

    def at_size(self, size: int) -> Self:
        """As `ModelConfig.at_size`, for sizes that the stages divide."""
        return self if size == self.size else super().at_size(self._divided(size))

    def _divided(self, size: int) -> int:
        """The size, if patches merge without padding. Raises UnmaskError for another one."""
        if size % (multiple := self.patch * self.merged):
            raise UnmaskError(f"The stages do not divide {size} pixels evenly: choose a multiple of {multiple}.")
        return size

    def embedding(self) -> Embedding:
        """A linear map of each patch, and a norm (section 3.1); its eps is 1e-5, as published. The vector of masked
        patches is not normalised (Xie et al. 2022)."""
        patches = Patch(self.channels * self.patch**2, self.dim, norm=nn.LayerNorm(self.dim))
        places = Places(patches, self.dim, (Kind.MASK,) if self.hides else ())
        position = LearnedGrid(self.grid, self.dim) if self.absolute else None
        return Embedding(places, position=position, dropout=self.dropout)

    def block(self, stage: int, grid: int, shifted: bool, rate: float) -> nn.Module:
        """z' = (S)W-MSA(LN(z)) + z; MLP(LN(z')) + z' (equation 3)."""
        dim, heads, window = self.dim * 2**stage, self.heads[stage], min(self.window, grid)
        shift = self.window // 2 if shifted and grid > self.window else 0  # one window is the whole grid: no shift
        position = WindowBias(heads, self.window, window)
        attention = Attention(dim, heads, position=position, dropout=self.attention_dropout)
        if not self.bias:
            for part in (attention.query, attention.key, attention.value):
                part.register_parameter("bias", None)
        windows = WindowAttention(attention, grid, window, shift)
        feedforward = FeedForward(dim, int(self.ratio * dim), ACTIVATIONS[self.activation])
        layers = OrderedDict[str, nn.Module](attention=windows, feedforward=feedforward)
        for name, f in layers.items():
            layers[name] = Residual(f, before=nn.LayerNorm(dim, self.eps), dropout=self.dropout, drop_path=rate)
        return nn.Sequential(layers)

    def stack(self) -> Stages:
        """The stages, each but the last followed by a merging of patches, and the norm of the last (section 3.1)."""
        stages, grid, before, total = list[nn.Module](), self.grid, 0, sum(self.depths)
        for number, depth in enumerate(self.depths):
            rates = [self.drop_path * i / max(total - 1, 1) for i in range(before, before + depth)]
            blocks = [self.block(number, grid, i % 2 == 1, rate) for i, rate in enumerate(rates)]
            merge = PatchMerging(self.dim * 2**number, grid) if number < len(self.depths) - 1 else None
            stages.append(stage(blocks, end=merge))
            grid, before = (grid + 1) // 2, before + depth
        return Stages(stages, nn.LayerNorm(self.width, self.eps))

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.width, head.outputs)

    embedding_head = sequence_head

    def token_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """Outputs for each patch, from the state of the last stage that covers it: in SimMIM a convolution of 1 x 1 and
        a pixel shuffle (Xie et al. 2022, section 3.3)."""
        self._divided(self.size)
        return nn.Sequential(OrderedDict(output=MergedPatches(self.width, self.merged**2, head.outputs)))

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; the default has no heads. Heads read a mean, so that there is never a pooler."""
        made = {name: head_of(self, head) for name, head in (heads or {}).items()}
        model = SwinModel(self, self.embedding(), self.stack(), heads=made)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Weights and the vector of masked patches from a truncated normal; biases, those of relative positions
        included, zero."""
        generator = torch.Generator().manual_seed(seed)
        truncated_normal(module, self.std, generator)
        for part in module.modules():
            if isinstance(part, MergedPatches):
                nn.init.trunc_normal_(part.weight, std=self.std, generator=generator)
            elif isinstance(part, Places) and self.hides:
                nn.init.trunc_normal_(part.kinds[Kind.MASK.name], std=self.std, generator=generator)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 96, "depths": (2, 2, 6, 2), "heads": (3, 6, 12, 24)},
    "small": {"dim": 96, "depths": (2, 2, 18, 2), "heads": (3, 6, 12, 24)},
    "base": {"dim": 128, "depths": (2, 2, 18, 2), "heads": (4, 8, 16, 32)},
    "large": {"dim": 192, "depths": (2, 2, 18, 2), "heads": (6, 12, 24, 48)},
    "cpu": {"size": 32, "patch": 2, "window": 4, "dim": 24, "depths": (2, 2, 2), "heads": (1, 2, 4)},
}
"""Published sizes (section 3.3), and one of 32 pixels that learns on a CPU."""

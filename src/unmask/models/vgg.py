"""VGG: a column of 3 x 3 convolutions, with pooling between stages of doubled width (Simonyan & Zisserman 2015).

Shapes: M pictures, C channels, S pixels of a side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from unmask.errors import UnmaskError
from unmask.models.convolutional_model import ConvolutionalConfig
from unmask.nn import ACTIVATIONS
from unmask.nn.feature_maps import ConvolutionLayer
from unmask.nn.windows import Stages, stage


@dataclass(frozen=True, kw_only=True)
class Vgg(ConvolutionalConfig):
    """The numbers that make a VGG; the defaults are VGG-16 (configuration D) of 224 pixels.

    widths     channels of each stage        depths  number of convolutions of each stage
    norm       batch normalisation after each convolution, which the paper did without
    pointwise  whether the third convolution of a stage is 1 x 1 (configuration C)

    The classifier reads the mean of the last feature map (Lin et al. 2014, section 3.2). It replaces the two hidden
    layers of 4,096, which hold 119 of the 138 million parameters of VGG-16. Raises UnmaskError for sizes that do not go
    together.
    """

    widths: tuple[int, ...] = (64, 128, 256, 512, 512)
    depths: tuple[int, ...] = (2, 2, 3, 3, 3)
    norm: bool = False
    pointwise: bool = False

    def __post_init__(self) -> None:
        if not self.depths or len(self.depths) != len(self.widths) or min(*self.depths, *self.widths, 1) < 1:
            raise UnmaskError(
                f"depths = {list(self.depths)} and widths = {list(self.widths)} must name one number of convolutions, "
                "and one of channels, for each stage."
            )
        if self.channels < 1 or self.size < 1 or self.size % self.patch:
            raise UnmaskError(
                f"A picture of {self.size} pixels cannot be halved {len(self.depths)} times: choose a size that "
                f"{self.patch} divides, and at least one channel."
            )
        super().__post_init__()

    @property
    def patch(self) -> int:
        return 2 ** len(self.depths)

    @property
    def width(self) -> int:
        return self.widths[-1]

    def embedding(self) -> nn.Module:
        """Nothing: the column begins with the pixels."""
        return nn.Identity()

    def stack(self) -> Stages:
        """Stages of convolutions with ReLU, each followed by max-pooling (section 2.1, table 1)."""
        stages, channels = list[nn.Module](), self.channels
        for dim, depth in zip(self.widths, self.depths, strict=True):
            inputs, blocks = [channels] + [dim] * (depth - 1), list[nn.Module]()
            for i, channels in enumerate(inputs):
                kernel = 1 if self.pointwise and i == 2 else 3
                blocks.append(ConvolutionLayer(channels, dim, kernel, norm=self.norm, activation=ACTIVATIONS["relu"]))
            stages.append(stage(blocks, end=nn.MaxPool2d(2)))
            channels = dim
        return Stages(stages, nn.Identity())


SIZES: dict[str, dict[str, Any]] = {
    "11": {"depths": (1, 1, 2, 2, 2)},
    "13": {"depths": (2, 2, 2, 2, 2)},
    "16c": {"depths": (2, 2, 3, 3, 3), "pointwise": True},
    "16": {"depths": (2, 2, 3, 3, 3)},
    "19": {"depths": (2, 2, 4, 4, 4)},
    "cpu": {"size": 32, "widths": (32, 64, 128), "depths": (2, 2, 2), "norm": True},
}
"""Configurations A to E (table 1), and a column for pictures of 32 pixels that learns on a CPU."""

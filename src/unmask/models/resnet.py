"""ResNet: residual blocks of convolutions with batch normalisation (He et al. 2016).

Shapes: M pictures, C channels, S pixels of a side, D channels of a feature map.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from unmask.errors import UnmaskError
from unmask.models.convolutional_model import ConvolutionalConfig
from unmask.nn import ACTIVATIONS, ActivationName
from unmask.nn.feature_maps import ConvolutionLayer, ResidualBlock
from unmask.nn.windows import Stages, stage

REDUCTION = 4  # width of a bottleneck block, divided by that of its inner convolutions (table 1)


@dataclass(frozen=True, kw_only=True)
class ResNet(ConvolutionalConfig):
    """The numbers that make a ResNet; the defaults are ResNet-50 of 224 pixels.

    stem        "large": a convolution of 7 x 7 with stride 2, and pooling with stride 2 (table 1); "small": one of 3 x
                3 with stride 1, for pictures of about 32 pixels (section 4.2)
    dim         channels of the stem
    widths      channels of each stage             depths  number of blocks of each stage
    block       "basic": two convolutions of 3 x 3; "bottleneck": one of 3 x 3 between two of 1 x 1 (figure 5)
    activation  of the stem and after each sum; within the layers of a block it is ReLU, as in `transformers`
    halve_first  whether the first stage halves the feature map, as all others do
    halve_early  whether the first convolution of a bottleneck block halves it, as in the paper, and not the second

    Raises UnmaskError for sizes that do not go together.
    """

    stem: Literal["large", "small"] = "large"
    dim: int = 64
    widths: tuple[int, ...] = (256, 512, 1_024, 2_048)
    depths: tuple[int, ...] = (3, 4, 6, 3)
    block: Literal["basic", "bottleneck"] = "bottleneck"
    activation: ActivationName = "relu"
    halve_first: bool = False
    halve_early: bool = False

    def __post_init__(self) -> None:
        if not self.depths or len(self.depths) != len(self.widths) or min(*self.depths, 1) < 1:
            raise UnmaskError(
                f"depths = {list(self.depths)} and widths = {list(self.widths)} must name one number of blocks, and "
                "one of channels, for each stage."
            )
        least = REDUCTION if self.block == "bottleneck" else 1
        if min(*self.widths, least) < least or min(self.size, self.channels, self.dim) < 1:
            raise UnmaskError(
                f"size, channels and dim must be at least 1, and widths = {list(self.widths)} at least {least}."
            )
        super().__post_init__()

    @property
    def patch(self) -> int:
        return (4 if self.stem == "large" else 1) * 2 ** (len(self.depths) - 1 + self.halve_first)

    @property
    def width(self) -> int:
        return self.widths[-1]

    def embedding(self) -> nn.Module:
        activation = ACTIVATIONS[self.activation]
        if self.stem == "small":
            return ConvolutionLayer(self.channels, self.dim, 3, activation=activation)
        first = ConvolutionLayer(self.channels, self.dim, 7, stride=2, activation=activation)
        return nn.Sequential(OrderedDict(first=first, pool=nn.MaxPool2d(3, stride=2, padding=1)))

    def residual(self, channels: int, dim: int, stride: int) -> ResidualBlock:
        """A block from C to D channels; its shortcut is a projection where the shape changes (option B)."""
        relu, activation = ACTIVATIONS["relu"], ACTIVATIONS[self.activation]
        shortcut = ConvolutionLayer(channels, dim, 1, stride=stride) if channels != dim or stride != 1 else None
        if self.block == "basic":
            layers = [
                ConvolutionLayer(channels, dim, 3, stride=stride, activation=relu),
                ConvolutionLayer(dim, dim, 3),
            ]
            return ResidualBlock(layers, activation, shortcut=shortcut)
        inner, early = dim // REDUCTION, stride if self.halve_early else 1
        layers = [
            ConvolutionLayer(channels, inner, 1, stride=early, activation=relu),
            ConvolutionLayer(inner, inner, 3, stride=stride // early, activation=relu),
            ConvolutionLayer(inner, dim, 1),
        ]
        return ResidualBlock(layers, activation, shortcut=shortcut)

    def stack(self) -> Stages:
        stages, channels = list[nn.Module](), self.dim
        for i, (dim, depth) in enumerate(zip(self.widths, self.depths, strict=True)):
            strides = [2 if i or self.halve_first else 1] + [1] * (depth - 1)
            inputs = [channels] + [dim] * (depth - 1)
            stages.append(stage([self.residual(c, dim, stride) for c, stride in zip(inputs, strides, strict=True)]))
            channels = dim
        return Stages(stages, nn.Identity())


BASIC: dict[str, Any] = {"block": "basic", "widths": (64, 128, 256, 512)}
SIZES: dict[str, dict[str, Any]] = {
    "18": {**BASIC, "depths": (2, 2, 2, 2)},
    "34": {**BASIC, "depths": (3, 4, 6, 3)},
    "50": {"depths": (3, 4, 6, 3)},
    "101": {"depths": (3, 4, 23, 3)},
    "152": {"depths": (3, 8, 36, 3)},
    "cpu": {
        **{"size": 32, "stem": "small", "dim": 16, "block": "basic"},
        **{"widths": (16, 32, 64), "depths": (3, 3, 3)},
    },
}
"""Published sizes (table 1), and ResNet-20 for pictures of 32 pixels (section 4.2), which learns on a CPU."""

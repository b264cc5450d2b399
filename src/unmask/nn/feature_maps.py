"""Convolutions over pictures: feature maps, batch normalisation, residual blocks (ResNet, He et al. 2016), and pictures
from their patches.

Shapes: M pictures, C channels of the input, D channels of a feature map, H height, W width, G patches of a side of the
grid, P pixels of a side of a patch, S pixels of a side of a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]


def pictures(patches: Tensor, channels: int, patch: int, size: int) -> Tensor:
    """Patches [M * G * G, C * P * P], read from left to right and from top to bottom -> pictures [M, C, S, S]. Pixels
    beyond S, with which a processor fills the last patches, are cut off."""
    grid = -(-size // patch)
    x = patches.unflatten(1, (channels, patch, patch)).unflatten(0, (-1, grid, grid))
    return x.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)[..., :size, :size]


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation (Ioffe & Szegedy 2015, algorithm 1; in evaluation, the running statistics, algorithm 2).

    A training batch with a single value of each channel has no variance: it is normalised by the running statistics,
    where PyTorch raises an error.
    """

    def forward(self, x_MDHW: Tensor) -> Tensor:
        """[M, D, H, W] -> [M, D, H, W]."""
        if self.training and x_MDHW.numel() == self.num_features:
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(x_MDHW, mean, var, self.weight, self.bias, training=False, eps=self.eps)
        return super().forward(x_MDHW)


class ConvolutionLayer(nn.Module):
    """activation(norm(W * x)).

    kernel      odd; the border is padded with kernel // 2 zeros
    norm        batch normalisation; the convolution then has no bias, which the norm would remove
    activation  None: the identity
    """

    def __init__(
        self,
        channels: int,
        dim: int,
        kernel: int,
        *,
        stride: int = 1,
        norm: bool = True,
        activation: Activation | None = None,
    ):
        super().__init__()
        self.convolution = nn.Conv2d(channels, dim, kernel, stride, kernel // 2, bias=not norm)
        self.norm = BatchNorm(dim) if norm else nn.Identity()
        self.activation = activation

    def forward(self, x_MCHW: Tensor) -> Tensor:
        """[M, C, H, W] -> [M, D, ceil(H / stride), ceil(W / stride)]."""
        y_MDHW: Tensor = self.norm(self.convolution(x_MCHW))
        return y_MDHW if self.activation is None else self.activation(y_MDHW)


class ResidualBlock(nn.Module):
    """activation(layers(x) + shortcut(x)) (He et al. 2016, equations 1 and 2).

    shortcut  a projection if the layers change the shape; None: the identity
    """

    def __init__(self, layers: Sequence[nn.Module], activation: Activation, *, shortcut: nn.Module | None = None):
        super().__init__()
        self.shortcut, self.layers = shortcut or nn.Identity(), nn.Sequential(*layers)
        self.activation = activation

    def forward(self, x_MCHW: Tensor) -> Tensor:
        """[M, C, H, W] -> [M, D, H', W']."""
        return self.activation(self.layers(x_MCHW) + self.shortcut(x_MCHW))

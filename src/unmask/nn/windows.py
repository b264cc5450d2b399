"""Windows of a grid: attention within windows, shifted windows, relative position biases and patch merging (Swin, Liu
et al. 2021, section 3).

Shapes: B pictures, G places along a side of the grid, N = G * G places, W places along a side of a window, T = W * W,
P windows of a picture, H heads, D width, C outputs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.nn.attention import Attention
from unmask.nn.mask import Bias
from unmask.nn.position import Position

APART = -100.0
"""The bias between places that were not neighbours before the shift: as published, not -inf."""


def partition(x_BGGD: Tensor, window: int) -> Tensor:
    """[B, G, G, D] -> windows [B * P, T, D], each read from left to right and from top to bottom; W divides G."""
    x = x_BGGD.unflatten(2, (-1, window)).unflatten(1, (-1, window))  # [B, G / W, W, G / W, W, D]
    return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def reverse(windows: Tensor, window: int, grid: int) -> Tensor:
    """The inverse of `partition`: [B * P, T, D] -> [B, G, G, D]."""
    across = grid // window
    x = windows.unflatten(1, (window, window)).unflatten(0, (-1, across, across))
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def shifted_mask(grid: int, window: int, shift: int, device: torch.device | None = None) -> Tensor:
    """[P, 1, T, T], the bias of the scores after a cyclic shift: -100 between places of different regions, else 0
    (section 3.2, figure 4)."""
    place_G = torch.arange(grid, device=device)
    region_G = (place_G >= grid - window).long() + (place_G >= grid - shift).long()
    region_PT = partition((3 * region_G[:, None] + region_G)[None, ..., None], window)[..., 0]
    apart_PTT = region_PT[:, :, None] != region_PT[:, None, :]
    return APART * apart_PTT[:, None].float()


class WindowBias(Position):
    """A learned number for each head and each relative position within a window (section 3.2, equation 4).

    window  W of the table, which has (2 * W - 1)^2 rows
    used    W of the windows that the attention reads, at most `window`; the rows of larger offsets stay unused
    """

    def __init__(self, heads: int, window: int, used: int):
        super().__init__()
        self.window, self.used = window, used
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))

    def bias(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor:
        """[H, T, T] for windows of T = used * used places."""
        side = torch.arange(self.used, device=self.table.device)
        offset_WW = side[:, None] - side + self.window - 1  # from 0 to 2 * W - 2
        down, right = offset_WW[:, None, :, None], offset_WW[None, :, None, :]
        return self.table[(down * (2 * self.window - 1) + right).reshape(T, S)].permute(2, 0, 1)


class WindowAttention(nn.Module):
    """Self-attention within windows of a grid (W-MSA), or of a shifted grid (SW-MSA; section 3.2).

    grid    G. If W does not divide it, the grid is padded with zeros on the right and at the bottom, which the other
            places attend to
    window  W
    shift   places by which the grid moves up and to the left before it is cut into windows; 0: W-MSA
    """

    def __init__(self, attention: Attention, grid: int, window: int, shift: int):
        super().__init__()
        self.attention = attention
        self.grid, self.window, self.shift = grid, window, shift

    def forward(self, x_BND: Tensor) -> Tensor:
        """[B, N, D] -> [B, N, D]."""
        grid, more = self.grid, -self.grid % self.window
        x_BGGD = F.pad(x_BND.unflatten(1, (grid, grid)), (0, 0, 0, more, 0, more))
        bias = Bias()
        if self.shift:
            x_BGGD = x_BGGD.roll((-self.shift, -self.shift), (1, 2))
            mask = shifted_mask(grid + more, self.window, self.shift, x_BND.device).to(x_BND.dtype)
            bias = Bias(mask.repeat(len(x_BND), 1, 1, 1))
        y_BGGD = reverse(self.attention(partition(x_BGGD, self.window), bias=bias), self.window, grid + more)
        if self.shift:
            y_BGGD = y_BGGD.roll((self.shift, self.shift), (1, 2))
        return y_BGGD[:, :grid, :grid].flatten(1, 2)


class PatchMerging(nn.Module):
    """Merge each square of 2 x 2 places into one place of twice the width: concatenation, a norm and a linear map
    (section 3.1). A grid with an odd side is padded with zeros."""

    def __init__(self, dim: int, grid: int):
        super().__init__()
        self.grid = grid
        self.norm = nn.LayerNorm(4 * dim)  # eps is 1e-5, as published, even if the blocks have another one
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        """[B, G * G, D] -> [B, ceil(G / 2)^2, 2 * D]."""
        more = self.grid % 2
        x_BGGD = F.pad(x_BND.unflatten(1, (self.grid, self.grid)), (0, 0, 0, more, 0, more))
        four = [x_BGGD[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        merged = self.reduction(self.norm(torch.cat(four, -1).flatten(1, 2)))
        return merged.to(x_BND.dtype)  # products may be in bfloat16, but the sums of the blocks keep their format


class MergedPatches(nn.Module):
    """Outputs for each of the K patches that a state covers after their merging: a linear map of the state.

    weight  [C, K, D]     bias  [C * K]
    """

    def __init__(self, dim: int, patches: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, patches, dim))
        self.bias = nn.Parameter(torch.zeros(outputs * patches))

    def forward(self, x_BND: Tensor) -> Tensor:
        """[..., D] -> [..., K, C]."""
        outputs = F.linear(x_BND, self.weight.flatten(0, 1), self.bias)
        return outputs.unflatten(-1, self.weight.shape[:2]).transpose(-2, -1)


class Chain(nn.ModuleList):
    """Blocks that are applied one after the other. As a module list, it marks the repeated blocks of a model, which are
    recomputed, sharded, and trained by Muon."""

    def forward(self, x: Tensor) -> Tensor:
        for block in self:
            x = block(x)
        return x


def stage(blocks: Sequence[nn.Module], *, end: nn.Module | None = None) -> nn.Sequential:
    """A stage of `Stages`: blocks, and what follows them, such as pooling."""
    return nn.Sequential(OrderedDict(blocks=Chain(blocks), merge=end or nn.Identity()))


class Stages(nn.Module):
    """A sequence of stages, each with blocks and then a layer that merges places, and a norm at the end."""

    def __init__(self, stages: Sequence[nn.Module], norm: nn.Module):
        super().__init__()
        self.stages, self.norm = nn.Sequential(*stages), norm

    @property
    def blocks(self) -> nn.ModuleList:
        """The blocks of all stages, in order."""
        return nn.ModuleList(block for stage in self.stages for block in stage.get_submodule("blocks").children())

    def forward(self, x_BND: Tensor) -> Tensor:
        """[B, N, D] of the first stage -> [B, N', D'] of the last."""
        return self.norm(self.stages(x_BND))

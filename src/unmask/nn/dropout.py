"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.kernels.dropout import dropout


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016, section 3): in training, sets a whole row to zero with probability `rate`,
    and scales the others by 1 / (1 - rate). Each row must be one sequence."""

    def __init__(self, rate: float):
        super().__init__()
        self.draw = Dropout(rate)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        if not self.training or not self.draw.p:
            return x_BTD
        return x_BTD * self.draw(x_BTD.new_ones(len(x_BTD), 1, 1))


class LayerDrop(nn.Module):
    """LayerDrop (Fan et al. 2019, "Reducing Transformer Depth on Demand with Structured Dropout"): in training, skips a
    layer with probability `rate`, for all rows of a micro-batch. The layer is computed all the same, so that its
    weights have a gradient, of zero, on every process."""

    def __init__(self, rate: float):
        super().__init__()
        self.draw = Dropout(rate)

    def forward(self, before_BTD: Tensor, after_BTD: Tensor) -> Tensor:
        """The input of a layer [B, T, D], and its output -> one of the two."""
        if not self.training or not self.draw.p:
            return after_BTD
        return torch.where(self.draw(after_BTD.new_ones(1, 1, 1)) > 0, after_BTD, before_BTD)


class Dropout(nn.Dropout):
    """In training, sets each number to zero with probability `p`, and scales the others by 1 / (1 - p)."""

    def forward(self, x: Tensor) -> Tensor:
        """[...] -> [...], for any shape."""
        return dropout(x, self.p, self.training)

"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

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


class Dropout(nn.Dropout):
    """In training, sets each number to zero with probability `p`, and scales the others by 1 / (1 - p)."""

    def forward(self, x: Tensor) -> Tensor:
        """[...] -> [...], for any shape."""
        return dropout(x, self.p, self.training)

"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

from torch import Tensor, nn

from unmask.kernels.dropout import dropout


class Dropout(nn.Dropout):
    """In training, sets each number to zero with probability `p`, and scales the others by 1 / (1 - p)."""

    def forward(self, x: Tensor) -> Tensor:
        """[...] -> [...], for any shape."""
        return dropout(x, self.p, self.training)

"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

from torch import Tensor, nn

from unmask.kernels.dropout import dropout


class Dropout(nn.Dropout):
    """Sets a share `p` of the numbers to zero while training, and scales the others by 1 / (1 - p)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape, which stays."""
        return dropout(x, self.p, self.training)

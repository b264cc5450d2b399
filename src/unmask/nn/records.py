"""Convolutions over records of different lengths: what lies behind the end of a record changes nothing.

Shapes: R records, C channels of the input, D channels of the output, N places of the longest record.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.nn.dropout import Dropout


class RecordNorm(nn.BatchNorm1d):
    """Batch normalisation (Ioffe & Szegedy 2015) with the statistics of the real places alone."""

    def forward(self, x_RCN: Tensor, real_RN: Tensor | None = None) -> Tensor:
        """[R, C, N] -> [R, C, N]. `real_RN` is false behind the ends; None: all places are real."""
        if not self.training or real_RN is None:
            return self._normalised(x_RCN)
        x_RNC = x_RCN.transpose(1, 2)
        x_KC = self._normalised(x_RNC[real_RN])
        return torch.zeros_like(x_RNC).index_put((real_RN,), x_KC.to(x_RNC.dtype)).transpose(1, 2)

    def _normalised(self, x: Tensor) -> Tensor:
        """[R, C, N] or [K, C]. One place has no variance: the running statistics normalise it."""
        if self.training and x.numel() == self.num_features:
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(x, mean, var, self.weight, self.bias, training=False, eps=self.eps)
        return super().forward(x)


class RecordConvolution(nn.Conv1d):
    """A convolution with ceil(N / stride) outputs, padded as Keras does with "same": an even kernel has its larger part
    after the output."""

    def __init__(self, channels: int, dim: int, kernel: int, stride: int = 1) -> None:
        super().__init__(channels, dim, kernel, stride)

    def forward(self, x_RCN: Tensor) -> Tensor:
        """[R, C, N], zero behind the end of each record -> [R, D, N / stride]. `stride` must divide N."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        before = max(kernel - stride, 0) // 2
        return super().forward(F.pad(x_RCN, (before, kernel - stride - before)))


class RecordLayer(nn.Module):
    """dropout(relu(norm(x))), zero behind the end of each record."""

    def __init__(self, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.dropout = RecordNorm(channels), Dropout(dropout)

    def forward(self, x_RCN: Tensor, real_RN: Tensor | None) -> Tensor:
        """[R, C, N] -> [R, C, N]."""
        x_RCN = self.dropout(self.norm(x_RCN, real_RN).relu_())  # normalisation does not need its output again
        return x_RCN if real_RN is None else x_RCN * real_RN[:, None].to(x_RCN.dtype)


class RecordBlock(nn.Module):
    """shortcut(x) + convolution(layer(convolution(layer(x)))): a residual block with activations before the
    convolutions (He et al. 2016b). The shortcut takes the maximum of `stride` places, and has zeros in new channels.

    first  without the first layer, as the input has been through one
    """

    def __init__(
        self, channels: int, dim: int, kernel: int, *, stride: int = 1, dropout: float = 0.0, first: bool = False
    ) -> None:
        super().__init__()
        self.stride, self.more = stride, dim - channels
        self.before = None if first else RecordLayer(channels)
        self.down = RecordConvolution(channels, dim, kernel, stride)
        self.between = RecordLayer(dim, dropout)
        self.convolution = RecordConvolution(dim, dim, kernel)

    def forward(self, x_RCN: Tensor, real_RN: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """[R, C, N], zero behind the end of each record -> [R, D, N / stride], likewise, and which places are real."""
        y_RCN = x_RCN if self.before is None else self.before(x_RCN, real_RN)
        after_RN = None if real_RN is None else real_RN[:, :: self.stride]
        y_RDN = self.convolution(self.between(self.down(y_RCN), after_RN))
        if after_RN is not None:
            y_RDN = y_RDN * after_RN[:, None].to(y_RDN.dtype)
        shortcut_RCN = F.max_pool1d(x_RCN, self.stride) if self.stride > 1 else x_RCN
        return y_RDN + F.pad(shortcut_RCN, (0, 0, 0, self.more)), after_RN

"""Convolutions with a stride over long sequences, such as the samples of recordings, as matrix products. The plain form
is `torch.nn.functional.conv1d`.

Shapes: L places, C features of a place, K width of the kernel, O outputs, N places of the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unmask.kernels.formats import product_dtype

NARROW = 32
"""Products with fewer inputs than this are slower than the copy that makes one of them (docs/log.md)."""


def strided(x_LC: Tensor, weight_OKC: Tensor, bias_O: Tensor | None, stride: int) -> Tensor:
    """y_n = sum over k of W_k x_{n * stride + k}, plus the bias: [L, C] -> [N, O], N = floor((L - K) / stride) + 1.

    weight_OKC  [O, K * C]; column (k * C + j) reads feature j of place k of the window

    `stride` places that follow each other are one row of a matrix, without a copy. So a kernel of 3 with a stride of 2
    is two products, one of 2 is a single product, and no output is transposed.
    """
    dtype = product_dtype(x_LC)
    bias_O = None if bias_O is None else bias_O.to(dtype)
    y_NO: Tensor = _Strided.apply(x_LC.to(dtype).contiguous(), weight_OKC.to(dtype), bias_O, stride)
    return y_NO


class _Strided(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_LC: Tensor, weight_OKC: Tensor, bias_O: Tensor | None, stride: int) -> Tensor:
        kernel, places = _shape(x_LC, weight_OKC, stride)
        y_NO = x_LC.new_empty(places, len(weight_OKC))
        copied = x_LC.shape[1] * stride < NARROW
        for begin, width in [(0, kernel)] if copied else _parts(kernel, stride):
            x_NW, part_WO = _window(x_LC, begin, width, places, stride), _columns(weight_OKC, x_LC, begin, width).t()
            if begin:
                y_NO.addmm_(x_NW, part_WO)
            elif bias_O is None:
                torch.mm(x_NW, part_WO, out=y_NO)
            else:
                torch.addmm(bias_O, x_NW, part_WO, out=y_NO)
        ctx.save_for_backward(x_LC, weight_OKC)
        ctx.stride = stride
        return y_NO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_LC, weight_OKC = ctx.saved_tensors
        kernel, places = _shape(x_LC, weight_OKC, ctx.stride)
        wanted, dy_NO = ctx.needs_input_grad, dy_NO.contiguous()
        dx_LC = torch.zeros_like(x_LC) if wanted[0] else None
        dw_OKC = torch.empty_like(weight_OKC) if wanted[1] else None
        for begin, width in _parts(kernel, ctx.stride):
            if dx_LC is not None:  # the windows of a part do not overlap
                dx_NW = _window(dx_LC, begin, width, places, ctx.stride)
                dx_NW.addmm_(dy_NO, _columns(weight_OKC, x_LC, begin, width))
            if dw_OKC is not None:
                part_OW = dy_NO.t() @ _window(x_LC, begin, width, places, ctx.stride)
                _columns(dw_OKC, x_LC, begin, width).copy_(part_OW)
        return dx_LC, dw_OKC, dy_NO.sum(0) if wanted[2] else None, None


def _shape(x_LC: Tensor, weight_OKC: Tensor, stride: int) -> tuple[int, int]:
    """K and N."""
    kernel = weight_OKC.shape[1] // x_LC.shape[1]
    return kernel, max(0, (len(x_LC) - kernel) // stride + 1)


def _parts(kernel: int, stride: int) -> Iterator[tuple[int, int]]:
    """(first place, number of places) of the parts of a kernel that are at most one stride wide."""
    return ((begin, min(stride, kernel - begin)) for begin in range(0, kernel, stride))


def _window(x_LC: Tensor, begin: int, width: int, places: int, stride: int) -> Tensor:
    """[N, width * C]: the places begin ... begin + width - 1 of each window; it shares the memory of x."""
    C = x_LC.shape[1]
    return x_LC.as_strided((places, width * C), (stride * C, 1), x_LC.storage_offset() + begin * C)


def _columns(weight_OKC: Tensor, x_LC: Tensor, begin: int, width: int) -> Tensor:
    C = x_LC.shape[1]
    return weight_OKC[:, begin * C : (begin + width) * C]

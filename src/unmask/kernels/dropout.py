"""Dropout, drawn several times as fast on a CPU. Its plain form is `torch.nn.functional.dropout`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

VALUES = 1 << 8
"""Values of the 8 random bits that decide on a number."""


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """`torch.nn.functional.dropout`, drawn from the same generator but with other numbers on a CPU.

    There PyTorch draws a random number of 64 bits for each element, one after the other, which takes longer than the
    matrix product before it. Here eight elements share one.
    """
    if not training or x.device.type != "cpu" or not 0 < p < 1 or torch.compiler.is_compiling():
        return F.dropout(x, p, training)
    return x * mask(x.shape, p, x.dtype)


def mask(shape: Sequence[int], p: float, dtype: torch.dtype) -> Tensor:
    """Zeros with probability p, else 1 / (1 - p), on the CPU.

    A byte decides on a number, so that p is met to 1/256 in one mask; which of the two neighbouring 256ths it is, a
    further number decides, so that the probability is p.
    """
    size = torch.Size(shape).numel()
    words = torch.empty(-(-size // 8) + 1, dtype=torch.int64)
    words.random_(-(2**63), None, generator=torch.default_generator)
    drawn = words.view(torch.int8)[:size].view(*shape)  # evenly from -128 to 127
    chance = (int(words[-1]) & 0xFFFFFFFF) / 2**32
    dropped = min(int(p * VALUES + chance), VALUES - 1)  # values that stand for zero: p * VALUES of them on average
    kept = torch.ge(drawn, dropped - VALUES // 2, out=torch.empty(*shape, dtype=dtype))
    return kept.mul_(1 / (1 - p))

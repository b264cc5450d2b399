"""μ-law companding: samples as a few levels, finer where they are quiet (ITU-T G.711; van den Oord et al. 2016, section
2.2)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEVELS = 256


def compress(x: Tensor, mu: float = LEVELS - 1) -> Tensor:
    """f(x) = sign(x) ln(1 + μ |x|) / ln(1 + μ), for samples from -1 to 1."""
    return x.sign() * torch.log1p(mu * x.abs()) / math.log1p(mu)


def expand(y: Tensor, mu: float = LEVELS - 1) -> Tensor:
    """The inverse of `compress`: sign(y) ((1 + μ)^|y| - 1) / μ."""
    return y.sign() * torch.expm1(y.abs() * math.log1p(mu)) / mu


def encode(x: Tensor, levels: int = LEVELS) -> Tensor:
    """Samples -> the nearest of the levels 0 … `levels` - 1, int64, evenly spread over f(x), with μ = `levels` - 1.
    Samples beyond -1 and 1 are clipped."""
    return ((compress(x.clamp(-1, 1), levels - 1) + 1) / 2 * (levels - 1)).round().long()


def decode(codes: Tensor, levels: int = LEVELS) -> Tensor:
    """Levels -> samples from -1 to 1, float32."""
    return expand(2 * codes.float() / (levels - 1) - 1, levels - 1)

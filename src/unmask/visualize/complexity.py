"""Complexity: the cost of self-attention, recurrent and convolutional layers, by formula and measured here."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.nn import Attention, CentredConvolution, Recurrent
from unmask.visualize.numbers import Data

KERNEL = 3
WINDOW = 64  # tokens of the neighbourhood of restricted self-attention
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
ENOUGH = 0.5  # seconds of a forward pass, beyond which longer sequences are not measured


def formulas(n: int, k: int = KERNEL, r: int = WINDOW) -> dict[str, Data]:
    """Operations of a layer, numbers that it keeps for the gradient, sequential steps, and the longest path between two
    positions: the rows of table 1 of Vaswani et al. 2017, which has no memory, with numbers for sequences of n tokens,
    a kernel of k and a neighbourhood of r tokens."""
    return {
        "self-attention": _row("n² · d", "n² + n · d", "1", "1", 1, 1),
        "restricted self-attention": _row("r · n · d", "r · n + n · d", "1", "n / r", 1, max(1, math.ceil(n / r))),
        "recurrent": _row("n · d²", "n · d", "n", "n", n, n - 1 or 1),
        "convolution": _row(
            "k · n · d²", "n · d", "1", "n / k, or log_k n where dilated", 1, max(1, math.ceil((n - 1) / (k // 2)))
        ),
    }


def _row(operations: str, memory: str, sequential: str, path: str, steps: int, distance: int) -> Data:
    named = {"operations": operations, "memory": memory, "sequential": sequential, "path": path}
    return {**named, "steps": steps, "distance": distance}


@torch.no_grad()
def complexity(lengths: Sequence[int] = LENGTHS, dim: int = 128, *, repeats: int = 3) -> Data:
    """Seconds of the forward pass of one layer over one sequence of each length, the median of `repeats`.

    A kind of layer that took more than ENOUGH seconds is not measured at longer lengths: its seconds are None there.
    Raises UnmaskError for lengths that do not increase or are not from 1 to 8,192, and for an invalid width or number
    of repeats.
    """
    if not lengths or list(lengths) != sorted({*lengths}) or lengths[0] < 1 or lengths[-1] > 8_192:
        raise UnmaskError("Give increasing lengths from 1 to 8,192.")
    if dim % 8 or not 8 <= dim <= 1_024 or repeats < 1:
        raise UnmaskError(f"The width must be a multiple of 8 up to 1,024, not {dim}, and repeats at least 1.")
    layers = _layers(dim)
    generator = torch.Generator().manual_seed(0)
    seconds: dict[str, list[float | None]] = {name: [] for name in layers}
    for n in lengths:
        x_1ND = torch.randn(1, n, dim, generator=generator)
        for name, layer in layers.items():
            last = seconds[name][-1] if seconds[name] else 0.0
            seconds[name].append(None if last is None or last > ENOUGH else _median(layer, x_1ND, repeats))
    return {
        "view": "complexity",
        "lengths": list(lengths),
        "dim": dim,
        "threads": torch.get_num_threads(),
        "seconds": seconds,
        "formulas": formulas(lengths[-1]),
    }


def _layers(dim: int) -> dict[str, Callable[[Tensor], object]]:
    parts: dict[str, nn.Module] = {
        "self-attention": Attention(dim, dim // 8 if dim < 64 else dim // 64).eval(),
        "recurrent": Recurrent("lstm", dim, dim).eval(),
        "convolution": CentredConvolution(dim, dim, KERNEL).eval(),
    }
    return dict(parts)


def _median(layer: Callable[[Tensor], object], x_1ND: Tensor, repeats: int) -> float:
    layer(x_1ND)  # the first call allocates memory
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        layer(x_1ND)
        times.append(time.perf_counter() - began)
    return statistics.median(times)

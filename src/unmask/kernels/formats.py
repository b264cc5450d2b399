"""Number formats of products, with and without autocast."""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.kernels.processor import computes_bf16

Where = torch.device | str | Tensor
"""A device, or a tensor on it."""


def autocast(device: Where, dtype: torch.dtype | None) -> torch.autocast:
    """A context in which products are computed in a number format; None: in that of their factors."""
    return torch.autocast(_kind(device), dtype or torch.bfloat16, enabled=dtype is not None)


def scaler(device: Where, dtype: torch.dtype | None) -> torch.amp.GradScaler:
    """Loss scaling (Micikevicius et al. 2018, "Mixed Precision Training"), enabled where products are in float16: its
    range is smaller than that of float32, and small gradients would become 0."""
    return torch.amp.GradScaler(_kind(device), enabled=dtype is torch.float16)


def exactly(device: Where) -> torch.autocast:
    """A context without autocast: every operation is computed in the format of its inputs."""
    return torch.autocast(_kind(device), enabled=False)


def autocast_dtype(device: Where) -> torch.dtype | None:
    """The format of products under the current autocast; None without autocast."""
    kind = _kind(device)
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def product_dtype(x: Tensor) -> torch.dtype:
    """The format of products with x as a factor."""
    return autocast_dtype(x) or x.dtype


def cast(x: Tensor) -> Tensor:
    """x in the format of products with it, converted once for all layers that read it."""
    return x.to(product_dtype(x))


def fastest(x: Tensor) -> Tensor:
    """x in the format in which its device multiplies fastest, for products that need little precision."""
    return x.bfloat16() if computes_bf16(x.device) else x


def exact(x: Tensor) -> Tensor:
    """x in float32, for sums over many places; float64 stays."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def is_full(x: Tensor) -> bool:
    """Whether x is in float32."""
    return x.dtype is torch.float32


def _kind(device: Where) -> str:
    return device.device.type if isinstance(device, Tensor) else torch.device(device).type

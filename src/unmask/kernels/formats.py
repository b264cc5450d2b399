"""Number formats: in which one products are computed, under autocast or not."""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.kernels.processor import computes_bf16

Where = torch.device | str | Tensor
"""A device, or a tensor that is on it."""


def autocast(device: Where, bf16: bool) -> torch.autocast:
    """The context in which products are computed in bfloat16, or in the format of their factors."""
    return torch.autocast(_kind(device), torch.bfloat16, enabled=bf16)


def exactly(device: Where) -> torch.autocast:
    """The context in which every operation is computed in the format of what it is given: no autocast."""
    return torch.autocast(_kind(device), enabled=False)


def autocast_dtype(device: Where) -> torch.dtype | None:
    """The format of products under the autocast of this context; None where there is none."""
    kind = _kind(device)
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def product_dtype(x: Tensor) -> torch.dtype:
    """The format of the products that x goes into."""
    return autocast_dtype(x) or x.dtype


def cast(x: Tensor) -> Tensor:
    """x in the format of the products that it goes into: once, where several layers read it."""
    return x.to(product_dtype(x))


def fastest(x: Tensor) -> Tensor:
    """x in the format in which its device multiplies fastest; for products that need few digits."""
    return x.bfloat16() if computes_bf16(x.device) else x


def is_full(x: Tensor) -> bool:
    """Whether its numbers are float32."""
    return x.dtype is torch.float32


def _kind(device: Where) -> str:
    return device.device.type if isinstance(device, Tensor) else torch.device(device).type

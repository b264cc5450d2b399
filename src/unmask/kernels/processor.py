"""In which numbers a device multiplies, and what it has kernels for, as PyTorch knows it.

`settle` decides for training, for answers and for measurements alike whether they are computed in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

Precision = Literal["auto", "fp32", "bf16"]
"""What a person asks for; "auto" is the fastest on the device."""

OF_BF16 = ("amx_bf16", "avx512_bf16")
"""Instructions that multiply in bfloat16, by the names that PyTorch has for them."""


@dataclass(frozen=True)
class Settled:
    """In which numbers a model multiplies.

    note  a sentence for the person who asked; empty where it is computed as they asked, by the device itself
    """

    precision: Literal["fp32", "bf16"]
    note: str = ""


def settle(precision: Precision, device: torch.device | str = "cpu") -> Settled:
    """What is computed on a device where `precision` is asked for."""
    kind = torch.device(device).type
    if precision == "auto" and (chosen := fastest(device)) == "bf16":
        return Settled(chosen, f"Computed in bf16, which is the fastest on this {kind}; fp32 is more exact.")
    if precision == "auto":
        return Settled("fp32", f"Computed in fp32: this {kind} is not known to multiply in bf16 by itself.")
    if precision == "bf16" and imitates_bf16(device):
        return Settled("bf16", f"This {kind} imitates bf16, which is no faster than fp32; auto is the fastest here.")
    return Settled(precision)


def fastest(device: torch.device | str) -> Literal["fp32", "bf16"]:
    """What "auto" is on a device."""
    return "bf16" if computes_bf16(device) else "fp32"


@cache
def abilities() -> Mapping[str, Any]:
    """What the processor can do, by the names that PyTorch has for it; empty where it does not say. Instructions for
    bfloat16 that the library of products (oneDNN) cannot use, or was told not to use, are left out."""
    ask: Callable[[], dict[str, Any]] | None = getattr(torch.cpu, "get_capabilities", None)
    found = {} if ask is None else ask()
    return {name: value for name, value in found.items() if name not in OF_BF16 or library_has_bf16()}


def library_has_bf16() -> bool:
    """Whether the library of products on a CPU has any in bfloat16, by the processor's own instructions or not."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_matrix_unit() -> bool:
    """Whether it multiplies blocks of bfloat16 at once (AMX)."""
    return bool(abilities().get("amx_bf16"))


def computes_bf16(device: torch.device | str) -> bool:
    """Whether a device is known to multiply in bfloat16 by itself."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return kind == "cpu" and any(abilities().get(name) for name in OF_BF16)


def imitates_bf16(device: torch.device | str = "cpu") -> bool:
    """Whether a device is known to have no products in bfloat16 of its own, or no library with any. Of some it is not
    known: neither this nor `computes_bf16` holds for them."""
    kind = torch.device(device).type
    if kind == "cpu":
        return not library_has_bf16() or (abilities().get("architecture") == "x86_64" and not computes_bf16(device))
    return kind == "cuda" and not computes_bf16(device)

"""The precision of products on a device, and the abilities of the processor, as PyTorch reports them.

`settle` decides whether training, inference and measurements are computed in bfloat16.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from unmask.errors import UnmaskError

Precision = Literal["auto", "fp32", "bf16", "fp16"]
"""The requested precision; "auto" is the faster one of fp32 and bf16 on the device."""

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precision -> the number format of products, where it is not that of the weights."""

OF_BF16 = ("amx_bf16", "avx512_bf16")
"""Instructions that multiply in bfloat16, by their names in PyTorch."""


@dataclass(frozen=True)
class Settled:
    """The precision in which a model multiplies.

    note  a sentence for the user; empty if the precision is the requested one and the device supports it
    """

    precision: Literal["fp32", "bf16", "fp16"]
    note: str = ""

    @property
    def dtype(self) -> torch.dtype | None:
        """The number format of products; None: that of the weights."""
        return FORMATS.get(self.precision)


def settle(precision: Precision, device: torch.device | str = "cpu") -> Settled:
    """The precision to use on a device for a requested `precision`.

    Raises UnmaskError for fp16 on a CPU: its products there are many times slower than in fp32.
    """
    kind = torch.device(device).type
    if precision == "fp16" and kind == "cpu":
        raise UnmaskError("fp16 is for GPUs, as a CPU is many times slower in it than in fp32: leave --precision out.")
    if precision == "auto" and (chosen := fastest(device)) == "bf16":
        return Settled(chosen, f"Computed in bf16, which is the fastest on this {kind}; fp32 is more exact.")
    if precision == "auto":
        return Settled("fp32", f"Computed in fp32: this {kind} is not known to multiply in bf16 by itself.")
    if precision == "bf16" and imitates_bf16(device):
        return Settled("bf16", f"This {kind} imitates bf16, which is no faster than fp32; auto is the fastest here.")
    return Settled(precision)


def fastest(device: torch.device | str) -> Literal["fp32", "bf16"]:
    """The precision that "auto" selects on a device."""
    return "bf16" if computes_bf16(device) else "fp32"


@cache
def abilities() -> Mapping[str, Any]:
    """The abilities of the processor, by their names in PyTorch; empty if PyTorch does not report them. Instructions
    for bfloat16 are left out if the library of products (oneDNN) cannot use them, or is configured not to."""
    ask: Callable[[], dict[str, Any]] | None = getattr(torch.cpu, "get_capabilities", None)
    found = {} if ask is None else ask()
    return {name: value for name, value in found.items() if name not in OF_BF16 or library_has_bf16()}


@cache
def identity() -> str:
    """The name of the processor, as the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


def library_has_bf16() -> bool:
    """Whether the library of products on a CPU supports bfloat16, natively or by emulation."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_matrix_unit() -> bool:
    """Whether the processor multiplies blocks of bfloat16 numbers at once (AMX)."""
    return bool(abilities().get("amx_bf16"))


def computes_bf16(device: torch.device | str) -> bool:
    """Whether a device is known to multiply in bfloat16 natively."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return kind == "cpu" and any(abilities().get(name) for name in OF_BF16)


def imitates_bf16(device: torch.device | str = "cpu") -> bool:
    """Whether a device is known to have no native products in bfloat16, or no library that supports them. For some
    devices this is unknown: both this and `computes_bf16` are then False."""
    kind = torch.device(device).type
    if kind == "cpu":
        return not library_has_bf16() or (abilities().get("architecture") == "x86_64" and not computes_bf16(device))
    return kind == "cuda" and not computes_bf16(device)

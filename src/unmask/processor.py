"""What this processor multiplies in by itself, and what a device has kernels for, as PyTorch knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch


@cache
def abilities() -> Mapping[str, Any]:
    """By the names that PyTorch has for them; empty where it does not say."""
    ask: Callable[[], dict[str, Any]] | None = getattr(torch.cpu, "get_capabilities", None)
    return {} if ask is None else ask()


def has_matrix_unit() -> bool:
    """Whether it multiplies blocks of bfloat16 at once (AMX)."""
    return bool(abilities().get("amx_bf16"))


def multiplies_bf16() -> bool:
    """Whether it is known to multiply in bfloat16, with a matrix unit or without."""
    return has_matrix_unit() or bool(abilities().get("avx512_bf16"))


def computes_bf16(device: torch.device) -> bool:
    """Whether a device is known to multiply in bfloat16 by itself."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and multiplies_bf16()


def imitates_bf16() -> bool:
    """Whether its products in bfloat16 are made of those in float32, for it has none of its own."""
    return abilities().get("architecture") == "x86_64" and not multiplies_bf16()


def attends_by_runs(device: torch.device | str) -> bool:
    """Whether a device has the kernel of attention for sequences that lie one after the other (`nn.runs`): NVIDIA's
    from Ampere on, unless PyTorch was told to leave it (`torch.backends.cuda.enable_flash_sdp`)."""
    device = torch.device(device)
    if device.type != "cuda" or torch.version.cuda is None:
        return False
    known = torch.backends.cuda.is_flash_attention_available() and torch.backends.cuda.flash_sdp_enabled()
    return known and torch.cuda.get_device_capability(device) >= (8, 0)

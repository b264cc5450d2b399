"""Devices: the choice of a device, and the differences between devices."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError

Part = TypeVar("Part", bound=nn.Module)
DEVICES = ("cpu", "cuda", "mps")
FUSED_UPDATE = ("cpu", "cuda", "mps", "xpu")
"""Devices for which PyTorch has a kernel that updates all parameters at once."""


def choose(name: str, local_rank: int = 0) -> torch.device:
    """The device to train on. "auto" is the CUDA device of this process if there is one, else the CPU.

    local_rank  number of this process on this machine; it is the index of a CUDA device that is given without one

    Raises UnmaskError if the device does not exist.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UnmaskError(f"There is no device '{name}'; use auto, cpu, cuda, cuda:0 or mps.") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UnmaskError("There is no CUDA device here; use --device cpu.")
        index = local_rank if device.index is None else device.index
        if index >= torch.cuda.device_count():
            raise UnmaskError(f"There is no CUDA device {index}: this machine has {torch.cuda.device_count()}.")
        device = torch.device("cuda", index)
        torch.cuda.set_device(device)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UnmaskError("There is no MPS device here; use --device cpu.")
    return device


def placed(part: Part, device: torch.device | str) -> Part:
    """Move a model to a device. Raises UnmaskError if the device does not exist or cannot be used."""
    try:
        return part.to(device)
    except (RuntimeError, AssertionError, ValueError) as error:
        if str(device).partition(":")[0] not in DEVICES:
            raise UnmaskError(f"There is no device '{device}'; use cpu, cuda, cuda:1 or mps.") from None
        reason = str(error).split("\n", 1)[0].rstrip(".")
        raise UnmaskError(f"The device {device} cannot be used: {reason}. Leave --device out for the CPU.") from None


def backends(device: torch.device) -> str:
    """The communication backends between processes that compute on such a device: gloo for the CPU, NCCL for CUDA."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def pins(device: torch.device | str) -> bool:
    """Whether copies to the device should start from pinned memory: only these overlap with the computation of a CUDA
    device."""
    return torch.device(device).type == "cuda"


def updates_at_once(parameters: Iterable[Tensor]) -> bool:
    """Whether one kernel can update all of these parameters."""
    return all(p.device.type in FUSED_UPDATE for p in parameters)


def updates_rows(device: torch.device) -> bool:
    """Whether it is faster to update only those rows of a table that a batch reads (`train.rows`)."""
    return device.type == "cpu"


def counts_on_cpu(parameters: Iterable[Tensor]) -> bool:
    """Whether the fused update of these parameters counts its steps on the CPU instead of their device."""
    return all(p.device.type == "cpu" for p in parameters)


def reading_waits(device: torch.device) -> bool:
    """Whether reading a value waits until the device has finished its queued work."""
    return device.type != "cpu"


def peak_memory(device: torch.device, reset: bool = False) -> int:
    """Peak memory in bytes so far: of the device, or of this process on a CPU; 0 if unknown.

    reset  whether to reset the peak to the memory in use
    """
    if device.type == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():
        if reset:
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")
        lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        if lines:
            return int(lines[0].split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def random_state(device: torch.device) -> dict[str, Tensor]:
    """States of torch's global generators, which dropout uses: "cpu", and "cuda" or "mps" for such a device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def restore_random_state(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the states of the global generators that `random_state` returned."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


def has_gpu() -> bool:
    """Whether PyTorch can compute on a CUDA device here."""
    return torch.cuda.is_available()


def wait() -> None:
    """Wait until the CUDA device of this process has finished its queued work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def name_of(device: torch.device | str) -> str:
    """The product name of a CUDA device; "cpu" for any other device."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else "cpu"

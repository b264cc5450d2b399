"""Distributed training: ranks, sums over ranks, and gradients that are averaged (DDP) or sharded (FSDP2)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from unmask.errors import UnmaskError
from unmask.kernels import devices


def init(device: str = "auto") -> torch.device:
    """Join the process group if `torchrun` started this process, and return the device of this process.

    `auto` is the CUDA device of this process's local rank, else the CPU. Tensors on the CPU use gloo, those on a GPU
    NCCL. A second call has no effect. Raises UnmaskError if WORLD_SIZE is set without RANK.
    """
    chosen = devices.choose(device, int(os.environ.get("LOCAL_RANK", "0")))
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if "RANK" not in os.environ:
            raise UnmaskError("WORLD_SIZE is set but RANK is not; start several processes with torchrun.")
        _join(devices.backends(chosen))
    return chosen


def _join(backend: str) -> None:
    """Join the other processes, with a prefix for this restart if torchrun keeps one store over all restarts, which
    still holds the addresses of processes that died.

    Raises UnmaskError for several nodes that restart with such a store: each node counts its own restarts.
    """
    start = ""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        if restarts() and int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1:
            raise UnmaskError(
                "torchrun cannot restart a run on several nodes with the store that they share: set the environment "
                "variable TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on every node, or omit --max-restarts."
            )
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store, number, count = next(rendezvous("env://"))
    dist.init_process_group(backend, store=dist.PrefixStore(f"start-{start}", store), rank=number, world_size=count)


def finish() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def restarts() -> bool:
    """Whether torchrun restarts this command, unchanged, when it dies (`--max-restarts`)."""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def ranks() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def ranks_here() -> int:
    """The number of processes of this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_main() -> bool:
    """Whether this is the main process, which writes files and prints."""
    return rank() == 0


@contextmanager
def connected() -> Iterator[None]:
    """A context that raises UnmaskError, in one sentence, when another process of the run is lost."""
    try:
        yield
    except RuntimeError as error:
        if ranks() == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        raise UnmaskError(
            f"Process {rank()} lost its connection to the others, because one of them ended or cannot be reached. "
            "torchrun restarts a run from its last checkpoint with --max-restarts and --resume."
        ) from error


def barrier() -> None:
    """Wait until every process has called this function."""
    if dist.is_initialized():
        dist.barrier()


def sum_over_ranks(x: Tensor) -> Tensor:
    """`x` summed over all processes, in place."""
    if ranks() > 1:
        dist.all_reduce(x)
    return x


def from_main(value: float) -> float:
    """The value of the main process, in every process."""
    if ranks() == 1:
        return value
    x = torch.tensor([value], dtype=torch.float64)
    dist.broadcast(x, 0)
    return x.item()


def gather(x: Tensor) -> list[Tensor]:
    """The one-dimensional CPU tensor of every process, by rank; lengths may differ."""
    if ranks() == 1:
        return [x]
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(ranks())]
    dist.all_gather(lengths, torch.tensor([x.numel()]))
    padded = x.new_zeros(int(max(lengths)))
    padded[: x.numel()] = x
    parts = [torch.zeros_like(padded) for _ in range(ranks())]
    dist.all_gather(parts, padded)
    return [part[: int(n)] for part, n in zip(parts, lengths, strict=True)]


def gather_json(value: Any) -> list[Any]:
    """The JSON value of every process, by rank."""
    if ranks() == 1:
        return [value]
    text = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
    return [json.loads(bytes(part.tolist())) for part in gather(text)]


def wrap(module: nn.Module, sharding: str = "none") -> nn.Module:
    """`module` with its gradients averaged over the processes after backward.

    "none"  every process holds the whole model (DDP)
    "full"  parameters, gradients and optimizer state are split over the processes (FSDP2), block by block
    """
    if ranks() == 1:
        return module
    if sharding == "none":
        # A term without a target leaves its head out of the graph, and DDP must not wait for its gradients. With
        # find_unused_parameters, DDP warns if the first step has no unused parameter, so this adds one.
        device = next(module.parameters()).device  # DDP requires parameters on one type of device
        module.register_parameter("idle", nn.Parameter(torch.zeros((), device=device)))
        return nn.parallel.DistributedDataParallel(module, find_unused_parameters=True, gradient_as_bucket_view=True)
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    for block in blocks(module):
        fully_shard(block)
    fully_shard(module)
    register_fsdp_forward_method(module, "in_full")
    return module


def blocks(module: nn.Module) -> list[nn.Module]:
    """The repeated blocks of a model: the members of its outermost module lists, each once."""
    found: dict[int, nn.Module] = {}

    def visit(part: nn.Module) -> None:
        for child in part.children():
            if isinstance(part, nn.ModuleList):
                found[id(child)] = child
            else:
                visit(child)

    visit(module)
    return list(found.values())


def synchronised(module: nn.Module, last: bool) -> AbstractContextManager:
    """A context for one micro-batch: gradients are synchronised only after the last one."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        return nullcontext() if last else module.no_sync()
    if hasattr(module, "set_requires_gradient_sync"):
        module.set_requires_gradient_sync(last)  # type: ignore[operator]  # of FSDP
    return nullcontext()


@contextmanager
def whole(module: nn.Module) -> Iterator[None]:
    """A context in which every process sees the parameters of a sharded module in full; no effect on other modules.

    Enter it inside a forward method of `module`, because FSDP initialises itself there.
    """
    sharded: list[Any] = [m for m in module.modules() if hasattr(m, "unshard") and hasattr(m, "reshard")]
    for part in sharded:
        part.set_reshard_after_forward(False)
        part.unshard()
    try:
        yield
    finally:
        for part in sharded:
            part.reshard()
            part.set_reshard_after_forward(part is not module)


def at_rest(module: nn.Module) -> None:
    """Shard a module again if a forward pass left it gathered; no effect on other modules.

    Only then are its parameters those of the optimizer. The next forward overwrites attributes of gathered parameters,
    such as requires_grad.
    """
    for part in module.modules():
        if hasattr(part, "reshard"):
            part.reshard()  # type: ignore[operator]  # of FSDP


def whole_tensor(x: Tensor) -> Tensor:
    """A sharded tensor in full, on every process; other tensors unchanged."""
    from torch.distributed.tensor import DTensor

    return x.full_tensor() if isinstance(x, DTensor) else x


def like(whole: Tensor, model: Tensor) -> Tensor:
    """`whole` on the device of `model`, and sharded in the same way."""
    whole = whole.to(model.device)
    if not hasattr(model, "device_mesh"):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, model.device_mesh, model.placements)  # type: ignore[attr-defined]  # a DTensor

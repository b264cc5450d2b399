"""One optimizer step: computes the losses of micro-batches, adds them up, and updates the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.errors import UnmaskError
from unmask.kernels import devices, formats, varlen
from unmask.kernels.processor import Precision, settle
from unmask.train import distributed
from unmask.train.metrics import Meter
from unmask.train.optim import Optimizer, Scale, gradient_norm, keeps, set_rate, update
from unmask.types import Batch, Loss

T = TypeVar("T")


class Data(Protocol):
    """The data of a training: the micro-batches of this rank and the next position, for each step from any position.

    May also have `phases()`, for steps of different cost (`calibrate.phases_of`), and `gathered(position)`, which
    returns the position of all ranks, where each has its own.
    """

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[list[Batch], dict[str, Any]]]: ...


class Minimised(Protocol):
    """The objective of a training: weights of its loss terms, and the loss of a batch."""

    @property
    def weights(self) -> Mapping[str, float]: ...

    def loss(self, model: Any, batch: Batch) -> dict[str, Loss]: ...


class Losses(nn.Module):
    """The model and its objective as one module, so that the heads run inside the forward that DDP and FSDP wrap."""

    def __init__(self, model: nn.Module, objective: Minimised) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch, scales: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar to minimise, and detached sums by name: `loss/<term>` and `<term>/<metric>`."""
        total = torch.zeros((), device=batch.tokens.device)
        counts = batch.counts
        sums: dict[str, Tensor] = {}
        for name, loss in self.objective.loss(self.model, batch).items():
            if name not in scales:
                raise UnmaskError(f"The objective has no weight for its loss term '{name}'; add one to `weights`.")
            if loss.count != counts.get(name, 0):
                raise UnmaskError(
                    f"The loss '{name}' sums over {loss.count} targets, but its batch has {counts.get(name, 0)}."
                )
            total = total + loss.sum.float() * scales[name]
            sums[f"loss/{name}"] = loss.sum.detach()
            sums.update({f"{name}/{metric}": x.detach() for metric, x in loss.metrics.items()})
        if not total.requires_grad:  # no target in this micro-batch; the other ranks still wait for its gradients
            total = total + 0.0 * next(p for p in self.model.parameters() if p.requires_grad).sum()
        return total, sums

    def in_full(self, function: Callable[[], T]) -> T:
        """Call `function` while every rank sees all parameters in full, and return its result."""
        with distributed.whole(self):
            return function()


class Engine:
    """A model under training: forward in the given precision, backward, clip, update. Weights stay in float32."""

    def __init__(
        self,
        model: nn.Module,
        objective: Minimised,
        optimizer: Optimizer,
        *,
        scale: Scale | None = None,
        device: torch.device,
        precision: Precision = "auto",
        sharding: str = "none",
        compile: bool = False,
        recompute: bool = False,
    ) -> None:
        if optimizer.algorithm in ("adafactor", "muon") and sharding != "none":
            raise UnmaskError(
                f"{optimizer.algorithm.capitalize()} needs whole rows and columns, which sharding splits: use "
                "--algorithm adamw with its own --lr, or omit training.sharding."
            )
        self.model = model.to(device).train()  # a folder opens in evaluation mode, without dropout
        self.objective = objective
        self.device = device
        self.config = optimizer
        self.settled = settle(precision, device)
        self.scaler = formats.scaler(device, self.settled.dtype)
        if self.scaler.is_enabled() and sharding != "none":
            raise UnmaskError("fp16 scales the loss by the gradients of all weights: use bf16 with training.sharding.")
        if recompute:
            recompute_blocks(model)
        if compile:
            varlen.settle_for_compiler()
            model.compile()
        persistent = self.model.state_dict().keys()
        self.buffers = {name: b for name, b in self.model.named_buffers() if name in persistent}
        self.losses = Losses(model, objective)
        self.module = distributed.wrap(self.losses, sharding)
        by_rows = devices.updates_rows(device) and distributed.ranks() == 1 and not compile
        self.optimizer = optimizer.build(
            model, scale=scale, fused=None if sharding == "none" else False, by_rows=by_rows
        )

    def in_full(self, function: Callable[[], T]) -> T:
        """Call `function` while every rank sees all parameters in full, and return its result."""
        found = self.losses.in_full(function)
        distributed.at_rest(self.module)
        return found

    def on_main(self, function: Callable[[], object]) -> None:
        """Call `function` on the main process while it sees all parameters in full; every process must call this."""
        self.in_full(function if distributed.is_main() else lambda: None)
        distributed.barrier()

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision context of every forward pass of this run."""
        return formats.autocast(self.device, self.settled.dtype)

    def step(self, batches: Sequence[Batch], totals: Mapping[str, int], lr: float, meter: Meter) -> None:
        """One update of the weights at the learning rate `lr`.

        batches  micro-batches of this rank
        totals   loss term -> number of its targets over all micro-batches and ranks, the divisor of its sum
        meter    receives the sums of this step

        If a loss or gradient is not finite, weights and buffers do not change, and the meter counts a skipped step.
        """
        before = [b.clone() for b in self.buffers.values()]
        # DDP and FSDP average the gradients of the ranks; multiplying by the number of ranks makes it a sum.
        scales = {name: w * distributed.ranks() / max(1, totals[name]) for name, w in self.objective.weights.items()}
        loss = torch.zeros((), device=self.device)
        sums: dict[str, Tensor] = {}
        for i, batch in enumerate(batches):
            with distributed.synchronised(self.module, last=i == len(batches) - 1):
                with self.autocast():
                    total, values = self.module(batch.to(self.device, pin=devices.pins(self.device)), scales)
                self.scaler.scale(total).backward()
            loss += total.detach()
            for name, value in values.items():
                sums[name] = sums[name] + value if name in sums else value
        self.scaler.unscale_(self.optimizer)
        norm = gradient_norm(self.model.parameters())
        skip = 1 - torch.isfinite(norm + distributed.sum_over_ranks(loss)).float()
        set_rate(self.optimizer, lr)
        update(self.optimizer, norm, self.config.clip, skip)
        self.scaler.update()  # lower after gradients that are not finite, higher after many that are
        for buffer, was in zip(self.buffers.values(), before, strict=True):  # such as running means of these pictures
            buffer.copy_(torch.where(skip > 0, was, buffer))
        self.optimizer.zero_grad(set_to_none=True)
        known = {"steps": 1, **{f"count/{name}": totals[name] for name in scales}}
        values = torch.stack([v.float().to(self.device) for v in (*sums.values(), norm, skip)])
        meter.add([*sums, "gradient_norm"], values, known)

    def on_step(self, step: int, total: int) -> None:
        """Tell an objective that changes as the run goes that the update number `step` (from 0) of `total` follows."""
        if hasattr(self.objective, "on_step"):
            self.objective.on_step(step, total)

    def tensors(self) -> dict[str, Tensor]:
        """Weights, buffers and optimizer state by name, unsharded and on the CPU; every rank must call it."""
        found = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        found.update({f"model.{name}": b for name, b in self.buffers.items()})
        for name, p in self.model.named_parameters():
            for key, value in self.optimizer.state.get(p, {}).items():
                found[f"{key}.{name}"] = value
        if self.scaler.is_enabled():
            found |= {f"scaler.{key}": torch.tensor(float(x)) for key, x in self.scaler.state_dict().items()}
        return {name: distributed.whole_tensor(x).cpu() for name, x in found.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` returned. Raises UnmaskError if it belongs to another model or optimizer."""
        own = {f"model.{k}": v for k, v in [*self.model.named_parameters(), *self.model.named_buffers()]}
        for name, x in tensors.items():
            if name.startswith("model.") and (name not in own or own[name].shape != x.shape):
                raise UnmaskError(
                    f"The checkpoint is of another model: {name[6:]} does not fit; use the same settings."
                )
        if self.scaler.is_enabled() and "scaler.scale" in tensors:
            known = self.scaler.state_dict()
            self.scaler.load_state_dict({key: type(x)(tensors[f"scaler.{key}"]) for key, x in known.items()})
        self.optimizer.state.clear()
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                if f"model.{name}" not in tensors:
                    raise UnmaskError(f"The checkpoint is of another model: it lacks {name}; use the same settings.")
                p.copy_(distributed.like(tensors[f"model.{name}"], p))
                if f"step.{name}" in tensors:
                    self.optimizer.state[p] = self._moments(tensors, name, p)
            for name, b in self.model.named_buffers():
                if f"model.{name}" in tensors:
                    b.copy_(tensors[f"model.{name}"])

    def carried(self) -> dict[str, Tensor]:
        """Tensors that the objective keeps between steps, by name: the memory of this rank's rows. Usually empty."""
        return dict(getattr(self.objective, "carried", {}))

    def carry(self, tensors: Mapping[str, Tensor]) -> None:
        """Give the objective the tensors that `carried` returned."""
        if hasattr(self.objective, "carried"):
            self.objective.carried = {name: x.to(self.device) for name, x in tensors.items()}

    def _moments(self, tensors: Mapping[str, Tensor], name: str, p: Tensor) -> dict[str, Tensor]:
        keys = [key for key in keeps(self.optimizer, p) if f"{key}.{name}" in tensors]
        if not keys:
            raise UnmaskError(
                "The checkpoint is of another optimizer; use the same settings (AdamW has --algorithm adamw, "
                "Muon --algorithm muon, Adafactor --algorithm adafactor)."
            )
        on_device = self.optimizer.defaults.get("fused")  # the fused kernel needs the step count on the device
        state = {key: distributed.like(tensors[f"{key}.{name}"], p) for key in keys}
        return {"step": tensors[f"step.{name}"].to(p.device if on_device else "cpu"), **state}


def recompute_blocks(model: nn.Module) -> None:
    """Activation checkpointing (Chen et al., 2016): keep only the input of each block and compute it again. Raises
    UnmaskError for blocks with batch normalisation, whose running statistics would be updated twice a step."""
    for block in distributed.blocks(model):
        if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in block.modules()):
            raise UnmaskError(
                "--recompute would update the running statistics of batch normalisation twice a step: leave it out."
            )
        block.forward = _Recomputed(block.forward)


class _Recomputed:
    def __init__(self, forward: Any) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        return checkpoint(self.forward, *args, use_reentrant=False, **kwargs)

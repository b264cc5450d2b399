"""One optimiser step: micro-batches in, sums of losses out, and the weights moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.errors import UnmaskError
from unmask.kernels import devices, formats
from unmask.kernels.processor import Precision, settle
from unmask.train import distributed
from unmask.train.metrics import Meter
from unmask.train.optim import Optimizer, Scale, gradient_norm, keeps, set_rate, update
from unmask.types import Batch, Loss

T = TypeVar("T")


class Data(Protocol):
    """What training needs of its data: the micro-batches of this rank for each step, from any position on."""

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[list[Batch], dict[str, Any]]]: ...


class Minimised(Protocol):
    """What training needs of an objective."""

    @property
    def weights(self) -> Mapping[str, float]: ...

    def loss(self, model: Any, batch: Batch) -> dict[str, Loss]: ...


class Losses(nn.Module):
    """The model and its objective as one module, so that heads run inside the forward that DDP and FSDP watch."""

    def __init__(self, model: nn.Module, objective: Minimised) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch, scales: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar to minimise, and sums by name without a graph: `loss/<term>` and `<term>/<metric>`."""
        total = torch.zeros((), device=batch.tokens.device)
        counts = batch.counts
        sums: dict[str, Tensor] = {}
        for name, loss in self.objective.loss(self.model, batch).items():
            if name not in scales:
                raise UnmaskError(f"The objective gives no weight for its loss term '{name}'; add it to its weights.")
            if loss.count != counts.get(name, 0):
                raise UnmaskError(
                    f"The loss '{name}' sums over {loss.count} targets; its batch has {counts.get(name, 0)}."
                )
            total = total + loss.sum.float() * scales[name]
            sums[f"loss/{name}"] = loss.sum.detach()
            sums.update({f"{name}/{metric}": x.detach() for metric, x in loss.metrics.items()})
        if not total.requires_grad:  # no target in this micro-batch; the other ranks still wait for its gradients
            total = total + 0.0 * next(p for p in self.model.parameters() if p.requires_grad).sum()
        return total, sums

    def in_full(self, function: Callable[[], T]) -> T:
        """What `function` returns when every rank sees all parameters in full."""
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
                "--algorithm adamw with an --lr for it, or leave out training.sharding."
            )
        self.model = model.to(device).train()  # a folder opens in evaluation mode, without dropout
        self.objective = objective
        self.device = device
        self.config = optimizer
        self.settled = settle(precision, device)
        self.bf16 = self.settled.precision == "bf16"
        if recompute:
            recompute_blocks(model)
        if compile:
            model.compile()
        self.losses = Losses(model, objective)
        self.module = distributed.wrap(self.losses, sharding)
        by_rows = devices.updates_rows(device) and distributed.ranks() == 1 and not compile
        self.optimizer = optimizer.build(
            model, scale=scale, fused=None if sharding == "none" else False, by_rows=by_rows
        )

    def in_full(self, function: Callable[[], T]) -> T:
        """What `function` returns when every rank sees all parameters in full."""
        found = self.losses.in_full(function)
        distributed.at_rest(self.module)
        return found

    def on_main(self, function: Callable[[], object]) -> None:
        """Call it on the main process while all parameters are there in full; every process must call this."""
        self.in_full(function if distributed.is_main() else lambda: None)
        distributed.barrier()

    def autocast(self) -> AbstractContextManager[Any]:
        """The context that every forward of this run is computed in."""
        return formats.autocast(self.device, self.bf16)

    def step(self, batches: Sequence[Batch], totals: Mapping[str, int], lr: float, meter: Meter) -> None:
        """One update of the weights at the learning rate `lr`.

        batches  micro-batches of this rank
        totals   loss term -> number of its targets over all micro-batches and ranks: what its sum is divided by
        meter    receives the sums of this step

        A loss or gradient that is not finite leaves the weights as they are and is marked so in the meter.
        """
        # DDP and FSDP average the gradients of the ranks, and ours are to be added up.
        scales = {name: w * distributed.ranks() / max(1, totals[name]) for name, w in self.objective.weights.items()}
        loss = torch.zeros((), device=self.device)
        sums: dict[str, Tensor] = {}
        for i, batch in enumerate(batches):
            with distributed.synchronised(self.module, last=i == len(batches) - 1):
                with self.autocast():
                    total, values = self.module(batch.to(self.device, pin=devices.pins(self.device)), scales)
                total.backward()
            loss += total.detach()
            for name, value in values.items():
                sums[name] = sums[name] + value if name in sums else value
        norm = gradient_norm(self.model.parameters())
        skip = 1 - torch.isfinite(norm + distributed.sum_over_ranks(loss)).float()
        set_rate(self.optimizer, lr)
        update(self.optimizer, norm, self.config.clip, skip)
        self.optimizer.zero_grad(set_to_none=True)
        known = {"steps": 1, **{f"count/{name}": totals[name] for name in scales}}
        values = torch.stack([v.float().to(self.device) for v in (*sums.values(), norm, skip)])
        meter.add([*sums, "gradient_norm"], values, known)

    def tensors(self) -> dict[str, Tensor]:
        """Weights, buffers and optimizer state by name, whole and on the CPU; every rank must call it."""
        found = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        persistent = self.model.state_dict().keys()
        found.update({f"model.{name}": b for name, b in self.model.named_buffers() if name in persistent})
        for name, p in self.model.named_parameters():
            for key, value in self.optimizer.state.get(p, {}).items():
                found[f"{key}.{name}"] = value
        return {name: distributed.whole_tensor(x).cpu() for name, x in found.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave, exactly. Raises UnmaskError where it belongs to another model."""
        own = {f"model.{k}": v for k, v in [*self.model.named_parameters(), *self.model.named_buffers()]}
        for name, x in tensors.items():
            if name.startswith("model.") and (name not in own or own[name].shape != x.shape):
                raise UnmaskError(
                    f"The checkpoint is of another model: {name[6:]} does not fit; use the same settings."
                )
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
        """What the objective hands on from step to step, by name: a memory of the rows of this rank. Most have none."""
        return dict(getattr(self.objective, "carried", {}))

    def carry(self, tensors: Mapping[str, Tensor]) -> None:
        """Let the objective continue with what `carried` gave."""
        if hasattr(self.objective, "carried"):
            self.objective.carried = {name: x.to(self.device) for name, x in tensors.items()}

    def _moments(self, tensors: Mapping[str, Tensor], name: str, p: Tensor) -> dict[str, Tensor]:
        keys = [key for key in keeps(self.optimizer, p) if f"{key}.{name}" in tensors]
        if not keys:
            raise UnmaskError(
                "The checkpoint is of another optimizer; use the same settings (AdamW has --algorithm adamw, "
                "Muon --algorithm muon, Adafactor --algorithm adafactor)."
            )
        on_device = self.optimizer.defaults.get("fused")  # that kernel wants its step count beside the parameter
        state = {key: distributed.like(tensors[f"{key}.{name}"], p) for key in keys}
        return {"step": tensors[f"step.{name}"].to(p.device if on_device else "cpu"), **state}


def recompute_blocks(model: nn.Module) -> None:
    """Activation checkpointing (Chen et al., 2016): keep only the input of each block and compute it again."""
    for block in distributed.blocks(model):
        block.forward = _Recomputed(block.forward)


class _Recomputed:
    def __init__(self, forward: Any) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        return checkpoint(self.forward, *args, use_reentrant=False, **kwargs)

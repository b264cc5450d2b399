"""AdamW with the settings of BERT, Adafactor with those of T5, Muon; parameter groups, clipping, the schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.kernels import devices
from unmask.train import distributed, muon, rows

Scale = Callable[[str], float]
"""Name of a parameter -> factor on its learning rate."""

SMALLEST = (1e-15, 1e-3)
"""The two epsilons of Adafactor (Shazeer & Stern 2018, section 9): the square root of the smallest mean squared
gradient, and the smallest scale of the weights."""

STATE: dict[type, tuple[str, ...]] = {
    torch.optim.AdamW: ("exp_avg", "exp_avg_sq"),
    rows.RowwiseAdamW: ("exp_avg", "exp_avg_sq"),
    torch.optim.Adafactor: ("row_var", "col_var", "variance"),
}
"""Optimizer -> the names of its state of a parameter, besides the step count; for Muon see `Muon.keeps`."""


@dataclass(frozen=True, kw_only=True)
class Optimizer(Config):
    """AdamW (Loshchilov & Hutter, 2019) with BERT's values (Devlin et al., 2018, appendix A.2), or another optimizer.

    algorithm     "adamw"; "muon" (Jordan et al., 2024; `train/muon.py`), which orthogonalises the updates of the
                  matrices of the blocks, with the size of AdamW's updates, and uses AdamW for all other parameters: at
                  a higher rate it needs fewer steps for the same loss, each a little longer; or "adafactor" (Shazeer &
                  Stern, 2018), whose updates are proportional to the size of the weights, which suits models whose
                  weights differ in size. It keeps a number for each row and column instead of two for each weight.
                  "auto" is Adafactor for a run that continues from a T5, and AdamW otherwise
    lr            peak learning rate; for Adafactor, the root mean square of an update relative to that of the weights,
                  at most 1 / sqrt(step) (section 8). None: a kind of run that takes it chooses the rate by the model
    betas, eps    of AdamW: decay rates of the two moments, and the constant that keeps the division finite
    weight_decay  decoupled decay of matrices and embeddings; biases and normalisation weights have none
    clip          largest global gradient norm; None does not clip. Adafactor also limits its own updates
    """

    algorithm: Literal["auto", "adamw", "muon", "adafactor"] = "auto"
    lr: float | None = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip: float | None = 1.0

    @property
    def rate(self) -> float:
        """The peak learning rate. Raises UnmaskError if it is not above 0, or there is none."""
        if self.lr is None or not self.lr > 0:
            raise UnmaskError(f"The learning rate must be above 0, not {'none' if self.lr is None else self.lr}.")
        return self.lr

    def build(
        self,
        model: nn.Module,
        *,
        scale: Scale | None = None,
        fused: bool | None = None,
        by_rows: bool = False,
    ) -> torch.optim.Optimizer:
        """The optimizer for the trainable parameters of `model`; a shared parameter occurs once.

        scale    name of a parameter -> factor on its learning rate; None: the same rate for all
        fused    for AdamW: whether one kernel computes the whole update. None: if the device of every parameter has one
        by_rows  for the fused AdamW on a CPU with one process: large tables that are only looked up get sparse
                 gradients, with the rows of a batch only (`train/rows.py`)

        A parameter that is frozen later has no gradient, so neither its moments nor the decay change it. Raises
        UnmaskError for a rate or a clipping norm that is not above 0, and for a model without trainable parameters.
        """
        lr = self.rate
        if self.clip is not None and not self.clip > 0:
            raise UnmaskError(f"The clipping norm must be above 0, or none for no clipping, not {self.clip}.")
        groups = parameter_groups(model, self.weight_decay, scale)
        if not groups:
            raise UnmaskError("The model has no trainable parameter; unfreeze at least one.")
        if fused is None:
            fused = devices.updates_at_once(p for g in groups for p in g["params"])
        tables = list(rows.read_alone(model))
        by_rows = by_rows and fused and self.algorithm in ("auto", "adamw") and bool(tables)
        for table in tables:
            table.sparse = by_rows
        optimizer: torch.optim.Optimizer
        if by_rows:
            optimizer = rows.RowwiseAdamW(groups, lr=lr, betas=self.betas, eps=self.eps)
        elif self.algorithm == "adafactor":
            optimizer = torch.optim.Adafactor(groups, lr=lr, eps=SMALLEST)
        elif self.algorithm == "muon":
            # Except on a CPU, the fused kernel keeps its step counts on the device, but Muon keeps its own on the CPU.
            fused = fused and devices.counts_on_cpu(p for g in groups for p in g["params"])
            hidden = muon.hidden(model)
            optimizer = muon.Muon(groups, hidden, lr=lr, betas=self.betas, eps=self.eps, fused=fused)
        else:
            # Without the fused kernel, use one kernel for each operation (foreach). PyTorch chooses that by itself only
            # if `fused` is None, and never for sharded parameters.
            foreach = None if fused else True
            optimizer = torch.optim.AdamW(groups, lr=lr, betas=self.betas, eps=self.eps, fused=fused, foreach=foreach)
        set_rate(optimizer, lr)
        return optimizer

    def kept(self, model: nn.Module) -> int:
        """Bytes of the optimizer state for the trainable parameters of a model."""
        turned = {id(p) for p in muon.hidden(model)} if self.algorithm == "muon" else set()

        def numbers(p: Tensor) -> int:
            if self.algorithm != "adafactor":
                return p.numel() if id(p) in turned else 2 * p.numel()
            return p.numel() // p.shape[-1] + p.numel() // p.shape[-2] if p.ndim > 1 else p.numel()

        return sum(numbers(p) * p.element_size() for p in model.parameters() if p.requires_grad)


ADAFACTOR = Optimizer(algorithm="adafactor", lr=1e-3, weight_decay=0.0, clip=None)
"""The published optimizer for fine-tuning T5 (Raffel et al. 2020, section 3.1.2)."""


def check_rate(before: Optimizer, after: Optimizer, named: Iterable[str]) -> None:
    """Raises UnmaskError if the algorithm changes but the learning rate does not.

    named  names of the fields that the caller set; setting `lr` to its old value is allowed
    """
    kinds = {"adamw" if one.algorithm == "auto" else one.algorithm for one in (before, after)}
    if len(kinds) == 1 or before.lr != after.lr or any(name.rpartition(".")[2] == "lr" for name in named):
        return
    refused = f"{after.algorithm} cannot use the learning rate {before.rate:g} of the other algorithm, because"
    if "adafactor" not in kinds:
        raise UnmaskError(f"{refused} Muon and AdamW need different rates (bert-mini 2e-3 and 1e-3): set --lr too.")
    raise UnmaskError(
        f"{refused} a rate of Adafactor is relative to the weights, and other rates are absolute: set --lr too, and "
        "--clip to clip gradients."
    )


@dataclass(frozen=True, kw_only=True)
class Schedule(Config):
    """The learning rate over the run: a linear warm-up, then a linear or cosine decay to `floor`, a constant, or the
    inverse square root of the step (Vaswani et al. 2017, equation 3), which does not depend on the length of the run.

    warmup  number of steps; below 1, a fraction of all steps
    shape   of the decay
    floor   end of the decay, as a fraction of the peak
    """

    warmup: int | float = 0.1
    shape: Literal["linear", "cosine", "constant", "inverse-sqrt"] = "linear"
    floor: float = 0.0

    def at(self, step: int, total: int) -> float:
        """The factor on the peak learning rate for the update number `step` (from 0) of `total`.

        No update has a rate of 0: the first one has 1 / warmup, and a linear decay ends one step above the floor.
        """
        warmup = round(self.warmup * total) if self.warmup < 1 else int(self.warmup)
        if step < warmup:
            return (step + 1) / warmup
        if self.shape == "inverse-sqrt":
            return max(self.floor, (max(1, warmup) / (step + 1)) ** 0.5)
        done = min(1.0, (step - warmup) / max(1, total - warmup))
        if self.shape == "constant":
            return 1.0
        left = 1 - done if self.shape == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.floor + (1 - self.floor) * left


class Tuning(Protocol):
    """The trained parameters, their rates, and when they are frozen. Both methods depend only on their arguments."""

    def scale(self, name: str) -> float:
        """Factor on the learning rate of a parameter."""
        ...

    def on_step(self, step: int, total: int) -> None:
        """Called before the update number `step` (from 0) of `total`, to freeze and unfreeze parameters."""
        ...


def parameter_groups(model: nn.Module, weight_decay: float, scale: Scale | None = None) -> list[dict]:
    """Groups of trainable parameters by weight decay and `scale`: matrices and embeddings decay, biases and
    normalisation weights (one dimension) do not, as in BERT's `AdamWeightDecayOptimizer`.

    Raises UnmaskError for a factor that is not above 0.
    """
    groups: dict[tuple[bool, float], dict] = {}
    for name, p in model.named_parameters():  # yields a shared parameter once
        if not p.requires_grad:
            continue
        factor = 1.0 if scale is None else float(scale(name))
        if not 0 < factor < math.inf:
            raise UnmaskError(f"The factor on the learning rate of '{name}' must be above 0, not {factor}.")
        decay = p.ndim > 1
        new = {"params": [], "weight_decay": weight_decay if decay else 0.0, "scale": factor}
        groups.setdefault((decay, factor), new)["params"].append(p)
    return [groups[key] for key in sorted(groups, reverse=True)]


def keeps(optimizer: torch.optim.Optimizer, p: Tensor) -> tuple[str, ...]:
    """The names of an optimizer's state of a parameter, besides the step count."""
    return optimizer.keeps(p) if isinstance(optimizer, muon.Muon) else STATE[type(optimizer)]


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group: `lr` times the factor of the group."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """The global 2-norm of all gradients, a scalar on their device."""
    gradients = [rows.gradient_of(p) for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    return distributed.whole_tensor(norm)


def update(optimizer: torch.optim.Optimizer, norm: Tensor, clip: float | None, skip: Tensor) -> None:
    """One update with the gradients scaled to a norm of at most `clip`; nothing changes if `skip` is 1.

    norm  scalar: the global gradient norm
    skip  scalar, 0.0 or 1.0

    The fused kernel itself scales and skips, so the host does not wait for the device. It reads the two attributes that
    `torch.amp.GradScaler` sets on an optimizer.
    """
    if optimizer.defaults.get("fused"):
        scale = (norm / clip).clamp(min=1.0) if clip is not None else torch.ones_like(norm)
        optimizer.grad_scale, optimizer.found_inf = scale.float(), skip.float()  # type: ignore[attr-defined]  # of GradScaler
        optimizer.step()
        return
    if skip.item():
        return
    if clip is not None:
        factor = clip / max(clip, norm.item())
        torch._foreach_mul_([p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None], factor)
    optimizer.step()

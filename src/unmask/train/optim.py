"""AdamW as published for BERT, Adafactor as for T5, Muon; parameter groups, clipping, the learning-rate schedule."""

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
"""Of Adafactor (its section 9): the root of what a mean squared gradient is at least, and the least size of weights."""

STATE: dict[type, tuple[str, ...]] = {
    torch.optim.AdamW: ("exp_avg", "exp_avg_sq"),
    rows.RowwiseAdamW: ("exp_avg", "exp_avg_sq"),
    torch.optim.Adafactor: ("row_var", "col_var", "variance"),
}
"""What they keep of a parameter, beside the number of its steps; of Muon see `Muon.keeps`."""


@dataclass(frozen=True, kw_only=True)
class Optimizer(Config):
    """AdamW (Loshchilov & Hutter, 2019) with BERT's values (Devlin et al., 2018, appendix A.2); or another.

    algorithm     "adamw"; "muon" (Jordan et al., 2024; `train/muon.py`), which moves the matrices of the blocks as far
                  in each of their directions, by steps of the size of AdamW's, and leaves all else to AdamW: at a
                  higher rate, fewer steps for the same loss, each a little longer; or "adafactor" (Shazeer & Stern,
                  2018), whose steps are a share of what they change, as a model whose weights differ much in size
                  wants it. It keeps a number for each row and column in place of two for each weight. "auto" is
                  Adafactor for what continues from a T5, and AdamW for all else
    lr            peak learning rate; of Adafactor the root mean square of a step, as a share of that of the weights,
                  and at most 1 / sqrt(step) (section 8)
    betas, eps    of AdamW: decay rates of the two moments, and what keeps the division finite
    weight_decay  decoupled decay of matrices and embeddings; biases and normalisation weights have none
    clip          largest global gradient norm; None does not clip, and Adafactor limits its steps by itself
    """

    algorithm: Literal["auto", "adamw", "muon", "adafactor"] = "auto"
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip: float | None = 1.0

    def build(
        self,
        model: nn.Module,
        *,
        scale: Scale | None = None,
        fused: bool | None = None,
        by_rows: bool = False,
    ) -> torch.optim.Optimizer:
        """The optimizer over the trainable parameters of `model`, each once however often it is shared.

        scale    name of a parameter -> factor on its learning rate; None: the same rate for all
        fused    of AdamW. None: one kernel for the whole update wherever every parameter's device has one
        by_rows  of the fused AdamW: large tables that are only looked up have gradients of the rows of a batch alone
                 from now on (`train/rows.py`), for a CPU and one process

        A parameter that is frozen later has no gradient, so nothing moves it: neither a moment nor the decay.
        """
        if not self.lr > 0:
            raise UnmaskError(f"The learning rate must be above 0, not {self.lr}.")
        if self.clip is not None and not self.clip > 0:
            raise UnmaskError(f"The clipping norm must be above 0, or none to switch it off, not {self.clip}.")
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
            optimizer = rows.RowwiseAdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps)
        elif self.algorithm == "adafactor":
            optimizer = torch.optim.Adafactor(groups, lr=self.lr, eps=SMALLEST)
        elif self.algorithm == "muon":
            # Elsewhere than on a CPU the fused kernel has its counts of steps on the device, and Muon has none there.
            fused = fused and devices.counts_on_cpu(p for g in groups for p in g["params"])
            hidden = muon.hidden(model)
            optimizer = muon.Muon(groups, hidden, lr=self.lr, betas=self.betas, eps=self.eps, fused=fused)
        else:
            # Where one kernel cannot do it all, one for each operation does: PyTorch chooses that by itself only where
            # `fused` is left open, and never for parameters that are sharded.
            foreach = None if fused else True
            optimizer = torch.optim.AdamW(
                groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=fused, foreach=foreach
            )
        set_rate(optimizer, self.lr)
        return optimizer

    def kept(self, model: nn.Module) -> int:
        """Bytes that stand beside the parameters that are trained, from step to step."""
        turned = {id(p) for p in muon.hidden(model)} if self.algorithm == "muon" else set()

        def numbers(p: Tensor) -> int:
            if self.algorithm != "adafactor":
                return p.numel() if id(p) in turned else 2 * p.numel()
            return p.numel() // p.shape[-1] + p.numel() // p.shape[-2] if p.ndim > 1 else p.numel()

        return sum(numbers(p) * p.element_size() for p in model.parameters() if p.requires_grad)


ADAFACTOR = Optimizer(algorithm="adafactor", lr=1e-3, weight_decay=0.0, clip=None)
"""What continues from a T5, as published (Raffel et al. 2020, section 3.1.2)."""


def check_rate(before: Optimizer, after: Optimizer, named: Iterable[str]) -> None:
    """Raises UnmaskError where another algorithm is asked for without a rate of its own.

    named  fields that were given; a rate that is said again counts
    """
    kinds = {"adamw" if one.algorithm == "auto" else one.algorithm for one in (before, after)}
    if len(kinds) == 1 or before.lr != after.lr or any(name.rpartition(".")[2] == "lr" for name in named):
        return
    refused = f"{after.algorithm} cannot take over the learning rate {before.lr:g}, for"
    if "adafactor" not in kinds:
        raise UnmaskError(f"{refused} Muon and AdamW seldom want the same (bert-mini 2e-3 and 1e-3): say --lr as well.")
    raise UnmaskError(
        f"{refused} that of Adafactor is a share of the weights and that of others is not: say --lr as well, and "
        "--clip where gradients are to be clipped."
    )


@dataclass(frozen=True, kw_only=True)
class Schedule(Config):
    """Learning rate over the run: a linear warm-up, then a linear or cosine decay to `floor`, or a constant, or the
    inverse square root of the step (Vaswani et al. 2017, equation 3), which does not ask how long the run will be.

    warmup  fraction of all steps where below 1, else a number of steps
    floor   what the decay ends at, as a fraction of the peak
    """

    warmup: int | float = 0.1
    shape: Literal["linear", "cosine", "constant", "inverse-sqrt"] = "linear"
    floor: float = 0.0

    def at(self, step: int, total: int) -> float:
        """Factor on the peak learning rate for the update number `step` (from 0) of `total`.

        No update is wasted on a rate of 0: the first one has 1 / warmup, the last one is one notch above the floor.
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
    """What of the model is trained, how fast, and when: both answers depend on their arguments alone."""

    def scale(self, name: str) -> float:
        """Factor on the learning rate of a parameter."""
        ...

    def on_step(self, step: int, total: int) -> None:
        """Called before the update number `step` (from 0) of `total`: the moment to freeze and to thaw."""
        ...


def parameter_groups(model: nn.Module, weight_decay: float, scale: Scale | None = None) -> list[dict]:
    """Trainable parameters by weight decay and `scale`: matrices and embeddings decay, biases and normalisation
    weights (one dimension) do not, as in BERT's `AdamWeightDecayOptimizer`.

    Raises UnmaskError for a factor that is not above 0.
    """
    groups: dict[tuple[bool, float], dict] = {}
    for name, p in model.named_parameters():  # names a shared one once
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
    """What an optimizer keeps of a parameter, beside the number of its steps."""
    return optimizer.keeps(p) if isinstance(optimizer, muon.Muon) else STATE[type(optimizer)]


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group its share of the learning rate of this step."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """Global 2-norm of all gradients, a scalar on their device."""
    gradients = [rows.gradient_of(p) for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    return distributed.whole_tensor(norm)


def update(optimizer: torch.optim.Optimizer, norm: Tensor, clip: float | None, skip: Tensor) -> None:
    """One update with the gradients scaled to a norm of at most `clip`; nothing changes where `skip` is 1.

    norm  scalar: the global gradient norm
    skip  scalar, 0.0 or 1.0

    The fused kernel scales and skips by itself, so the host does not wait for the device; these two attributes are
    what `torch.amp.GradScaler` hands to the optimizers that support it.
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

"""Cross-entropy over a vocabulary, some rows at a time: its logits are the largest numbers of a step. The plain form is
`unmask.objectives.cross_entropy.equation`.

Shapes: M targets, D width, C answers (V of them, where they are a vocabulary).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unmask.kernels.formats import exactly, product_dtype
from unmask.kernels.linear import Logits, inner

CACHED = 1 << 19
"""Logits that a processor passes over at a time, so that they stay in its caches."""

MADE = {"cpu": 1 << 23}
"""Logits that are multiplied at a time, by device; elsewhere `MADE_ELSEWHERE`."""

MADE_ELSEWHERE = 1 << 27

PRECISE = (torch.float32, torch.bfloat16)
"""Numbers in which a gradient can be made before one knows what the loss is multiplied by: float16 would lose it."""


Sums = tuple[Tensor, Tensor, Tensor]
"""What is minimised, the negative log-likelihood (both in nats, summed), and how many values no other exceeds."""


def cross_entropy(
    logits: Tensor | Logits, values_M: Tensor, smoothing: float, plain: Callable[[Tensor, Tensor, float], Sums]
) -> Sums:
    """The cross-entropy of logits [M, C], or of a product that makes them.

    smoothing  share of the probability that is asked for all values alike
    plain      the equation, of logits that are made
    """
    if isinstance(logits, Logits):
        dtype = product_dtype(logits.x_MD)
        if dtype in PRECISE and len(values_M):
            total, nll, correct = _OfProduct.apply(*logits, values_M, smoothing, dtype, torch.is_grad_enabled())
            return total, nll, correct
        logits = logits.made()
    if logits.device.type == "cpu" and logits.dtype in PRECISE:
        total, nll, correct = _OfLogits.apply(logits, values_M, smoothing)
        return total, nll, correct
    return plain(logits, values_M, smoothing)


class _Sums(NamedTuple):
    """-log p of the values, -log p of all answers (0 where nothing is smoothed), and how many values come first."""

    nll: Tensor
    everywhere: Tensor
    correct: Tensor

    @classmethod
    def none(cls, device: torch.device) -> _Sums:
        zero = torch.zeros((), device=device)
        return cls(zero, zero.clone(), torch.zeros((), dtype=torch.long, device=device))

    def total(self, smoothing: float, answers: int) -> Tensor:
        if not smoothing:
            return self.nll.clone()
        return (1 - smoothing) * self.nll + smoothing / answers * self.everywhere

    def add(self, logits_MC: Tensor, values_M: Tensor, smoothing: float, gradient_MC: Tensor | None) -> None:
        """Take logits in. Their gradient, softmax minus the target distribution, is computed in the same pass; it may
        overwrite them."""
        M, C = logits_MC.shape
        rows = max(1, CACHED // C) if logits_MC.device.type == "cpu" else M
        for begin in range(0, M, rows):
            here, places = slice(begin, begin + rows), values_M[begin : begin + rows, None]
            log_p = logits_MC[here].float().log_softmax(-1)
            said = log_p.gather(1, places)
            self.nll.sub_(said.sum())
            self.correct.add_((said.squeeze(1) >= log_p.amax(1)).sum())
            if smoothing:
                self.everywhere.sub_(log_p.sum())
            if gradient_MC is not None:
                p = log_p.exp_().sub_(smoothing / C) if smoothing else log_p.exp_()
                gradient_MC[here] = p.scatter_add_(1, places, p.new_full(places.shape, smoothing - 1.0))


class _OfLogits(torch.autograd.Function):
    """`cross_entropy` of logits that are there, so many rows at a time as a cache holds: passing over all of them in
    memory costs more than the logarithms."""

    @staticmethod
    def forward(ctx: Any, logits_MC: Tensor, values_M: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
        """[M, C] float and [M] int64 -> two sums, float32, and the number, int64."""
        sums = _Sums.none(logits_MC.device)
        gradient_MC = torch.empty_like(logits_MC) if ctx.needs_input_grad[0] else None
        sums.add(logits_MC, values_M, smoothing, gradient_MC)
        ctx.save_for_backward(gradient_MC)
        ctx.mark_non_differentiable(sums.nll, sums.correct)
        return sums.total(smoothing, logits_MC.shape[1]), sums.nll, sums.correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        (gradient_MC,) = ctx.saved_tensors
        return gradient_MC * upstream, None, None


class _OfProduct(torch.autograd.Function):
    """`cross_entropy` of x W^T + b, some rows of logits at a time: their loss, their gradient in their place, and the
    gradients of x, W and b. Gradients of W and b are added up in their own precision."""

    @staticmethod
    def forward(
        ctx: Any,
        x_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        values_M: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        learning: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `_OfLogits`. dtype: of the products; learning: whether gradients are wanted at all."""
        sums, wanted = _Sums.none(x_MD.device), [learning and needed for needed in ctx.needs_input_grad[:3]]
        own = Logits(x_MD.to(dtype), weight_VD.to(dtype), None if bias_V is None else bias_V.to(dtype))
        dx_MD = torch.empty_like(own.x_MD) if wanted[0] else None
        dweight_VD = torch.zeros_like(weight_VD) if wanted[1] else None
        dbias_V = torch.zeros_like(bias_V) if wanted[2] and bias_V is not None else None
        with exactly(x_MD):
            for here in _parts(len(x_MD), weight_VD):
                part = own._replace(x_MD=own.x_MD[here])
                logits_RV = inner(*part)
                sums.add(logits_RV, values_M[here], smoothing, logits_RV if any(wanted) else None)
                if dx_MD is not None:
                    torch.mm(logits_RV, own.weight_VD, out=dx_MD[here])
                if dweight_VD is not None:
                    _add_product(dweight_VD, logits_RV.t(), part.x_MD)
                if dbias_V is not None:
                    dbias_V += logits_RV.sum(0)
        ctx.save_for_backward(dx_MD, dweight_VD, dbias_V)
        ctx.mark_non_differentiable(sums.nll, sums.correct)
        return sums.total(smoothing, len(weight_VD)), sums.nll, sums.correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        made = [None if gradient is None else gradient * upstream for gradient in ctx.saved_tensors]
        return (*made, None, None, None, None)


def _parts(M: int, weight_VD: Tensor) -> list[slice]:
    """Rows that are multiplied together, about as many in each part. So few that their logits fit, but not so few that
    passing over the gradient of the weights once for each part would cost more than that saves."""
    V, D = weight_VD.shape
    most = max(MADE.get(weight_VD.device.type, MADE_ELSEWHERE) // V, 2 * D)
    rows = math.ceil(M / math.ceil(M / most))
    return [slice(begin, begin + rows) for begin in range(0, M, rows)]


def _add_product(sums: Tensor, a: Tensor, b: Tensor) -> None:
    """sums += a b, rounded to no less than `sums` is."""
    if sums.dtype is a.dtype:
        sums.addmm_(a, b)
    else:
        sums += a @ b

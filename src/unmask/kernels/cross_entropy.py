"""Cross-entropy over a vocabulary, some rows at a time, because the logits are the largest tensor of a step. The plain
form is `unmask.objectives.cross_entropy.equation`.

Shapes: M targets, D width, C classes (V for a vocabulary), R rows of a part.
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
"""Number of logits that a CPU processes at a time, so that they stay in its caches."""

MADE = {"cpu": 1 << 23}
"""Number of logits that are computed at a time, by type of device; `MADE_ELSEWHERE` on other devices."""

MADE_ELSEWHERE = 1 << 27

PRECISE = (torch.float32, torch.bfloat16)
"""Number formats for which the gradient can be computed in the forward pass, before the scale of the loss is known;
float16 would underflow."""


Sums = tuple[Tensor, Tensor, Tensor]
"""The loss and the negative log-likelihood (in nats, summed), and the number of correct predictions."""


def cross_entropy(
    logits: Tensor | Logits, values_M: Tensor, smoothing: float, plain: Callable[[Tensor, Tensor, float], Sums]
) -> Sums:
    """The cross-entropy of logits [M, C], or of their factors.

    smoothing  label smoothing: share of the target probability that is spread evenly over all classes
    plain      the plain form, for logits
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
    """Sums of -log p of the values and of all classes (0 without smoothing), and the number of correct predictions."""

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
        """Add the sums of some logits. The same pass computes their gradient, softmax minus the target distribution;
        `gradient_MC` may be the logits themselves, which it then overwrites."""
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
    """`cross_entropy` of given logits, as many rows at a time as fit a cache: several passes over all of them in memory
    take longer than the logarithms."""

    @staticmethod
    def forward(ctx: Any, logits_MC: Tensor, values_M: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
        """[M, C] float and [M] int64 -> two sums in float32, and the number of correct predictions in int64."""
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
    """`cross_entropy` of x W^T + b, some rows of logits at a time: their loss, their gradient, which overwrites them,
    and the gradients of x, W and b. Gradients of W and b are summed in the precision of W and b."""

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
        """As in `_OfLogits`. dtype: number format of the products; learning: whether gradients are needed."""
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
    """Parts of about equally many rows. Their logits fit the limit `MADE`, but a part has at least about 2 D rows, so
    that the pass over the gradient of the weights, once for each part, does not cost more than it saves."""
    V, D = weight_VD.shape
    most = max(MADE.get(weight_VD.device.type, MADE_ELSEWHERE) // V, 2 * D)
    rows = math.ceil(M / math.ceil(M / most))
    return [slice(begin, begin + rows) for begin in range(0, M, rows)]


def _add_product(sums: Tensor, a: Tensor, b: Tensor) -> None:
    """sums += a b, added in the precision of `sums`."""
    if sums.dtype is a.dtype:
        sums.addmm_(a, b)
    else:
        sums += a @ b

"""Cross-entropy: the negative log-likelihood of the targets, with label smoothing.

Shapes: M targets, C answers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.kernels import cross_entropy as kernel
from unmask.kernels.linear import Logits
from unmask.types import Loss


def of_logits(logits: Tensor | Logits, values_M: Tensor) -> Loss:
    """Sum of -log p(value) in nats; the metric `correct` counts the values that no other exceeds. Logits [M, C] of any
    float type; computed in float32."""
    total, _, correct = cross_entropy(logits, values_M)
    return Loss(total, values_M.numel(), {"correct": correct})


def cross_entropy(logits: Tensor | Logits, values_M: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """`equation` of logits [M, C], or of the product that makes them; some rows at a time where that is faster."""
    return kernel.cross_entropy(logits, values_M, smoothing, equation)


def equation(logits_MC: Tensor, values_M: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Three sums over the targets: the loss (1 - smoothing) nll - smoothing mean log p, in nats; nll, the negative
    log-likelihood of the values, in nats; and the number of values that no other exceeds.

    smoothing  share of the target probability that is spread evenly over all values (Szegedy et al. 2016, section 7)
    """
    log_p_MC = logits_MC.float().log_softmax(-1)
    log_p_M = log_p_MC.gather(-1, values_M[:, None]).squeeze(-1)
    nll = -log_p_M.sum()
    with torch.no_grad():  # amax is several times faster than argmax on a CPU
        correct = (log_p_M >= log_p_MC.amax(-1)).sum()
    total = (1 - smoothing) * nll - smoothing * log_p_MC.mean(-1).sum() if smoothing else nll
    return total, nll.detach(), correct


def log_softmax_within(logits_MC: Tensor, group_M: Tensor) -> Tensor:
    """[M, C]: for each output, the log-softmax over the places of the same group.

    group_M  number of each place's group, from 0 to at most M - 1
    """
    index_MC = group_M[:, None].expand_as(logits_MC)
    lowest = torch.full_like(logits_MC, -torch.inf)
    top_MC = lowest.scatter_reduce(0, index_MC, logits_MC.detach(), "amax").gather(0, index_MC)
    shifted_MC = logits_MC - top_MC
    sums_MC = torch.zeros_like(logits_MC).scatter_add(0, index_MC, shifted_MC.exp())
    return shifted_MC - sums_MC.gather(0, index_MC).log()

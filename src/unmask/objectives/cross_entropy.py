"""Cross-entropy: the negative log-likelihood of what is to be predicted, with label smoothing.

Shapes: M targets, C answers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.kernels import cross_entropy as kernel
from unmask.kernels.linear import Logits
from unmask.types import Loss


def of_logits(logits: Tensor | Logits, values_M: Tensor) -> Loss:
    """Sum of -log p(value); the metric `correct` counts where none is likelier. Logits [M, C] may be of any float type;
    it is computed in float32."""
    total, _, correct = cross_entropy(logits, values_M)
    return Loss(total, values_M.numel(), {"correct": correct})


def cross_entropy(logits: Tensor | Logits, values_M: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """`equation`, some rows at a time where a device gains by it; of logits [M, C], or of a product that makes them."""
    return kernel.cross_entropy(logits, values_M, smoothing, equation)


def equation(logits_MC: Tensor, values_M: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """What is minimised, (1 - smoothing) nll - smoothing mean log p; nll, the negative log-likelihood of the values;
    and how many values no other exceeds. All are sums over the targets, the first two in nats.

    smoothing  share of the probability that is asked for all values alike (Szegedy et al. 2016, section 7)
    """
    log_p_MC = logits_MC.float().log_softmax(-1)
    log_p_M = log_p_MC.gather(-1, values_M[:, None]).squeeze(-1)
    nll = -log_p_M.sum()
    with torch.no_grad():  # amax is several times faster than argmax on a CPU
        correct = (log_p_M >= log_p_MC.amax(-1)).sum()
    total = (1 - smoothing) * nll - smoothing * log_p_MC.mean(-1).sum() if smoothing else nll
    return total, nll.detach(), correct

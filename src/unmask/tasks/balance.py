"""Classes of unequal size: weights in the loss, the focal loss.

Shapes: M targets, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.types import Loss


@dataclass(frozen=True)
class ClassLoss:
    """-w_y (1 - p_y)^gamma log p_y, summed over the targets (Lin et al. 2017, "Focal Loss", equation 5).

    weights  [C] of the classes, 1 on average over the training rows; None is 1 for each
    gamma    how little what is already right counts; 0 is plain cross-entropy
    """

    weights: tuple[float, ...] | None = None
    gamma: float = 0.0

    def __call__(self, logits_MC: Tensor, values_M: Tensor) -> Loss:
        """The sum, in nats, with the number of targets where no class is likelier than the right one."""
        weights = None if self.weights is None else torch.tensor(self.weights, device=logits_MC.device)
        losses_M = F.cross_entropy(logits_MC, values_M, weight=weights, reduction="none")
        if self.gamma:
            right_M = logits_MC.log_softmax(-1).gather(-1, values_M[:, None]).squeeze(-1).exp()
            # Where p rounds to 1, a power below 1 would have an infinite slope, and the product none at all.
            losses_M = losses_M * (1 - right_M).clamp(min=torch.finfo(right_M.dtype).eps) ** self.gamma
        with torch.no_grad():
            correct = (logits_MC.gather(-1, values_M[:, None]).squeeze(-1) >= logits_MC.amax(-1)).sum()
        return Loss(losses_M.sum(), values_M.numel(), {"correct": correct})


def balanced(counts: Sequence[int]) -> tuple[float, ...]:
    """Weights with which all classes count alike and rows 1 on average: n / (C n_c), as scikit-learn's "balanced".

    A class without rows gets 0.
    """
    number = np.asarray(counts, np.float64)
    present = number > 0
    weights = np.divide(number.sum(), present.sum() * number, out=np.zeros_like(number), where=present)
    return tuple(weights.tolist())

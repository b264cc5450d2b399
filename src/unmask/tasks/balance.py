"""Classes of unequal size: weights in the loss, the focal loss.

Shapes: M targets, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.tasks.rows import TaskOptions
from unmask.types import Loss


@dataclass(frozen=True)
class ClassLoss:
    """-w_y (1 - p_y)^gamma log p_y, summed over the targets (Lin et al. 2017, "Focal Loss", equation 5).

    weights  [C] of the classes, 1 on average over the training rows; None is 1 for each
    gamma    how strongly targets that are predicted well are down-weighted; 0 is plain cross-entropy
    """

    weights: tuple[float, ...] | None = None
    gamma: float = 0.0

    def __call__(self, logits_MC: Tensor, values_M: Tensor) -> Loss:
        """The sum, in nats; `correct` counts the targets whose class no other exceeds."""
        weights = None if self.weights is None else torch.tensor(self.weights, device=logits_MC.device)
        losses_M = F.cross_entropy(logits_MC, values_M, weight=weights, reduction="none")
        if self.gamma:
            p_M = logits_MC.log_softmax(-1).gather(-1, values_M[:, None]).squeeze(-1).exp()
            # Where p rounds to 1, a power below 1 would have an infinite slope, and the gradient would be nan.
            losses_M = losses_M * (1 - p_M).clamp(min=torch.finfo(p_M.dtype).eps) ** self.gamma
        with torch.no_grad():
            correct = (logits_MC.gather(-1, values_M[:, None]).squeeze(-1) >= logits_MC.amax(-1)).sum()
        return Loss(losses_M.sum(), values_M.numel(), {"correct": correct})


def balanced(counts: Sequence[int]) -> tuple[float, ...]:
    """Weights with which all classes count equally and rows 1 on average: n / (C n_c), as scikit-learn's "balanced".

    A class without rows gets 0.
    """
    number = np.asarray(counts, np.float64)
    present = number > 0
    weights = np.divide(number.sum(), present.sum() * number, out=np.zeros_like(number), where=present)
    return tuple(weights.tolist())


@dataclass(frozen=True, kw_only=True)
class Weighing(TaskOptions):
    """Options of tasks whose classes may be of unequal size.

    balance  "weights" gives rare classes more weight, "focal" rows that are predicted badly (Lin et al. 2017)
    gamma    of the focal loss
    """

    balance: Literal["none", "weights", "focal"] = "none"
    gamma: float = 2.0

    def check(self) -> None:
        if self.gamma != Weighing().gamma and self.balance != "focal":
            raise UnmaskError("--gamma is for the focal loss: set --balance focal, or leave it out.")

    def weighing(self, counts: Sequence[int]) -> ClassLoss | None:
        """The loss with weights for classes; None for plain cross-entropy. `counts` are the rows, or words, of each
        class. Raises UnmaskError for a gamma that is not above 0."""
        if self.gamma <= 0:
            raise UnmaskError(f"--gamma must be above 0, not {self.gamma:g}.")
        if self.balance == "weights":
            return ClassLoss(balanced(counts))
        return ClassLoss(gamma=self.gamma) if self.balance == "focal" else None

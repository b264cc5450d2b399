"""Triplets within a batch: an anchor, a positive of its class, and a negative of another class (Schroff et al. 2015).

Shapes: N vectors, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.errors import UnmaskError, unknown
from unmask.types import Loss

Miner = Literal["semi-hard", "hard", "all"]


@dataclass(frozen=True)
class BatchTriplets:
    """max(0, |a - p|^2 - |a - n|^2 + margin) of triplets of the vectors of a batch, which have length 1 (Schroff et al.
    2015, "FaceNet", equation 3). A miner chooses the triplets:

    semi-hard  each positive of an anchor, with the nearest negative that is farther than the positive (section 3.2);
               where no negative is, with the farthest one, which violates the margin least
    hard       the farthest positive and the nearest negative of each anchor (Hermans et al. 2017, equation 5)
    all        each positive with each negative (equation 3, without a choice)

    The loss of an anchor is the mean over its triplets, so that it depends neither on the size of the batch nor on the
    miner's number of triplets. An anchor without a positive or a negative has none, and counts as 0.
    """

    margin: float = 0.2
    miner: Miner = "semi-hard"

    def __post_init__(self) -> None:
        if self.miner not in MINERS:
            raise unknown("miner", self.miner, MINERS)
        if self.margin <= 0:
            raise UnmaskError(f"The margin between distances must be above 0, not {self.margin:g}.")

    def __call__(self, units_ND: Tensor, classes_N: Tensor) -> Loss:
        """The loss summed over the N anchors; the metric `active` sums the shares of their triplets whose loss is not
        0."""
        far_NN = (2 - 2 * units_ND @ units_ND.T).clamp(min=0)
        alike_NN = classes_N[:, None] == classes_N
        positive_NN = alike_NN & ~torch.eye(len(classes_N), dtype=torch.bool, device=classes_N.device)
        complete_N1 = (positive_NN.any(1) & ~alike_NN.all(1))[:, None]
        chosen_NN, losses_NN, active_NN = MINERS[self.miner](far_NN, positive_NN, ~alike_NN, self.margin)
        chosen_NN = chosen_NN & complete_N1
        share_NN = chosen_NN.to(far_NN.dtype) / chosen_NN.sum(1, keepdim=True).clamp(min=1)
        total = (torch.where(chosen_NN, losses_NN, 0.0) * share_NN).sum()
        active = (torch.where(chosen_NN, active_NN, 0.0) * share_NN).sum()
        return Loss(total, len(classes_N), {"active": active.detach()})


Mined = tuple[Tensor, Tensor, Tensor]
"""For each pair of an anchor and another vector [N, N]: whether it is chosen; the mean loss of its triplets; the share
of them whose loss is not 0. The last two are defined for chosen pairs."""


def _semi_hard(far_NN: Tensor, positive_NN: Tensor, negative_NN: Tensor, margin: float) -> Mined:
    sorted_NN, order_NN = far_NN.detach().masked_fill(~negative_NN, torch.inf).sort(1)
    nearer_NN = torch.searchsorted(sorted_NN, far_NN.detach(), right=True)  # negatives that are not farther than a pair
    last_N1 = (negative_NN.sum(1, keepdim=True) - 1).clamp(min=0)
    negatives_NN = far_NN.gather(1, order_NN.gather(1, torch.minimum(nearer_NN, last_N1)))
    return positive_NN, *_hinge(far_NN - negatives_NN + margin)


def _hard(far_NN: Tensor, positive_NN: Tensor, negative_NN: Tensor, margin: float) -> Mined:
    farthest_N = far_NN.detach().masked_fill(~positive_NN, -torch.inf).argmax(1)
    nearest_N = far_NN.detach().masked_fill(~negative_NN, torch.inf).argmin(1)
    chosen_NN = positive_NN & F.one_hot(farthest_N, len(far_NN)).bool()
    return chosen_NN, *_hinge(far_NN - far_NN.gather(1, nearest_N[:, None]) + margin)


def _all(far_NN: Tensor, positive_NN: Tensor, negative_NN: Tensor, margin: float) -> Mined:
    """Of the sorted negatives, the first k have a loss; their sum is k (|a - p|^2 + margin) minus a prefix sum."""
    limit_NN, total_N1 = far_NN + margin, negative_NN.sum(1, keepdim=True).clamp(min=1)
    sorted_NN, _ = far_NN.masked_fill(~negative_NN, torch.inf).sort(1)
    k_NN = torch.searchsorted(sorted_NN.detach(), limit_NN.detach())
    prefix_NN = F.pad(sorted_NN.masked_fill(sorted_NN.isinf(), 0.0).cumsum(1), (1, 0)).gather(1, k_NN)
    return positive_NN, (k_NN * limit_NN - prefix_NN) / total_N1, k_NN / total_N1


def _hinge(x: Tensor) -> tuple[Tensor, Tensor]:
    return F.relu(x), (x.detach() > 0).to(x.dtype)


MINERS: dict[str, Callable[[Tensor, Tensor, Tensor, float], Mined]] = {
    "semi-hard": _semi_hard,
    "hard": _hard,
    "all": _all,
}
assert tuple(MINERS) == get_args(Miner)

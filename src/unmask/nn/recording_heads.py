"""Heads for whole recordings: classes of their mean, x-vectors, and classes as directions (AM-softmax).

Shapes: M recordings, S frames of the longest one, D width, E numbers of a vector, P speakers or other classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.kernels.formats import exact
from unmask.nn.convolution import Convolution
from unmask.nn.head import Classifier


class ProjectedClassifier(Classifier):
    """output(dropout(project(x))). The mean of projected frames, which the reference computes, is the projection of
    their mean."""

    def __init__(self, dim: int, width: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__(width, outputs, dropout)
        self.project = nn.Linear(dim, width)

    def forward(self, x_MD: Tensor) -> Tensor:
        """[..., D] -> logits [..., outputs]."""
        return super().forward(self.project(x_MD))

    @torch.no_grad()
    def on_a_trunk(self) -> None:
        """As `Classifier.on_a_trunk`, for both layers."""
        super().on_a_trunk()
        weight = self.project.weight
        weight.mul_(weight.shape[-1] ** -0.5 / weight.square().mean().sqrt())


class TimeDelay(Convolution):
    """relu(W [x_t; x_t+d; …]): one layer of a time-delay network (Snyder et al. 2018, table 1)."""

    def forward(self, x_MSD: Tensor) -> Tensor:
        """[M, S, D] -> [M, S - R, C]."""
        return self.mix(x_MSD).relu()


class XVector(nn.Module):
    """A vector for a recording of any length: time-delay layers, mean and deviation over time, a linear map (Snyder et
    al. 2018, sections 2.1 and 3).

    dims, kernels, dilations  of the time-delay layers; frames are projected to dims[0] first
    outputs                   E
    """

    def __init__(
        self, dim: int, dims: Sequence[int], kernels: Sequence[int], dilations: Sequence[int], outputs: int
    ) -> None:
        super().__init__()
        self.project = nn.Linear(dim, dims[0])
        sizes = zip((dims[0], *dims), dims, kernels, dilations, strict=False)
        self.layers = nn.ModuleList(TimeDelay(a, b, kernel, dilation=by) for a, b, kernel, by in sizes)
        self.output = nn.Linear(2 * dims[-1], outputs)
        self.reach = sum(layer.reach for layer in self.layers if isinstance(layer, TimeDelay))

    def forward(self, frames_MSD: Tensor, lengths_M: Tensor) -> Tensor:
        """[M, S, D] -> [M, E]. The deviation is the unbiased one. A recording too short for two outputs of the layers
        gets zeros at its end, with which the reference would fail.

        lengths_M  number of frames of each recording; what lies behind them has no effect
        """
        S = max(frames_MSD.shape[1], self.reach + 2)
        places_S = torch.arange(S, device=frames_MSD.device)
        inside_MS = places_S < lengths_M[:, None]
        frames_MSD = F.pad(frames_MSD, (0, 0, 0, S - frames_MSD.shape[1]))
        x_MSC = self.project(frames_MSD).where(inside_MS[..., None], 0)
        for layer in self.layers:
            x_MSC = layer(x_MSC)
        outputs_M = (lengths_M - self.reach).clamp(min=2)
        return self.output(_statistics(exact(x_MSC), outputs_M).to(x_MSC.dtype))


def _statistics(x_MSC: Tensor, lengths_M: Tensor) -> Tensor:
    """[M, 2 C]: mean and unbiased deviation over the first places of each row."""
    inside_MS1 = (torch.arange(x_MSC.shape[1], device=x_MSC.device) < lengths_M[:, None])[..., None]
    count_M1 = lengths_M[:, None].to(x_MSC.dtype)
    mean_MC = x_MSC.where(inside_MS1, 0).sum(1) / count_M1
    squares_MC = (x_MSC - mean_MC[:, None]).where(inside_MS1, 0).square().sum(1)
    # The root of zero has no gradient; a channel that ReLU has silenced for a whole recording has that deviation.
    variance_MC = squares_MC / (count_M1 - 1)
    deviation_MC = variance_MC.where(variance_MC > 0, 1).sqrt().where(variance_MC > 0, 0)
    return torch.cat([mean_MC, deviation_MC], -1)


class Prototypes(nn.Module):
    """The cosine of a vector with one learned direction for each class, of which a loss such as AM-softmax makes logits
    (Wang et al. 2018, "Additive margin softmax for face verification", section 3).

    It reads the outputs of an `embedding` head, as transitions read those of a `token` head; `project` comes first.
    """

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.project, self.output = nn.Linear(dim, dim), nn.Linear(dim, classes, bias=False)

    def forward(self, vectors_ME: Tensor) -> Tensor:
        """[M, E] -> [M, P], from -1 to 1."""
        x_ME = F.normalize(self.project(vectors_ME), dim=-1)
        return F.linear(x_ME, F.normalize(self.output.weight, dim=-1))


class LayerMix(nn.Module):
    """The mean of all layers with weights softmax(w), learned for a task (Yang et al. 2021, SUPERB, section 2)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(layers))
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:
        """Equal weights."""
        nn.init.constant_(self.weight, 1 / len(self.weight))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """One [..., D] for each layer -> [..., D]."""
        parts = zip(self.weight.softmax(0), layers, strict=True)
        return torch.stack([share * layer for share, layer in parts]).sum(0)

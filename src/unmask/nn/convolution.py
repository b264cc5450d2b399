"""Convolutions over sequences: gated (ConvS2S), causal with windows, dilated (WaveNet); weight normalisation.

Shapes: B rows, T tokens, D width in, C width out, K width of the kernel, R = (K - 1) * dilation places of the past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unmask.errors import UnmaskError
from unmask.nn.dropout import Dropout

Layer = TypeVar("Layer", bound=nn.Module)


class Convolution(nn.Linear):
    """W [x_i; x_i+d; …; x_i+(K-1)d] + b: K neighbours, side by side, through one matrix (Gehring et al. 2017, 3.2).

    Column (k * D + j) of the weight reads feature j of neighbour k. Which neighbours a place has is said by
    `CentredConvolution` and `CausalConvolution`.

    kernel    K, number of neighbours, the place itself included
    dilation  d, places from one neighbour to the next
    """

    def __init__(self, dim: int, outputs: int, kernel: int, *, dilation: int = 1):
        if kernel < 1 or dilation < 1:
            raise UnmaskError(
                f"A convolution needs a kernel and a dilation of at least 1, not {kernel} and {dilation}."
            )
        super().__init__(kernel * dim, outputs)
        self.kernel, self.dilation = kernel, dilation

    @property
    def reach(self) -> int:
        """R, places from the first neighbour to the last."""
        return (self.kernel - 1) * self.dilation

    def mix(self, wide_BTD: Tensor) -> Tensor:
        """[B, T + R, D] -> [B, T, C]: rows that already have all neighbours of their T places."""
        T = wide_BTD.shape[1] - self.reach
        starts = range(0, self.reach + 1, self.dilation)
        return F.linear(torch.cat([wide_BTD[:, start : start + T] for start in starts], dim=-1), self.weight, self.bias)


class CentredConvolution(Convolution):
    """As many neighbours on the left as on the right; beyond the ends there are zeros. For encoders."""

    def __init__(self, dim: int, outputs: int, kernel: int, *, dilation: int = 1):
        if kernel % 2 == 0:
            raise UnmaskError(f"A centred kernel has a middle, so its width must be odd, not {kernel}.")
        super().__init__(dim, outputs, kernel, dilation=dilation)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, C]."""
        side = self.reach // 2
        return self.mix(F.pad(x_BTD, (0, 0, side, side)))


class Window:
    """The last R inputs of a causal convolution, [B, R, D]: all that it needs to continue with the next tokens.

    past  None before the first token, where zeros stand
    """

    def __init__(self) -> None:
        self.past: Tensor | None = None

    def extend(self, x_BTD: Tensor, reach: int) -> Tensor:
        """The new tokens with the R places before them, [B, R + T, D]; the last R are kept for the next call."""
        past_BRD = x_BTD.new_zeros(x_BTD.shape[0], reach, x_BTD.shape[2]) if self.past is None else self.past
        wide_BTD = torch.cat([past_BRD, x_BTD], dim=1)
        self.past = wide_BTD[:, wide_BTD.shape[1] - reach :]
        return wide_BTD

    def select(self, rows: Tensor) -> None:
        """Row i continues from row rows[i]."""
        if self.past is not None:
            self.past = self.past[rows]


class CausalConvolution(Convolution):
    """The place itself and those before it; before the first there are zeros. For decoders and language models."""

    def forward(self, x_BTD: Tensor, window: Window | None = None) -> Tensor:
        """[B, T, D] -> [B, T, C].

        window  what came before, where the sequence is fed in pieces of any length; it takes in the new tokens
        """
        return self.mix((Window() if window is None else window).extend(x_BTD, self.reach))


class GatedConvolution(nn.Module):
    """glu([A B]) = A * sigmoid(B), the gated linear unit (Dauphin et al. 2017, equation 1; Gehring et al. 2017, 3.2).

    convolution  gives [B, T, 2 C]: A and B side by side
    dropout      rate on its input
    """

    def __init__(self, convolution: Convolution, *, dropout: float = 0.0):
        super().__init__()
        self.convolution, self.dropout = convolution, Dropout(dropout)

    def forward(self, x_BTD: Tensor, window: Window | None = None) -> Tensor:
        """[B, T, D] -> [B, T, C]; a window goes to a causal convolution."""
        x_BTD = self.dropout(x_BTD)
        return F.glu(self.convolution(x_BTD) if window is None else self.convolution(x_BTD, window), dim=-1)


class GatedBlock(nn.Module):
    """scaled_sum(project(x), gated(x)): one layer of a convolutional encoder (Gehring et al. 2017, section 3.2).

    project  brings x to the width of the output, where the two differ
    """

    def __init__(self, gated: GatedConvolution, *, project: nn.Module | None = None):
        super().__init__()
        self.gated, self.project = gated, project or nn.Identity()

    def forward(self, x_BTD: Tensor, real_BT1: Tensor | None = None) -> Tensor:
        """[B, T, D] -> [B, T, C].

        real_BT1  1 for tokens and 0 for padding, which then reads as the zeros beyond the end of a sequence, so that
                  rows of different lengths give what each gives alone; None: nothing is padded
        """
        x_BTD = x_BTD if real_BT1 is None else x_BTD * real_BT1
        return scaled_sum(self.project(x_BTD), self.gated(x_BTD))


def scaled_sum(x: Tensor, y: Tensor) -> Tensor:
    """(x + y) sqrt(0.5): where both have variance 1, so has this (Gehring et al. 2017, section 3.4)."""
    return (x + y) * math.sqrt(0.5)


class DilatedStack(nn.Module):
    """WaveNet's stack of dilated causal convolutions (van den Oord et al. 2016, sections 2.1, 2.3 and 2.4).

    Every layer computes z = tanh(W_f * x) sigmoid(W_g * x) (equation 2), adds a 1 x 1 convolution of z to x for the
    next layer, and another one to the sum of the skips, which is the output.

    skip       width of the output
    dilations  of each layer; published are repeats of 1, 2, 4, …, 512, which double what is seen with each layer
    kernel     K of each layer

    `receptive_field` is 1 + the sum of (K - 1) * dilation: tokens that an output depends on, its own included.
    """

    def __init__(self, dim: int, skip: int, dilations: Sequence[int], *, kernel: int = 2):
        super().__init__()
        if not dilations:
            raise UnmaskError("A dilated stack needs at least one layer; give the dilation of each, as in [1, 2, 4].")
        self.convolutions = nn.ModuleList(CausalConvolution(dim, 2 * dim, kernel, dilation=d) for d in dilations)
        self.residuals = nn.ModuleList(nn.Linear(dim, dim) for _ in dilations[1:])  # nothing follows the last layer
        self.skips = nn.ModuleList(nn.Linear(dim, skip) for _ in dilations)
        self.receptive_field = 1 + (kernel - 1) * sum(dilations)

    def windows(self) -> list[Window]:
        """What the stack keeps while it writes, one window a layer: R inputs each, however long the sequence."""
        return [Window() for _ in self.convolutions]

    def forward(self, x_BTD: Tensor, windows: Sequence[Window] | None = None) -> Tensor:
        """[B, T, D] -> [B, T, skip]; with `windows`, x goes on where the call before ended."""
        windows = self.windows() if windows is None else windows
        outputs = []
        for i, (convolution, skip, window) in enumerate(zip(self.convolutions, self.skips, windows, strict=True)):
            z_BTD = gated_tanh(convolution(x_BTD, window))
            outputs.append(skip(z_BTD))
            if i < len(self.residuals):
                x_BTD = x_BTD + self.residuals[i](z_BTD)
        return torch.stack(outputs).sum(0)


def gated_tanh(x_BTC: Tensor) -> Tensor:
    """tanh(f) * sigmoid(g) of [f g] side by side, [..., 2 C] -> [..., C] (van den Oord et al. 2016, equation 2)."""
    f, g = x_BTC.chunk(2, dim=-1)
    return f.tanh() * g.sigmoid()


class WeightNorm(nn.Module):
    """w = g v / |v|: the length g [C] of every output's weights apart from their direction v [C, D].

    Salimans and Kingma 2016, section 2, equation 2. In evaluation without gradients the product is kept until g or v
    changes, so that writing token by token does not compute it for every token. A change of mode lets go of it too,
    because fused optimisers change parameters and leave no trace.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: tuple[tuple[object, ...], Tensor] | None = None

    def forward(self, g_C: Tensor, v_CD: Tensor) -> Tensor:
        """[C], [C, D] -> w [C, D]."""
        if self.training or torch.is_grad_enabled() or g_C.is_inference():
            self._kept = None
            return g_C[:, None] * F.normalize(v_CD, dim=1)
        stamp = tuple(fact for p in (g_C, v_CD) for fact in (p.data_ptr(), p._version, p.dtype))
        kept = self._kept  # once: another thread may change it meanwhile
        if kept is None or kept[0] != stamp:
            self._kept = kept = stamp, g_C[:, None] * F.normalize(v_CD, dim=1)
        return kept[1]

    def train(self, mode: bool = True) -> WeightNorm:
        self._kept = None
        return super().train(mode)

    def right_inverse(self, w_CD: Tensor) -> tuple[Tensor, Tensor]:
        """w [C, D] -> g [C], v [C, D]: what assigning to `layer.weight` stores."""
        return w_CD.norm(dim=1), w_CD


def weight_norm(layer: Layer) -> Layer:
    """The same layer, its `weight` [C, D] made of a length and a direction, which are trained in its place."""
    parametrize.register_parametrization(layer, "weight", WeightNorm())
    return layer

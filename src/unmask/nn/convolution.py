"""Convolutions over sequences: gated (ConvS2S), causal with windows, dilated (WaveNet); weight normalisation.

Shapes: B rows, T tokens, D input width, C output width, K width of the kernel, R = (K - 1) * dilation past places.
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
    """W [x_i; x_i+d; …; x_i+(K-1)d] + b: one matrix for K concatenated neighbours (Gehring et al. 2017, 3.2).

    Column (k * D + j) of the weight reads feature j of neighbour k. The subclasses `CentredConvolution` and
    `CausalConvolution` choose the neighbours of a place.

    kernel    K, number of neighbours, the place itself included
    dilation  d, distance from one neighbour to the next
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
        """R, the distance from the first neighbour to the last."""
        return (self.kernel - 1) * self.dilation

    def mix(self, wide_BTD: Tensor) -> Tensor:
        """[B, T + R, D] -> [B, T, C], for rows that include all neighbours of their T places."""
        T = wide_BTD.shape[1] - self.reach
        starts = range(0, self.reach + 1, self.dilation)
        return F.linear(torch.cat([wide_BTD[:, start : start + T] for start in starts], dim=-1), self.weight, self.bias)


class CentredConvolution(Convolution):
    """A convolution with as many neighbours on the left as on the right, and zeros beyond the ends; for encoders."""

    def __init__(self, dim: int, outputs: int, kernel: int, *, dilation: int = 1):
        if kernel % 2 == 0:
            raise UnmaskError(f"The width of a centred kernel must be odd, not {kernel}.")
        super().__init__(dim, outputs, kernel, dilation=dilation)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, C]."""
        side = self.reach // 2
        return self.mix(F.pad(x_BTD, (0, 0, side, side)))


class Window:
    """The last R inputs of a causal convolution, [B, R, D], from which it continues with the next tokens.

    past  these inputs; None before the first token, which stands for zeros
    """

    def __init__(self) -> None:
        self.past: Tensor | None = None

    def extend(self, x_BTD: Tensor, reach: int) -> Tensor:
        """The R past inputs and the new tokens, [B, R + T, D]; the window keeps the last R for the next call."""
        past_BRD = x_BTD.new_zeros(x_BTD.shape[0], reach, x_BTD.shape[2]) if self.past is None else self.past
        wide_BTD = torch.cat([past_BRD, x_BTD], dim=1)
        self.past = wide_BTD[:, wide_BTD.shape[1] - reach :]
        return wide_BTD

    def select(self, rows: Tensor) -> None:
        """Row i continues from row rows[i]."""
        if self.past is not None:
            self.past = self.past[rows]


class CausalConvolution(Convolution):
    """A convolution over the place itself and those before it, with zeros before the first; for decoders and language
    models."""

    def forward(self, x_BTD: Tensor, window: Window | None = None) -> Tensor:
        """[B, T, D] -> [B, T, C].

        window  the past inputs, if the sequence is fed in pieces of any length; it is updated with the new tokens
        """
        return self.mix((Window() if window is None else window).extend(x_BTD, self.reach))


class GatedConvolution(nn.Module):
    """glu([A B]) = A * sigmoid(B), the gated linear unit (Dauphin et al. 2017, equation 1; Gehring et al. 2017, 3.2).

    convolution  returns [B, T, 2 C], the concatenation of A and B
    dropout      rate on its input
    """

    def __init__(self, convolution: Convolution, *, dropout: float = 0.0):
        super().__init__()
        self.convolution, self.dropout = convolution, Dropout(dropout)

    def forward(self, x_BTD: Tensor, window: Window | None = None) -> Tensor:
        """[B, T, D] -> [B, T, C]; a window is passed to a causal convolution."""
        x_BTD = self.dropout(x_BTD)
        return F.glu(self.convolution(x_BTD) if window is None else self.convolution(x_BTD, window), dim=-1)


class GatedBlock(nn.Module):
    """scaled_sum(project(x), gated(x)): one layer of a convolutional encoder (Gehring et al. 2017, section 3.2).

    project  maps x to the width of the output, if they differ
    """

    def __init__(self, gated: GatedConvolution, *, project: nn.Module | None = None):
        super().__init__()
        self.gated, self.project = gated, project or nn.Identity()

    def forward(self, x_BTD: Tensor, real_BT1: Tensor | None = None) -> Tensor:
        """[B, T, D] -> [B, T, C].

        real_BT1  1 for tokens and 0 for padding, which becomes zeros as beyond the end of a sequence, so that the
                  outputs of a row do not depend on its padding; None: nothing is padded
        """
        x_BTD = x_BTD if real_BT1 is None else x_BTD * real_BT1
        return scaled_sum(self.project(x_BTD), self.gated(x_BTD))


def scaled_sum(x: Tensor, y: Tensor) -> Tensor:
    """(x + y) sqrt(0.5), which has variance 1 if x and y have (Gehring et al. 2017, section 3.4)."""
    return (x + y) * math.sqrt(0.5)


class DilatedStack(nn.Module):
    """WaveNet's stack of dilated causal convolutions (van den Oord et al. 2016, sections 2.1, 2.3 and 2.4).

    Each layer computes z = tanh(W_f * x) sigmoid(W_g * x) (equation 2). A 1 x 1 convolution of z is added to x for the
    next layer, and another one is the skip of the layer; the sum of the skips is the output.

    skip       width of the output
    dilations  dilation of each layer; the paper repeats 1, 2, 4, …, 512, which doubles the receptive field with each
               layer
    kernel     K of each layer

    `receptive_field` is 1 + the sum of (K - 1) * dilation: the number of tokens that an output depends on.
    """

    def __init__(self, dim: int, skip: int, dilations: Sequence[int], *, kernel: int = 2):
        super().__init__()
        if not dilations:
            raise UnmaskError("A dilated stack needs at least one layer; give the dilations, such as [1, 2, 4].")
        self.convolutions = nn.ModuleList(CausalConvolution(dim, 2 * dim, kernel, dilation=d) for d in dilations)
        self.residuals = nn.ModuleList(nn.Linear(dim, dim) for _ in dilations[1:])  # nothing follows the last layer
        self.skips = nn.ModuleList(nn.Linear(dim, skip) for _ in dilations)
        self.receptive_field = 1 + (kernel - 1) * sum(dilations)

    def windows(self) -> list[Window]:
        """An empty window for each layer: in generation the stack keeps R inputs of each, for any sequence length."""
        return [Window() for _ in self.convolutions]

    def forward(self, x_BTD: Tensor, windows: Sequence[Window] | None = None) -> Tensor:
        """[B, T, D] -> [B, T, skip]; with `windows`, x continues the tokens of the previous call."""
        windows = self.windows() if windows is None else windows
        outputs = []
        for i, (convolution, skip, window) in enumerate(zip(self.convolutions, self.skips, windows, strict=True)):
            z_BTD = gated_tanh(convolution(x_BTD, window))
            outputs.append(skip(z_BTD))
            if i < len(self.residuals):
                x_BTD = x_BTD + self.residuals[i](z_BTD)
        return torch.stack(outputs).sum(0)


def gated_tanh(x_BTC: Tensor) -> Tensor:
    """tanh(f) * sigmoid(g) of the concatenation [f g], [..., 2 C] -> [..., C] (van den Oord et al. 2016, eq. 2)."""
    f, g = x_BTC.chunk(2, dim=-1)
    return f.tanh() * g.sigmoid()


class WeightNorm(nn.Module):
    """w = g v / |v|, with separate length g [C] and direction v [C, D] of the weights of each output.

    Salimans and Kingma 2016, section 2, equation 2. In evaluation without gradients, w is cached until g or v changes,
    so that generation does not compute it for every token. A change of mode clears the cache too, because fused
    optimisers change parameters without a new version number.
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
        kept = self._kept  # read once: another thread may change it meanwhile
        if kept is None or kept[0] != stamp:
            self._kept = kept = stamp, g_C[:, None] * F.normalize(v_CD, dim=1)
        return kept[1]

    def train(self, mode: bool = True) -> WeightNorm:
        self._kept = None
        return super().train(mode)

    def right_inverse(self, w_CD: Tensor) -> tuple[Tensor, Tensor]:
        """w [C, D] -> g [C], v [C, D], which an assignment to `layer.weight` stores."""
        return w_CD.norm(dim=1), w_CD


def weight_norm(layer: Layer) -> Layer:
    """Apply `WeightNorm` to the `weight` [C, D] of a layer, in place, and return the layer."""
    parametrize.register_parametrization(layer, "weight", WeightNorm())
    return layer

"""From samples of recordings to frames: strided convolutions, their norms, masked frames, positions by a convolution.

Recordings lie one after the other in a buffer, each from a multiple of the total stride on (`Tape`), and no window of a
frame reaches beyond its recording. So a frame does not depend on padding or on the other recordings of a batch.

Shapes: B rows, T places of a row, R recordings, L places of the buffer, M frames of all recordings, C channels of a
frame, O outputs of a convolution, D width, N sequences, S frames of the longest one, K width of a kernel.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.kernels.strided import strided
from unmask.nn.dropout import Dropout
from unmask.nn.sequences import Sequences
from unmask.types import Kind, Signal

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Tape:
    """Where recordings lie in a buffer.

    begins   first place of each recording
    lengths  number of places of each
    size     L, all places of the buffer
    """

    begins: tuple[int, ...]
    lengths: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, lengths: Sequence[int], hop: int, window: int) -> Self:
        """Recordings of these numbers of samples, each from a multiple of `hop` on; a window from the last multiple on
        fits into the buffer."""
        begins, end = [], 0
        for length in lengths:
            begins.append(end)
            end += -(-length // hop) * hop
        return cls(tuple(begins), tuple(lengths), end + max(0, window - hop))

    def after(self, kernel: int, stride: int) -> Self:
        """The places that remain after a convolution without padding."""
        begins = tuple(begin // stride for begin in self.begins)
        lengths = tuple(max(0, (length - kernel) // stride + 1) for length in self.lengths)
        return type(self)(begins, lengths, (self.size - kernel) // stride + 1)

    def lay(self, values: Tensor) -> Tensor:
        """Concatenated recordings -> the buffer [L], zero between and behind them."""
        if not self.begins:
            return values.new_zeros(self.size)
        parts, ends = values.split(list(self.lengths)), (*self.begins[1:], self.size)
        chunks = zip(parts, self.begins, ends, strict=True)
        return torch.cat([F.pad(x, (0, end - begin - len(x))) for x, begin, end in chunks])

    def rows(self, device: torch.device) -> Tensor:
        """[M]: the places of all recordings in the buffer, in order."""
        return self.spread(torch.tensor(self.begins, dtype=torch.int64, device=device))

    def spread(self, firsts_R: Tensor) -> Tensor:
        """[M]: the places that recordings fill from these first places on."""
        lengths_R = torch.tensor(self.lengths, dtype=torch.int64, device=firsts_R.device)
        total, before_R = sum(self.lengths), lengths_R.cumsum(0) - lengths_R
        shifts_M = (firsts_R - before_R).repeat_interleave(lengths_R, output_size=total)
        return shifts_M + torch.arange(total, device=firsts_R.device)


class RecordingNorm(nn.Module):
    """Normalises each channel by its mean and variance over the places of a recording: `torch.nn.GroupNorm` with a
    group for each channel, as if each recording were alone. The reference takes in padding (docs/wav2vec2.md)."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def reset_parameters(self) -> None:
        """Weights 1, biases 0."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x_LC: Tensor, tape: Tape) -> Tensor:
        """[L, C] -> [L, C], zero between recordings."""
        if not tape.begins:
            return torch.zeros_like(x_LC)
        ends = (*tape.begins[1:], tape.size)
        gaps = [end - begin - length for begin, length, end in zip(tape.begins, tape.lengths, ends, strict=True)]
        # Split at once: the gradient of a slice is as large as the buffer.
        pieces = x_LC.split([size for pair in zip(tape.lengths, gaps, strict=True) for size in pair])
        parts = []
        for x_NC, gap_NC in zip(pieces[::2], pieces[1::2], strict=True):
            # Batch normalisation of one recording: its places are the rows of a batch.
            parts.append(torch.batch_norm(x_NC, self.weight, self.bias, None, None, True, 0.0, self.eps, False))
            parts.append(torch.zeros_like(gap_NC))
        return torch.cat(parts)


class PlaceNorm(nn.LayerNorm):
    """Layer normalisation of each place."""

    def forward(self, x_LC: Tensor, tape: Tape | None = None) -> Tensor:
        """[L, C] -> [L, C]."""
        return super().forward(x_LC)


class StridedConvolution(nn.Linear):
    """activation(norm(W * x)) over a buffer of recordings.

    norm    `RecordingNorm`, `PlaceNorm` or None
    bias    whether the convolution has one

    The weight is [O, K * C]: column (k * C + j) reads channel j of place k of a window.
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        kernel: int,
        stride: int,
        *,
        bias: bool = False,
        norm: nn.Module | None = None,
        activation: Activation = F.gelu,
    ) -> None:
        super().__init__(kernel * channels, outputs, bias)
        self.kernel, self.stride, self.norm, self.activation = kernel, stride, norm, activation

    def forward(self, x_LC: Tensor, tape: Tape) -> tuple[Tensor, Tape]:  # type: ignore[override]
        """[L, C] -> [L', O], and where the recordings lie in it."""
        y_LO, tape = strided(x_LC, self.weight, self.bias, self.stride), tape.after(self.kernel, self.stride)
        return self.activation(y_LO if self.norm is None else self.norm(y_LO, tape)), tape


class Features(nn.Module, ABC):
    """What a model reads of samples.

    hop       samples from the beginning of a frame to that of the next one
    window    samples that a frame depends on
    channels  C
    """

    hop: int
    window: int
    channels: int

    @abstractmethod
    def forward(self, samples_L: Tensor, tape: Tape) -> tuple[Tensor, Tape]:
        """[L] -> the features of frames [L', C], and where the frames of the recordings lie in them."""

    @abstractmethod
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights."""


class Convolutions(Features):
    """Frames of recordings by strided convolutions (wav2vec 2.0, Baevski et al. 2020, section 2).

    gradient  factor on the gradients of all layers (`feature_grad_mult` of the authors' code)
    """

    def __init__(self, layers: Sequence[StridedConvolution], *, gradient: float = 1.0) -> None:
        super().__init__()
        self.layers, self.gradient = nn.ModuleList(layers), gradient
        self.hop, self.window = reach([layer.kernel for layer in layers], [layer.stride for layer in layers])
        self.channels = layers[-1].out_features

    def initialise(self, generator: torch.Generator) -> None:
        """Weights from a normal with variance 2 / (inputs) (He et al. 2015, forward form); biases 0; norms as new."""
        for part in self.modules():
            if isinstance(part, StridedConvolution):
                nn.init.kaiming_normal_(part.weight, generator=generator)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif isinstance(part, RecordingNorm | PlaceNorm):
                part.reset_parameters()

    def for_inference(self, dtype: torch.dtype) -> Self:
        """A copy that computes in a number format. The statistics of recordings keep their weights in float32."""
        found = copy.deepcopy(self).requires_grad_(False).to(dtype)
        for part in found.modules():
            if isinstance(part, RecordingNorm):
                part.float()
        return found

    def forward(self, samples_L: Tensor, tape: Tape) -> tuple[Tensor, Tape]:
        x_LC = samples_L[:, None].to(next(self.layers.parameters()).dtype)
        for layer in self.layers:
            x_LC, tape = layer(x_LC, tape)
        return (x_LC if self.gradient == 1 else _scaled(x_LC, self.gradient)), tape


def reach(kernels: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """(hop, window) of a stack of convolutions: the total stride, and the number of inputs of an output."""
    hop, window = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        window += (kernel - 1) * hop
        hop *= stride
    return hop, window


class PositionalConvolution(nn.Module):
    """x + activation(W * x), within each sequence: positions relative to the neighbours (Mohamed et al. 2019).

    The weight is g v / |v| with one length g and one norm |v| for each of the K neighbours (Salimans & Kingma 2016).
    With zeros beyond the ends, place t reads t - K // 2 … t + (K - 1) // 2.
    """

    def __init__(self, dim: int, kernel: int, groups: int, activation: Activation = F.gelu) -> None:
        super().__init__()
        if kernel < 1 or groups < 1 or dim % groups:
            raise UnmaskError(f"A convolution over positions needs a kernel and groups that divide {dim} channels.")
        self.scale = nn.Parameter(torch.ones(1, 1, kernel))
        self.direction = nn.Parameter(torch.empty(dim, dim // groups, kernel))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.groups, self.activation = groups, activation

    def initialise(self, generator: torch.Generator) -> None:
        """A normal of deviation 2 / sqrt(K D); the lengths are those of the directions, the bias is zero."""
        dim, _, kernel = self.direction.shape
        nn.init.normal_(self.direction, std=2 / math.sqrt(kernel * dim), generator=generator)
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            self.scale.copy_(self._lengths())

    def _lengths(self) -> Tensor:
        """|v| [1, 1, K]."""
        return torch.linalg.vector_norm(self.direction, dim=(0, 1), keepdim=True)

    def for_inference(self, dtype: torch.dtype) -> FixedPositions:
        """The same convolution in a number format, with its weight computed once."""
        return FixedPositions(self, dtype)

    def affine(self) -> tuple[Tensor, Tensor]:
        """The weight [D, D / groups, K] and the bias [D]."""
        return self.direction * (self.scale / self._lengths()), self.bias

    def forward(self, x_BTD: Tensor, documents_BT: Tensor | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]; padding must be zero. `documents_BT` as in `Batch`."""
        sequences = None if documents_BT is None else Sequences.of(documents_BT)
        x_NSD = x_BTD if sequences is None else sequences.unpack(x_BTD)
        y_NSD = self.convolved(x_NSD)
        return x_BTD + (y_NSD if sequences is None else sequences.pack(y_NSD))

    def convolved(self, x_NSD: Tensor) -> Tensor:
        """activation(W * x) of sequences, [N, S, D] -> [N, S, D]."""
        weight, bias_D = self.affine()
        kernel, none = weight.shape[-1], int(not x_NSD.shape[1])
        padded_NDS = F.pad(x_NSD.transpose(1, 2), (kernel // 2, (kernel - 1) // 2 + none))
        return self.activation(F.conv1d(padded_NDS, weight, bias_D, groups=self.groups)).transpose(1, 2)


class FixedPositions(PositionalConvolution):
    """A trained `PositionalConvolution` for inference, without parameters."""

    def __init__(self, trained: PositionalConvolution, dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        self.groups, self.activation = trained.groups, trained.activation
        weight, bias_D = trained.affine()
        self.fixed = weight.detach().to(dtype), bias_D.detach().to(dtype)

    def affine(self) -> tuple[Tensor, Tensor]:
        return self.fixed

    def convolved(self, x_NSD: Tensor) -> Tensor:
        return super().convolved(x_NSD.to(self.fixed[0].dtype)).to(x_NSD.dtype)


class Frames(nn.Module):
    """Frames of the recordings in rows: norm(features(samples)).

    features   of frames from samples, such as `Convolutions`
    norm       of the features; None without
    """

    def __init__(self, features: Features, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.features, self.feature_norm = features, norm or nn.Identity()

    def frames(self, tokens_BT: Tensor, signal: Signal | None) -> tuple[Tensor, Tensor]:
        """[B, T, C] twice: the features of all frames, masked or not, after the norm and before it; zero at padding.

        Raises UnmaskError for a batch without recordings, and where the places of a recording are not its frames.
        """
        if signal is None or signal.lengths is None:
            raise UnmaskError("This model reads recordings, but the batch has no samples: use its processor.")
        hop, window = self.features.hop, self.features.window
        tape = Tape.of(signal.lengths.tolist(), hop, window)
        features_LC, tape = self.features(tape.lay(signal.values), tape)
        features_MC = features_LC[tape.rows(features_LC.device)].to(signal.values.dtype)
        real_BT1, places_M = (tokens_BT != Kind.PADDING)[..., None], tape.spread(signal.places)
        if len(places_M) != int(real_BT1.sum()):
            raise UnmaskError(
                f"This model has a frame for every {hop} samples, with windows of {window}, but the batch has another "
                "number of places: use the processor of the model."
            )
        flat_NC = features_MC.new_zeros(tokens_BT.numel(), features_MC.shape[-1])
        features_BTC = flat_NC.index_copy(0, places_M, features_MC).unflatten(0, tokens_BT.shape)
        return self.feature_norm(features_BTC).where(real_BT1, 0), features_BTC


class FrameEmbedding(Frames):
    """The input of a Transformer over frames: dropout(norm(positions(masked(dropout(project(norm(features))))))).

    features   of frames from samples, such as `Convolutions`
    position   positions within each recording
    hides      whether it has a vector for masked frames; without one, masked frames are zero
    eps        of the norm of the features
    norm       norm of the result
    dropout    rates, of the projected features and of the result
    """

    def __init__(
        self,
        features: Features,
        position: PositionalConvolution,
        *,
        hides: bool,
        eps: float,
        norm: nn.Module | None = None,
        dropout: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        dim, channels = len(position.bias), features.channels
        super().__init__(features, nn.LayerNorm(channels, eps))
        self.project = nn.Linear(channels, dim)
        self.mask = nn.Parameter(torch.zeros(dim)) if hides else None
        self.position, self.norm = position, norm or nn.Identity()
        self.feature_dropout, self.dropout = map(Dropout, dropout)

    def forward(
        self, tokens_BT: Tensor, documents_BT: Tensor | None = None, signal: Signal | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """[B, T] -> the input of the first block [B, T, D], and what `frames` returns."""
        frames_BTC, features_BTC = self.frames(tokens_BT, signal)
        x_BTD = self.feature_dropout(self.project(frames_BTC).to(frames_BTC.dtype))
        x_BTD = x_BTD.where((tokens_BT == Kind.SIGNAL)[..., None], 0)
        if self.mask is not None:
            x_BTD = torch.where((tokens_BT == Kind.MASK)[..., None], self.mask, x_BTD)
        return self.dropout(self.norm(self.position(x_BTD, documents_BT))), (frames_BTC, features_BTC)


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> tuple[Tensor, None]:
        return dx * ctx.factor, None


def _scaled(x: Tensor, factor: float) -> Tensor:
    """x, whose gradient is multiplied by a factor."""
    y: Tensor = _Scale.apply(x, factor)
    return y

"""Spectra of recordings as layers: log-mel spectra and cepstra, and convolutions over their frames.

Shapes: R recordings, N samples of all of them, L places of a buffer, K frames of the longest, W samples of a window, S
points of the spectrum, M mel bands, C cepstra or features of a frame, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.kernels.formats import exactly
from unmask.nn.convolution import CentredConvolution
from unmask.nn.recordings import Features, RecordingNorm, Tape

FLOOR = 1e-10  # of the power of a band, before the logarithm
EMPHASIS = 0.97  # Kaldi: x'_n = x_n - 0.97 x_(n-1)
EPS = 1e-5  # of the variance of a coefficient
MEL, CORNER = 1127.0, 700.0  # mel(f) = 1127 ln(1 + f / 700) (O'Shaughnessy 1987)


class LogMel(nn.Module):
    """The logarithm of the power in mel bands (Davis & Mermelstein 1980): that of `data.recordings.features`.

    rate, window  samples a second, and W      bands  M      low  lowest frequency of a band, in hertz
    """

    filters: Tensor
    taper: Tensor

    def __init__(self, rate: int, window: int, bands: int, low: float = 20.0) -> None:
        super().__init__()
        self.size = max(256, 1 << (window - 1).bit_length())
        lowest, highest = (MEL * math.log1p(hertz / CORNER) for hertz in (low, rate / 2))
        # Not linspace: transformers replaces it while it loads a model, and torch.device("meta") may then miss it.
        edges = lowest + torch.arange(bands + 2) * ((highest - lowest) / (bands + 1))
        points_S1 = MEL * torch.log1p(torch.arange(self.size // 2 + 1) * (rate / self.size) / CORNER)[:, None]
        filters_SM = (1 - (points_S1 - edges[1:-1]).abs() / (edges[1] - edges[0])).clamp(min=0)
        self.register_buffer("filters", filters_SM, persistent=False)
        self.register_buffer("taper", torch.hann_window(window, periodic=False) ** 0.85, persistent=False)

    def forward(self, x_KW: Tensor) -> Tensor:
        """Windows [..., W] -> [..., M]."""
        x_KW = x_KW - x_KW.mean(-1, keepdim=True)
        x_KW = x_KW - EMPHASIS * torch.cat([x_KW[..., :1], x_KW[..., :-1]], -1)
        power_KS = torch.fft.rfft(x_KW * self.taper, self.size).abs().square()
        return (power_KS @ self.filters).clamp(min=FLOOR).log()


class StackedLogMel(Features):
    """Log-mel spectra of adjacent windows as the features of a frame, each band normalised over the recording.

    rate   samples a second                bands  M, of each of the windows
    step   samples from a window to the next one; `width` samples of a window
    stack  windows of a frame
    """

    def __init__(self, rate: int, *, bands: int, step: int, width: int, stack: int) -> None:
        super().__init__()
        self.step, self.width, self.stack = step, width, stack
        self.hop, self.window, self.channels = step * stack, width + step * (stack - 1), bands * stack
        self.mel, self.norm = LogMel(rate, width, bands), RecordingNorm(self.channels)

    def forward(self, samples_L: Tensor, tape: Tape) -> tuple[Tensor, Tape]:
        tape = tape.after(self.width, self.step).after(self.stack, self.stack)
        windows_KW = samples_L.unfold(0, self.width, self.step)[: tape.size * self.stack]
        with exactly(samples_L):
            features_LC = self.norm(self.mel(windows_KW).view(tape.size, self.channels), tape)
        return features_LC, tape

    def initialise(self, generator: torch.Generator) -> None:
        """The norm as new; the rest has no weights."""
        self.norm.reset_parameters()


class Cepstra(nn.Module):
    """Mel-frequency cepstral coefficients of recordings (Davis & Mermelstein 1980), with mean 0 and variance 1 in each
    recording: those of `data.recordings.features`, without liftering and deltas.

    rate, hop, window  samples a second, from one frame to the next, and of a frame
    bands              M      cepstra  C; 0: the log-mel spectra themselves
    """

    cosines: Tensor

    def __init__(self, rate: int, hop: int, window: int, *, bands: int, cepstra: int, low: float = 20.0):
        super().__init__()
        self.hop, self.window, self.mel = hop, window, LogMel(rate, window, bands, low)
        m, n = torch.arange(bands)[:, None], torch.arange(cepstra)
        cosines_MC = (2 / bands) ** 0.5 * torch.cos(torch.pi * n * (m + 0.5) / bands)
        self.register_buffer("cosines", cosines_MC, persistent=False)
        self.width = cepstra or bands

    def frames(self, lengths_R: Tensor) -> Tensor:
        """[R] the frames of recordings of these numbers of samples."""
        return (lengths_R - self.window).div(self.hop, rounding_mode="floor") + 1

    def forward(self, samples_N: Tensor, lengths_R: Tensor) -> tuple[Tensor, Tensor]:
        """Recordings one after the other -> [R, K, C], zero after the end of each, and which frames are real [R, K]."""
        frames_R = self.frames(lengths_R)
        k_K = torch.arange(int(frames_R.max()), device=samples_N.device)
        real_RK = k_K < frames_R[:, None]
        begins_R = lengths_R.cumsum(0) - lengths_R
        begins_RK = torch.where(real_RK, begins_R[:, None] + k_K * self.hop, 0)
        x_RKW = samples_N[begins_RK[..., None] + torch.arange(self.window, device=samples_N.device)]
        x_RKC = self.mel(x_RKW)
        if self.cosines.shape[1]:
            x_RKC = x_RKC @ self.cosines
        return self._normalised(x_RKC, real_RK), real_RK

    def _normalised(self, x_RKC: Tensor, real_RK: Tensor) -> Tensor:
        """Mean 0 and variance 1 of each coefficient over the real frames of each recording."""
        real_RK1 = real_RK[..., None].to(x_RKC.dtype)
        count_R11 = real_RK1.sum(1, keepdim=True)
        x_RKC = (x_RKC - (x_RKC * real_RK1).sum(1, keepdim=True) / count_R11) * real_RK1
        return x_RKC / (x_RKC.square().sum(1, keepdim=True) / count_R11 + EPS).sqrt()


class FrameConvolution(nn.Module):
    """activation(norm(W * x)) over neighbouring frames, of which every `stride`-th is kept.

    kernel  odd; beyond the ends of a recording there are zeros
    """

    def __init__(self, dim: int, outputs: int, kernel: int, stride: int, activation: Callable[[Tensor], Tensor]):
        super().__init__()
        self.convolution, self.norm = CentredConvolution(dim, outputs, kernel), nn.LayerNorm(outputs)
        self.stride, self.activation = stride, activation

    def forward(self, x_RKC: Tensor, real_RK: Tensor) -> tuple[Tensor, Tensor]:
        """[R, K, C], zero at frames that are not real -> [R, ceil(K / stride), D], likewise, and which are real."""
        wide_RKC = F.pad(x_RKC, (0, 0, side := self.convolution.reach // 2, side))
        x_RKD = self.activation(self.norm(self.convolution.mix(wide_RKC)[:, :: self.stride]))
        real_RK = real_RK[:, :: self.stride]
        return x_RKD * real_RK[..., None].to(x_RKD.dtype), real_RK

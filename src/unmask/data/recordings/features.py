"""Log-mel spectra, mel-frequency cepstral coefficients (MFCC) and their deltas, as Kaldi computes them.

Shapes: N samples of a recording, F frames, W samples of a window, S points of the spectrum, M mel bands, C cepstra.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from unmask.config import Config
from unmask.errors import UnmaskError

AT_ONCE = 8_192  # frames whose spectra are computed at once, which bounds the memory of a long recording
FLOOR = 1e-10  # of the power of a band, before the logarithm
EMPHASIS = 0.97  # Kaldi: x'_n = x_n - 0.97 x_(n-1)
LIFTER = 22.0  # L of equation (1) below, in Kaldi and HTK
REACH = 2  # frames on each side that a delta reads


@dataclass(frozen=True, kw_only=True)
class LogMel(Config):
    """Log-mel spectra: the logarithm of the power in bands that are equally wide on the mel scale.

    rate    samples a second          hop     samples from one frame to the next
    window  W, samples of a frame     bands   M, number of mel bands
    low     lowest frequency of a band, in Hz; the highest is rate / 2

    Frame f reads the samples from f * hop to f * hop + W: with the hop and the window of a model, its frames are those
    of the model. Raises UnmaskError for numbers below 1, and for so many bands that one has no point of the spectrum.
    """

    rate: int = 16_000
    hop: int = 320
    window: int = 400
    bands: int = 23
    low: float = 20.0

    def __post_init__(self) -> None:
        if min(self.rate, self.hop, self.window, self.bands) < 1 or not 0 <= self.low < self.rate / 2:
            raise UnmaskError(
                "Spectra need a rate, hop, window and bands of at least 1, and a lowest frequency below half the rate, "
                f"not {self.rate}, {self.hop}, {self.window}, {self.bands} and {self.low:g} Hz."
            )
        if not self.filters_SM.any(0).all():
            raise UnmaskError(
                f"A window of {self.window} samples is too short for {self.bands} mel bands: use fewer bands or a "
                "longer window."
            )

    @classmethod
    def of(cls, processor: Any, **fields: Any) -> Self:
        """The features whose frames are those of a processor of recordings."""
        return cls(rate=processor.rate, hop=processor.hop, window=processor.window, **fields)

    @property
    def width(self) -> int:
        """Numbers of a frame."""
        return self.bands

    def __call__(self, samples_N: np.ndarray) -> np.ndarray:
        """[F, width] float32, F = floor((N - W) / hop) + 1; no frame if N < W. int16 samples are read as fractions of
        2^15."""
        x_N = samples_N / 2.0**15 if samples_N.dtype.kind == "i" else samples_N
        frames_FW = frames(x_N, self.window, self.hop)
        parts = [self._log_mel(frames_FW[i : i + AT_ONCE]) for i in range(0, len(frames_FW), AT_ONCE)]
        return self._of_bands(np.concatenate(parts) if parts else np.empty((0, self.bands))).astype(np.float32)

    def _log_mel(self, frames_FW: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(np.maximum(power(frames_FW, self.size) @ self.filters_SM, FLOOR)))

    def _of_bands(self, log_FM: np.ndarray) -> np.ndarray:
        """The features of log-mel spectra [F, M]: here the spectra."""
        return log_FM

    @property
    def size(self) -> int:
        """Points of the Fourier transform: the next power of two, and at least 256."""
        return max(256, 1 << (self.window - 1).bit_length())

    @cached_property
    def filters_SM(self) -> np.ndarray:
        """[size / 2 + 1, M]: the weight of each frequency in each band."""
        return mel_filters(self.rate, self.size, self.bands, self.low)


@dataclass(frozen=True, kw_only=True)
class Mfcc(LogMel):
    """Mel-frequency cepstral coefficients (Davis & Mermelstein 1980), with deltas: those that HuBERT clusters first
    (Hsu et al. 2021, section IV.B): 13 coefficients and two deltas, 39 numbers.

    cepstra  C, number of coefficients
    deltas   how often the change over time is added: 0 not, 1 once, 2 also the change of the change
    """

    cepstra: int = 13
    deltas: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.cepstra <= self.bands or self.deltas < 0:
            raise UnmaskError(
                f"Cepstra must be 1 to {self.bands}, the number of bands, and deltas 0 or more, not {self.cepstra} and "
                f"{self.deltas}."
            )

    @property
    def width(self) -> int:
        return self.cepstra * (1 + self.deltas)

    def _of_bands(self, log_FM: np.ndarray) -> np.ndarray:
        """[F, C * (1 + deltas)]. (1): c_n (1 + L / 2 sin(π n / L)), with c the discrete cosine transform."""
        n = np.arange(self.cepstra)
        found = [log_FM @ cosines(self.bands, self.cepstra) * (1 + LIFTER / 2 * np.sin(np.pi * n / LIFTER))]
        for _ in range(self.deltas):
            found.append(delta(found[-1]))
        return np.concatenate(found, 1)


def frames(samples_N: np.ndarray, window: int, hop: int) -> np.ndarray:
    """[F, W]: a view of the samples in windows, F = floor((N - W) / hop) + 1, without the rest at the end."""
    if len(samples_N) < window:
        return np.empty((0, window), samples_N.dtype)
    return np.lib.stride_tricks.sliding_window_view(samples_N, window)[::hop]


def power(frames_FW: np.ndarray, size: int) -> np.ndarray:
    """[F, size / 2 + 1] float64: |DFT(w_n x'_n)|² of each frame, after its mean is removed and its high frequencies are
    raised: x'_n = x_n - 0.97 x_(n-1), x_(-1) = x_0. w_n = (1/2 - 1/2 cos(2π n / (W - 1)))^0.85 (Povey's, in Kaldi)."""
    x_FW = frames_FW.astype(np.float64)
    x_FW -= x_FW.mean(1, keepdims=True)
    x_FW = x_FW - EMPHASIS * np.concatenate([x_FW[:, :1], x_FW[:, :-1]], 1)
    window_W = np.hanning(x_FW.shape[1]) ** 0.85 if x_FW.shape[1] > 1 else np.ones(1)
    return np.asarray(np.abs(np.fft.rfft(x_FW * window_W, size)) ** 2)


def mel(hertz: np.ndarray | float) -> Any:
    """Mel: 1127 ln(1 + f / 700), equal to 2595 log10(1 + f / 700) (O'Shaughnessy 1987)."""
    return 1127.0 * np.log(1.0 + np.asarray(hertz) / 700.0)


def mel_filters(rate: int, size: int, bands: int, low: float = 20.0) -> np.ndarray:
    """[size / 2 + 1, M]: triangles on the mel scale. Band m rises from edge m to edge m + 1 and falls to edge m + 2;
    the M + 2 edges are equally far apart from `low` to rate / 2."""
    points_S1 = mel(np.arange(size // 2 + 1) * rate / size)[:, None]
    edges = np.linspace(mel(low), mel(rate / 2), bands + 2)
    step = edges[1] - edges[0]
    return np.maximum(0.0, 1.0 - np.abs(points_S1 - edges[1:-1]) / step)


def cosines(bands: int, cepstra: int) -> np.ndarray:
    """[M, C]: the orthonormal discrete cosine transform of type II, s_n cos(π n (m + 1/2) / M) with s_0 = √(1/M) and
    s_n = √(2/M)."""
    n, m = np.arange(cepstra), np.arange(bands)[:, None]
    scale_C = np.where(n == 0, np.sqrt(1 / bands), np.sqrt(2 / bands))
    return np.asarray(scale_C * np.cos(np.pi * n * (m + 0.5) / bands))


def delta(features_FC: np.ndarray) -> np.ndarray:
    """[F, C]: the slope over time, d_t = Σ_k k (c_(t+k) - c_(t-k)) / (2 Σ_k k²) with k = 1, 2; the first and last frame
    are repeated at the ends (Young et al., The HTK Book, equation 5.16)."""
    F = len(features_FC)
    padded = np.pad(features_FC, ((REACH, REACH), (0, 0)), mode="edge") if F else features_FC
    total = sum(
        k * (padded[REACH + k : REACH + k + F] - padded[REACH - k : REACH - k + F]) for k in range(1, REACH + 1)
    )
    return np.asarray(total / (2 * sum(k * k for k in range(1, REACH + 1)))) if F else features_FC

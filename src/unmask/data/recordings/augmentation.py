"""Augmentation of recordings: speed, gain, shifts, crops, noise and silenced bands.

Every augmentation reads samples [N] float32 in [-1, 1], draws from an explicit generator, and returns such samples. The
same state of the generator gives the same recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.random import Generator

from unmask.errors import UnmaskError

PERCENT = 100  # factors of the speed are rounded to this part


@dataclass(frozen=True)
class Speed:
    """Play a recording at 1 - `change`, 1 or 1 + `change` of its speed, which also shifts the pitch (Ko et al. 2015,
    section 2): N samples become N / factor."""

    change: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.change < 1:
            raise UnmaskError(f"The change of the speed is a share, at least 0 and below 1, not {self.change}.")

    def __call__(self, samples_N: np.ndarray, rng: Generator) -> np.ndarray:
        from scipy.signal import resample_poly

        factor = Fraction(round((1 + self.change * int(rng.integers(-1, 2))) * PERCENT), PERCENT)
        if factor == 1:
            return samples_N
        return np.clip(resample_poly(samples_N, factor.denominator, factor.numerator), -1, 1).astype(np.float32)


@dataclass(frozen=True)
class Gain:
    """Make a recording louder or quieter by a number of decibels that is drawn uniformly from [-most, most]."""

    most: float = 6.0

    def __call__(self, samples_N: np.ndarray, rng: Generator) -> np.ndarray:
        factor = 10 ** (rng.uniform(-self.most, self.most) / 20)
        return np.clip(samples_N * np.float32(factor), -1, 1)


@dataclass(frozen=True)
class Shift:
    """Move a recording by up to `most` samples to either side; what is moved out is lost, and zeros come in."""

    most: int

    def __call__(self, samples_N: np.ndarray, rng: Generator) -> np.ndarray:
        by = int(rng.integers(-self.most, self.most + 1))
        moved_N = np.zeros_like(samples_N)
        N = len(samples_N)
        if abs(by) < N:
            moved_N[max(0, by) : N + min(0, by)] = samples_N[max(0, -by) : N - max(0, by)]
        return moved_N


@dataclass(frozen=True)
class Crop:
    """A random part of a recording, whose share is drawn uniformly from [least, 1]."""

    least: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.least <= 1:
            raise UnmaskError(f"The smallest crop is a share of a recording, above 0 and at most 1, not {self.least}.")

    def __call__(self, samples_N: np.ndarray, rng: Generator) -> np.ndarray:
        length = max(1, round(len(samples_N) * rng.uniform(self.least, 1)))
        begin = int(rng.integers(len(samples_N) - length + 1))
        return samples_N[begin : begin + length]


@dataclass(frozen=True)
class Noise:
    """Add white noise whose power is `snr` decibels below that of the recording; `snr` is drawn uniformly from a
    range. A silent recording stays silent."""

    snr: tuple[float, float] = (10.0, 40.0)

    def __call__(self, samples_N: np.ndarray, rng: Generator) -> np.ndarray:
        power = float(np.square(samples_N, dtype=np.float64).mean())
        deviation = np.sqrt(power / 10 ** (rng.uniform(*self.snr) / 10))
        noise_N = rng.standard_normal(len(samples_N), np.float32) * np.float32(deviation)
        return np.clip(samples_N + noise_N, -1, 1)


@dataclass(frozen=True)
class SilencedBands:
    """Remove `count` bands of frequencies, each of a width that is drawn uniformly from [0, width] of the spectrum: the
    frequency masks of SpecAugment (Park et al. 2019, section 2), on the samples."""

    count: int = 1
    width: float = 0.1

    def __post_init__(self) -> None:
        if self.count < 0 or not 0 <= self.width <= 1:
            raise UnmaskError(
                f"There are 0 or more silenced bands of a share of the spectrum, not {self.count} of {self.width}."
            )

    def __call__(self, samples_N: np.ndarray, rng: Generator) -> np.ndarray:
        spectrum_S = np.fft.rfft(samples_N)
        for _ in range(self.count):
            size = round(len(spectrum_S) * rng.uniform(0, self.width))
            begin = int(rng.integers(len(spectrum_S) - size + 1))
            spectrum_S[begin : begin + size] = 0
        return np.clip(np.fft.irfft(spectrum_S, len(samples_N)), -1, 1).astype(np.float32)

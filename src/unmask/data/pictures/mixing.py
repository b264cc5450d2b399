"""Mixing of the pictures of a batch with their labels: mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019).

Shapes: N pictures, C channels, H height and W width in pixels. Pictures are mixed before they are cut into patches,
because a box may cross patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from unmask.errors import UnmaskError


class Mixed(NamedTuple):
    """Pictures, each with two labels.

    pixels   [N, C, H, W], of the type that was given
    labels   [N, ...], the labels of the pictures
    others   [N, ...], the labels of the pictures that were mixed into them
    weights  [N] float32: the weight of `labels` in the loss, from 0 to 1; `others` have 1 - weights
    """

    pixels: np.ndarray
    labels: np.ndarray
    others: np.ndarray
    weights: np.ndarray


def mixup(pixels_NCHW: np.ndarray, labels_N: np.ndarray, alpha: float, rng: Generator) -> Mixed:
    """lambda * x_i + (1 - lambda) * x_j with lambda from Beta(alpha, alpha), one for the batch, and a random order of
    the batch as j (Zhang et al. 2018, section 2)."""
    weight, other_N = rng.beta(alpha, alpha), rng.permutation(len(pixels_NCHW))
    share = pixels_NCHW.dtype.type(weight)
    return _mixed(share * pixels_NCHW + (1 - share) * pixels_NCHW[other_N], labels_N, other_N, weight)


def cutmix(pixels_NCHW: np.ndarray, labels_N: np.ndarray, alpha: float, rng: Generator) -> Mixed:
    """Replace a box of each picture by the same box of another one (Yun et al. 2019, equations 1 and 2).

    The box has a share of 1 - lambda, with lambda from Beta(alpha, alpha), and a uniform centre. Where it crosses the
    border of the picture it is cut off, so the weight is the exact share of the pixels outside of the box.
    """
    weight, other_N = rng.beta(alpha, alpha), rng.permutation(len(pixels_NCHW))
    height, width = pixels_NCHW.shape[2:]
    side = math.sqrt(1 - weight)
    (top, bottom), (left, right) = _span(height, side, rng), _span(width, side, rng)
    found_NCHW = pixels_NCHW.copy()
    found_NCHW[:, :, top:bottom, left:right] = pixels_NCHW[other_N, :, top:bottom, left:right]
    return _mixed(found_NCHW, labels_N, other_N, 1 - (bottom - top) * (right - left) / (height * width))


@dataclass(frozen=True)
class Mixing:
    """Mixup or CutMix, chosen for each batch; the defaults are those of DeiT (Touvron et al. 2021, table 9).

    mixup   alpha of mixup; 0: no mixup       cutmix  alpha of CutMix; 0: no CutMix
    rate    probability that a batch is mixed
    switch  probability of CutMix instead of mixup, if both are in use

    Raises UnmaskError for values out of range.
    """

    mixup: float = 0.8
    cutmix: float = 1.0
    rate: float = 1.0
    switch: float = 0.5

    def __post_init__(self) -> None:
        for name in ("mixup", "cutmix"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UnmaskError(f"The alpha of {name} is a number of at least 0, not {getattr(self, name)}.")
        for name in ("rate", "switch"):
            if not 0 <= getattr(self, name) <= 1:
                raise UnmaskError(f"The {name} of mixing is a probability between 0 and 1, not {getattr(self, name)}.")

    def __call__(self, pixels_NCHW: np.ndarray, labels_N: np.ndarray, rng: Generator) -> Mixed:
        """Normalised pixels [N, C, H, W] and labels [N, ...]; the arrays themselves are not changed."""
        if not (self.mixup or self.cutmix) or rng.random() >= self.rate:
            return _mixed(pixels_NCHW, labels_N, np.arange(len(pixels_NCHW)), 1.0)
        share = self.switch if self.mixup and self.cutmix else float(self.cutmix > 0)
        if rng.random() < share:
            return cutmix(pixels_NCHW, labels_N, self.cutmix, rng)
        return mixup(pixels_NCHW, labels_N, self.mixup, rng)


def _span(length: int, share: float, rng: Generator) -> tuple[int, int]:
    """(begin, end) of `share` of a side about a uniform centre, cut off at both ends."""
    half, centre = int(length * share) // 2, int(rng.integers(length))
    return max(centre - half, 0), min(centre + half, length)


def _mixed(pixels_NCHW: np.ndarray, labels_N: np.ndarray, other_N: np.ndarray, weight: float) -> Mixed:
    return Mixed(pixels_NCHW, labels_N, labels_N[other_N], np.full(len(pixels_NCHW), weight, np.float32))

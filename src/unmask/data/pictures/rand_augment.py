"""RandAugment: a few random operations of one magnitude (Cubuk et al. 2020, "RandAugment: Practical automated data
augmentation with a reduced search space").

Operations read pixels [H, W, C] uint8 with C = 1 or 3 and return the same shape. Definitions follow Pillow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from unmask.data.pictures.augmentation import brightness, contrast, saturation
from unmask.data.pictures.decoding import pillow
from unmask.errors import UnmaskError

LARGEST = 10  # the magnitude that stands for the ranges of AutoAugment
SHEAR, TRANSLATION, DEGREES, ENHANCEMENT, BITS = 0.3, 150 / 331, 30.0, 0.9, 4
"""The ends of these ranges (Cubuk et al. 2019): tangent of a shear, share of a side, degrees, distance of a factor from
1, bits that are dropped."""
VALUES = np.arange(256)


def autocontrast(picture_HWC: np.ndarray) -> np.ndarray:
    """Stretch the values of each channel so that its smallest is 0 and its largest 255."""
    low_C, high_C = picture_HWC.min((0, 1)).astype(float), picture_HWC.max((0, 1)).astype(float)
    even_C = high_C <= low_C
    scale_C = 255.0 / np.where(even_C, 1.0, high_C - low_C)
    tables_C256 = np.clip(VALUES * scale_C[:, None] - (low_C * scale_C)[:, None], 0, 255).astype(np.uint8)
    tables_C256[even_C] = VALUES
    return _looked_up(picture_HWC, tables_C256)


def equalize(picture_HWC: np.ndarray) -> np.ndarray:
    """Make the histogram of each channel as even as possible. A channel with fewer than 255 pixels below its largest
    value stays as it is, as in Pillow."""
    tables_C256 = np.empty((picture_HWC.shape[2], 256), np.uint8)
    for c, table_256 in enumerate(tables_C256):
        channel = picture_HWC[..., c].ravel()
        counts_256 = np.bincount(channel, minlength=256)
        step = int(channel.size - counts_256[channel.max()]) // 255
        below_256 = counts_256.cumsum() - counts_256
        table_256[:] = np.minimum((step // 2 + below_256) // step, 255) if step else VALUES
    return _looked_up(picture_HWC, tables_C256)


def solarize(picture_HWC: np.ndarray, threshold: float) -> np.ndarray:
    """Invert the values from `threshold` on: 256 leaves the picture as it is, 0 inverts all of it."""
    return np.where(picture_HWC < threshold, picture_HWC, 255 - picture_HWC)


def posterize(picture_HWC: np.ndarray, bits: int) -> np.ndarray:
    """Keep the highest `bits` bits of each value, 0 to 8."""
    return picture_HWC & np.uint8(256 - (1 << (8 - bits)))


def sharpness(picture_HWC: np.ndarray, factor: float) -> np.ndarray:
    """factor * picture + (1 - factor) * smoothed picture: 0 is smoothed, 1 the picture itself. The kernel of 3 by 3
    pixels has 5 / 13 in the middle and 1 / 13 elsewhere; pixels at the border are not smoothed."""
    from PIL import ImageEnhance

    return _pixels(ImageEnhance.Sharpness(_image(picture_HWC)).enhance(factor), picture_HWC)


def affine(
    picture_HWC: np.ndarray, matrix: tuple[float, float, float, float, float, float], *, fill: int, resample: int
) -> np.ndarray:
    """The pixel at (x, y) is that of (a x + b y + c, d x + e y + f) in the picture, for a matrix (a, b, c, d, e, f);
    coordinates count from the corner, so that the first pixel has its centre at (0.5, 0.5).

    fill      value of the pixels from outside of the picture
    resample  0 nearest, 2 bilinear, 3 bicubic (Pillow's numbers)
    """
    Image = pillow()
    colour = fill if picture_HWC.shape[2] == 1 else (fill,) * picture_HWC.shape[2]
    image = _image(picture_HWC)
    kind = Image.Transform.AFFINE
    moved = image.transform(image.size, kind, matrix, Image.Resampling(resample), fillcolor=colour)
    return _pixels(moved, picture_HWC)


def rotate(picture_HWC: np.ndarray, degrees: float, *, fill: int, resample: int) -> np.ndarray:
    """Rotate about the middle, counter-clockwise."""
    middle_y, middle_x = picture_HWC.shape[0] / 2, picture_HWC.shape[1] / 2
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x = middle_x - cosine * middle_x + sine * middle_y
    y = middle_y - sine * middle_x - cosine * middle_y
    return affine(picture_HWC, (cosine, -sine, x, sine, cosine, y), fill=fill, resample=resample)


@dataclass(frozen=True)
class Edges:
    """How pixels are moved: the value of those from outside of the picture, and Pillow's number of the resampling."""

    fill: int
    resample: int

    def affine(self, picture_HWC: np.ndarray, *matrix: float) -> np.ndarray:
        a, b, c, d, e, f = matrix
        return affine(picture_HWC, (a, b, c, d, e, f), fill=self.fill, resample=self.resample)

    def rotate(self, picture_HWC: np.ndarray, degrees: float) -> np.ndarray:
        return rotate(picture_HWC, degrees, fill=self.fill, resample=self.resample)


Operation = Callable[[np.ndarray, float, Edges], np.ndarray]
"""(picture, strength, edges) -> picture. The strength is a share of the published range, 1 its end; its sign is the
direction of operations that have two."""

OPERATIONS: Mapping[str, Operation] = {
    "identity": lambda picture, s, edges: picture,
    "autocontrast": lambda picture, s, edges: autocontrast(picture),
    "equalize": lambda picture, s, edges: equalize(picture),
    "rotate": lambda picture, s, edges: edges.rotate(picture, DEGREES * s),
    "solarize": lambda picture, s, edges: solarize(picture, 256 - 256 * abs(s)),
    "color": lambda picture, s, edges: saturation(picture, max(0.0, 1 + ENHANCEMENT * s)),
    "posterize": lambda picture, s, edges: posterize(picture, max(0, 8 - round(BITS * abs(s)))),
    "contrast": lambda picture, s, edges: contrast(picture, max(0.0, 1 + ENHANCEMENT * s)),
    "brightness": lambda picture, s, edges: brightness(picture, max(0.0, 1 + ENHANCEMENT * s)),
    "sharpness": lambda picture, s, edges: sharpness(picture, max(0.0, 1 + ENHANCEMENT * s)),
    "shear-x": lambda picture, s, edges: edges.affine(picture, 1, SHEAR * s, 0, 0, 1, 0),
    "shear-y": lambda picture, s, edges: edges.affine(picture, 1, 0, 0, SHEAR * s, 1, 0),
    "translate-x": lambda picture, s, edges: edges.affine(picture, 1, 0, TRANSLATION * s * picture.shape[1], 0, 1, 0),
    "translate-y": lambda picture, s, edges: edges.affine(picture, 1, 0, 0, 0, 1, TRANSLATION * s * picture.shape[0]),
}
"""The 14 operations of the paper (section 3)."""


@dataclass(frozen=True)
class RandAugment:
    """Apply `count` operations, drawn uniformly with replacement from the 14 of `OPERATIONS`.

    count      N, number of operations of a picture
    magnitude  M, strength of all operations from 0 to 10 as in the paper, where 10 is the end of each range; larger
               magnitudes, up to 30, go on linearly. Identity, autocontrast and equalize have none
    deviation  standard deviation of the magnitude, drawn for each operation; DeiT has 0.5 (Touvron et al. 2021)
    fill       value of the pixels from outside of the picture, 0 to 255
    resample   0 nearest, 2 bilinear, 3 bicubic (Pillow's numbers)

    A larger magnitude always changes pictures more: factors of colour, contrast, brightness and sharpness move away
    from 1, the number of bits and the threshold of solarize fall. The direction of an operation that has two is random.
    Raises UnmaskError for values out of range.
    """

    count: int = 2
    magnitude: float = 9.0
    deviation: float = 0.0
    fill: int = 128
    resample: int = 2

    def __post_init__(self) -> None:
        if self.count < 0:
            raise UnmaskError(f"The count of RandAugment is a number of operations, at least 0, not {self.count}.")
        if not 0 <= self.magnitude <= 30:
            raise UnmaskError(f"The magnitude of RandAugment is between 0 and 30, not {self.magnitude}.")
        if not 0 <= self.deviation < math.inf:
            raise UnmaskError(f"The deviation of RandAugment is a number of at least 0, not {self.deviation}.")
        if not 0 <= self.fill <= 255:
            raise UnmaskError(f"The fill of RandAugment is the value of a pixel, 0 to 255, not {self.fill}.")
        if self.resample not in (0, 2, 3):
            raise UnmaskError(f"The resampling of RandAugment is 0, 2 or 3, not {self.resample}.")

    def __call__(self, picture_HWC: np.ndarray, rng: Generator) -> np.ndarray:
        edges = Edges(self.fill, self.resample)
        for choice in rng.integers(len(_EACH), size=self.count):
            magnitude = self.magnitude
            if self.deviation:
                magnitude = min(max(rng.normal(magnitude, self.deviation), 0.0), 30.0)
            sign = 1 if rng.random() < 0.5 else -1
            picture_HWC = _EACH[choice](picture_HWC, sign * magnitude / LARGEST, edges)
        return picture_HWC


_EACH = tuple(OPERATIONS.values())


def _looked_up(picture_HWC: np.ndarray, tables_C256: np.ndarray) -> np.ndarray:
    """Each value of channel c replaced by its entry in table c."""
    return tables_C256[np.arange(len(tables_C256)), picture_HWC]


def _image(picture_HWC: np.ndarray) -> Any:
    return pillow().fromarray(picture_HWC[..., 0] if picture_HWC.shape[2] == 1 else picture_HWC)


def _pixels(image: Any, like_HWC: np.ndarray) -> np.ndarray:
    return np.asarray(image).reshape(like_HWC.shape)

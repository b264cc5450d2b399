"""Augmentation of pictures: random crops, flips, colours, blur and erasing.

Every augmentation reads pixels [H, W, C] uint8 with C = 1 or 3, draws from an explicit generator, and returns uint8
with the same C. The same state of the generator gives the same picture. Definitions follow the documentation of
torchvision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from unmask.data.augmentation import check_rate
from unmask.data.pictures.decoding import resize
from unmask.errors import UnmaskError

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey (ITU-R BT.601)
TRIES = 10  # boxes that are drawn before a crop falls back to the middle


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crop a random box and resize it to a square of `size` pixels.

    area    smallest and largest share of the picture that the box covers, drawn uniformly
    ratio   smallest and largest width / height, drawn uniformly on a logarithmic scale
    """

    size: int
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    resample: int = 2

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UnmaskError(f"The size of a crop is a number of pixels, at least 1, not {self.size}.")
        _check_box(self.area, self.ratio)

    def box(self, height: int, width: int, rng: Generator) -> tuple[int, int, int, int]:
        """(top, left, height, width) of a box in pixels. After ten boxes that do not fit, the largest box in the middle
        whose ratio is allowed."""
        if found := _draw_box(height, width, self.area, self.ratio, rng):
            return found
        low, high = self.ratio
        tall = min(height, max(1, round(width / low)))
        wide = min(width, max(1, round(height * high)))
        return (height - tall) // 2, (width - wide) // 2, tall, wide

    def __call__(self, picture_HWC: np.ndarray, rng: Generator) -> np.ndarray:
        top, left, height, width = self.box(picture_HWC.shape[0], picture_HWC.shape[1], rng)
        crop_HWC = np.ascontiguousarray(picture_HWC[top : top + height, left : left + width])
        return resize(crop_HWC, self.size, self.size, self.resample)


@dataclass(frozen=True)
class Resize:
    """Resize to a square of `size` pixels."""

    size: int
    resample: int = 2

    def __call__(self, picture_HWC: np.ndarray, rng: Generator) -> np.ndarray:
        return resize(picture_HWC, self.size, self.size, self.resample)


@dataclass(frozen=True)
class PadAndCrop:
    """Pad every side with `padding` black pixels, then crop a random box of the original size."""

    padding: int = 4

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise UnmaskError(f"The padding is a number of pixels, at least 0, not {self.padding}.")

    def __call__(self, picture_HWC: np.ndarray, rng: Generator) -> np.ndarray:
        height, width, channels = picture_HWC.shape
        top, left = (int(n) for n in rng.integers(0, 2 * self.padding + 1, 2))
        padded_HWC = np.zeros((height + 2 * self.padding, width + 2 * self.padding, channels), picture_HWC.dtype)
        padded_HWC[self.padding : self.padding + height, self.padding : self.padding + width] = picture_HWC
        return padded_HWC[top : top + height, left : left + width]


def flip(picture_HWC: np.ndarray) -> np.ndarray:
    """Mirror left and right."""
    return picture_HWC[:, ::-1]


@dataclass(frozen=True)
class HorizontalFlip:
    """Mirror left and right with probability `rate`."""

    rate: float = 0.5

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def __call__(self, picture_HWC: np.ndarray, rng: Generator) -> np.ndarray:
        return flip(picture_HWC) if rng.random() < self.rate else picture_HWC


def grey(picture_HWC: np.ndarray) -> np.ndarray:
    """The luma [H, W, 1] float64, from 0 to 255."""
    values_HWC = picture_HWC.astype(np.float64)
    return values_HWC if picture_HWC.shape[2] == 1 else (values_HWC @ np.array(LUMA))[..., None]


def brightness(picture_HWC: np.ndarray, factor: float) -> np.ndarray:
    """factor * picture: 0 is black, 1 the picture itself."""
    return _blend(picture_HWC, np.zeros(1), factor)


def contrast(picture_HWC: np.ndarray, factor: float) -> np.ndarray:
    """factor * picture + (1 - factor) * mean luma: 0 is even grey, 1 the picture itself."""
    return _blend(picture_HWC, grey(picture_HWC).mean(), factor)


def saturation(picture_HWC: np.ndarray, factor: float) -> np.ndarray:
    """factor * picture + (1 - factor) * luma: 0 is a grey picture, 1 the picture itself."""
    return _blend(picture_HWC, grey(picture_HWC), factor)


def hue(picture_HWC: np.ndarray, turn: float) -> np.ndarray:
    """Rotate the hue of HSV by `turn` of a full circle. A grey picture has no hue and is returned unchanged."""
    if picture_HWC.shape[2] == 1 or turn == 0:
        return picture_HWC
    values_HWC = picture_HWC.astype(np.float64)
    red, green, blue = np.moveaxis(values_HWC, 2, 0)
    value = np.maximum(np.maximum(red, green), blue)  # many times as fast as a maximum over the last axis
    spread = value - np.minimum(np.minimum(red, green), blue)
    safe = np.where(spread == 0, 1, spread)
    sector = np.where(
        value == red,
        (green - blue) / safe,
        np.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    sector = sector + 6 * turn
    # Red, green and blue of HSV: value - spread * clip(min(k, 4 - k), 0, 1), where k = (n + sector) mod 6, n = 5, 3, 1.
    k = (np.array([5, 3, 1]) + sector[..., None]) % 6
    return _pixels(value[..., None] - spread[..., None] * np.clip(np.minimum(k, 4 - k), 0, 1))


@dataclass(frozen=True)
class ColourJitter:
    """Change brightness, contrast, saturation and hue in random order.

    The first three draw a factor from [max(0, 1 - strength), 1 + strength]; hue draws a turn from [-hue, hue], where 1
    is a full circle. A strength of 0 leaves that property as it is.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        if min(self.brightness, self.contrast, self.saturation) < 0 or not 0 <= self.hue <= 0.5:
            raise UnmaskError(f"Strengths of colour jitter are at least 0, and that of hue at most 0.5, not {self}.")

    def __call__(self, picture_HWC: np.ndarray, rng: Generator) -> np.ndarray:
        changes = (
            (brightness, self.brightness, 1.0),
            (contrast, self.contrast, 1.0),
            (saturation, self.saturation, 1.0),
            (hue, self.hue, 0.0),
        )
        for i in rng.permutation(len(changes)):
            change, strength, neutral = changes[i]
            if strength:
                amount = rng.uniform(neutral - strength, neutral + strength)
                picture_HWC = change(picture_HWC, amount if neutral == 0 else max(0.0, amount))
        return picture_HWC


@dataclass(frozen=True)
class RandomGrey:
    """Replace every channel by the luma with probability `rate`."""

    rate: float = 0.1

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def __call__(self, picture_HWC: np.ndarray, rng: Generator) -> np.ndarray:
        return saturation(picture_HWC, 0.0) if rng.random() < self.rate else picture_HWC


@dataclass(frozen=True)
class GaussianBlur:
    """Blur with a Gaussian whose standard deviation, in pixels, is drawn uniformly from `sigma`."""

    sigma: tuple[float, float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        if not 0 <= self.sigma[0] <= self.sigma[1]:
            raise UnmaskError(f"The sigma of a blur is a range of pixels from at least 0, not {self.sigma}.")

    def __call__(self, picture_HWC: np.ndarray, rng: Generator) -> np.ndarray:
        from scipy.ndimage import gaussian_filter

        sigma = rng.uniform(*self.sigma)
        return _pixels(gaussian_filter(picture_HWC.astype(np.float64), (sigma, sigma, 0)))


@dataclass(frozen=True)
class RandomErasing:
    """Fill a random box with `value`, with probability `rate` (Zhong et al. 2020). Nothing is erased if ten boxes
    do not fit.

    area    smallest and largest share of the picture that the box covers
    ratio   smallest and largest width / height
    """

    rate: float = 0.5
    area: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: int = 0

    def __post_init__(self) -> None:
        check_rate(self.rate)
        _check_box(self.area, self.ratio)

    def __call__(self, picture_HWC: np.ndarray, rng: Generator) -> np.ndarray:
        if rng.random() >= self.rate:
            return picture_HWC
        rows, columns = picture_HWC.shape[:2]
        if found := _draw_box(rows, columns, self.area, self.ratio, rng):
            top, left, height, width = found
            picture_HWC = picture_HWC.copy()
            picture_HWC[top : top + height, left : left + width] = self.value
        return picture_HWC


def _draw_box(
    height: int, width: int, area: tuple[float, float], ratio: tuple[float, float], rng: Generator
) -> tuple[int, int, int, int] | None:
    """(top, left, height, width) of a random box in pixels, or None if none of ten fits."""
    for _ in range(TRIES):
        pixels = height * width * rng.uniform(*area)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        tall, wide = round(math.sqrt(pixels / aspect)), round(math.sqrt(pixels * aspect))
        if 0 < tall <= height and 0 < wide <= width:
            top, left = int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1))
            return top, left, tall, wide
    return None


def _blend(picture_HWC: np.ndarray, other: np.ndarray, factor: float) -> np.ndarray:
    """factor * picture + (1 - factor) * other, as pixels."""
    return _pixels(factor * picture_HWC.astype(np.float64) + (1 - factor) * other)


def _pixels(values_HWC: np.ndarray) -> np.ndarray:
    """Rounded and clipped to uint8."""
    return np.clip(np.rint(values_HWC), 0, 255).astype(np.uint8)


def _check_box(area: tuple[float, float], ratio: tuple[float, float]) -> None:
    if not 0 < area[0] <= area[1] <= 1:
        raise UnmaskError(f"The area of a box is a range of shares above 0 and at most 1, not {area}.")
    if not 0 < ratio[0] <= ratio[1]:
        raise UnmaskError(f"The ratio of a box is a range of positive numbers, not {ratio}.")

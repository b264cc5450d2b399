"""Colours: sRGB and CIE Lab (D65), and the classes of ab that colourisation predicts.

In Lab, L is the lightness from 0 to 100, a runs from green to red, and b from blue to yellow. A grey has a = b = 0.
"""

from __future__ import annotations

import numpy as np

XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
"""Linear red, green and blue -> X, Y and Z (IEC 61966-2-1)."""
RGB = np.linalg.inv(XYZ)
WHITE = XYZ.sum(1)  # D65, so that greys have a = b = 0
EDGE = 6 / 29  # below, the cube root is replaced by a line

LEVELS = np.arange(256) / 255
LINEAR = np.where(LEVELS <= 0.04045, LEVELS / 12.92, ((LEVELS + 0.055) / 1.055) ** 2.4)
"""[256] linear light of the levels of sRGB."""

GRID = 10  # distance of the classes along a and along b
RANGES = {
    -90: (50, 90),
    -80: (20, 90),
    -70: (0, 90),
    -60: (-20, 90),
    -50: (-30, 100),
    -40: (-40, 100),
    -30: (-50, 100),
    -20: (-50, 100),
    -10: (-60, 100),
    0: (-70, 100),
    10: (-80, 90),
    20: (-80, 90),
    30: (-90, 90),
    40: (-100, 90),
    50: (-100, 80),
    60: (-110, 80),
    70: (-110, 80),
    80: (-110, 70),
    90: (-110, 70),
    100: (-90, 0),
}
"""a -> the smallest and the largest b of the classes with this a."""
CLASSES = np.array([(a, b) for a, (low, high) in RANGES.items() for b in range(low, high + 1, GRID)], np.float32)
"""[313, 2] a and b of the published classes, which cover the colours of sRGB (Zhang et al. 2016, section 2.1)."""


def to_lab(picture_HWC: np.ndarray) -> np.ndarray:
    """Pixels [H, W, 3] uint8 of sRGB -> L, a and b, [H, W, 3] float64 (CIE 15, section 8.2.1)."""
    ratio_HWC = LINEAR[picture_HWC] @ XYZ.T / WHITE
    f_HWC = np.where(ratio_HWC > EDGE**3, np.cbrt(ratio_HWC), ratio_HWC / (3 * EDGE**2) + 4 / 29)
    x, y, z = np.moveaxis(f_HWC, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def to_rgb(lab_HWC: np.ndarray) -> np.ndarray:
    """L, a and b [H, W, 3] -> pixels [H, W, 3] uint8 of sRGB. A colour that sRGB lacks is clipped in each channel."""
    lightness, a, b = np.moveaxis(np.asarray(lab_HWC, np.float64), -1, 0)
    y = (lightness + 16) / 116
    f_HWC = np.stack([y + a / 500, y, y - b / 200], -1)
    xyz_HWC = np.where(f_HWC > EDGE, f_HWC**3, 3 * EDGE**2 * (f_HWC - 4 / 29)) * WHITE
    linear_HWC = np.clip(xyz_HWC @ RGB.T, 0, 1)
    levels_HWC = np.where(linear_HWC <= 0.0031308, linear_HWC * 12.92, 1.055 * linear_HWC ** (1 / 2.4) - 0.055)
    return np.rint(levels_HWC * 255).astype(np.uint8)


def lightness(picture_HWC: np.ndarray) -> np.ndarray:
    """The picture [H, W, 3] uint8 without its colours: L of every pixel, and a = b = 0."""
    return to_rgb(to_lab(picture_HWC) * (1, 0, 0))


def chroma(picture_HWC: np.ndarray) -> np.ndarray:
    """The picture [H, W, 3] uint8 without its lightness: a and b of every pixel, and L = 50. Strong colours that sRGB
    lacks at this lightness are clipped."""
    return to_rgb(to_lab(picture_HWC) * (0, 1, 1) + (50, 0, 0))

"""The digits of scikit-learn as files, for tests of pictures."""

from __future__ import annotations

import colorsys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def write_digits(folder: Path, count: int | None = 600, *, test: int = 6, coloured: bool = False) -> Path:
    """Write digits of 8 pixels as PNG files into train and test, in a folder for each class.

    count     number of digits; None: all
    test      one digit in this many is in test
    coloured  each class in its own hue, on black
    """
    from PIL import Image

    found = load_digits()
    for i, (pixels, label) in enumerate(zip(found.images[:count], found.target[:count], strict=True)):
        if coloured:
            pixels = pixels[..., None] * np.array(colorsys.hsv_to_rgb(label / 10, 0.9, 1.0))
        place = folder / ("train" if i % test else "test") / f"digit {label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 255 / 16).astype(np.uint8)).save(place / f"{i}.png")
    return folder

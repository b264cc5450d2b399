"""The digits that scikit-learn carries, as a folder of pictures: data for a first run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unmask.data.pictures.decoding import pillow
from unmask.files import atomic_folder

TEST = 6  # one picture in 6 is a test picture


def write(folder: Path) -> None:
    """Write 1,797 handwritten digits of 8 x 8 pixels as PNG files (Alpaydin & Kaynak 1998): train/DIGIT/NUMBER.png, and
    one picture in 6 as test/DIGIT/NUMBER.png. An existing folder is complete and stays as it is. Raises
    UnmaskError if the folder cannot be written."""
    from sklearn.datasets import load_digits

    Image = pillow()
    if folder.is_dir():
        return
    found = load_digits()
    with atomic_folder(folder) as whole:
        for number, (pixels, label) in enumerate(zip(found.images, found.target, strict=True)):
            place = whole / ("test" if number % TEST == 0 else "train") / str(label)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * 255 / 16).astype(np.uint8)).save(place / f"{number:04}.png")

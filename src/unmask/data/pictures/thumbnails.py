"""Thumbnails: small copies of pictures, as files of few bytes.

Shapes: H height and W width in pixels; C channels, 3 or 1.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from unmask.data.files.png import png
from unmask.data.pictures.decoding import pillow

SIDE = 96  # pixels of the longer side of a copy that is made smaller
BYTES = 4_096  # of a file, at most
FORMATS: tuple[dict[str, Any], ...] = (
    {"format": "PNG"},
    *({"format": "JPEG", "quality": quality} for quality in (85, 70, 50, 30, 15)),
)
"""Formats that are tried until a file is small enough."""


def thumbnail(pixels_HWC: np.ndarray) -> bytes:
    """A file with a copy of a picture [H, W, C] uint8, of at most SIDE² pixels and BYTES bytes. It is a PNG if that is
    small enough, as for small pictures, whose pixels then stay exact; else a JPEG, for which Pillow is needed."""
    if pixels_HWC.shape[0] * pixels_HWC.shape[1] <= SIDE**2 and len(exact := png(pixels_HWC)) <= BYTES:
        return exact
    Image = pillow()
    picture = Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[2] == 1 else pixels_HWC)
    side = SIDE
    while True:
        picture.thumbnail((side, side), reducing_gap=3.0)
        for chosen in FORMATS:
            file = io.BytesIO()
            picture.save(file, **chosen)
            if file.tell() <= BYTES:
                return file.getvalue()
        side //= 2

"""Gallery: pictures, or maps of numbers, side by side in groups with captions.

Shapes: H height and W width in pixels; C channels, 3 or 1.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np

from unmask.data.pictures.decoding import decode, encode, resize
from unmask.visualize.numbers import Data, packed, unpacked

MOST = 384  # pixels of the longer side of a picture; larger ones are shrunk
BICUBIC = 3


def picture(pixels_HWC: np.ndarray, caption: str = "") -> Data:
    """A cell with a picture [H, W, C] uint8: {"caption", "height", "width", "file": base64 of a PNG file}."""
    longer = max(pixels_HWC.shape[:2])
    if longer > MOST:
        height, width = (max(1, round(side * MOST / longer)) for side in pixels_HWC.shape[:2])
        pixels_HWC = resize(pixels_HWC, height, width, BICUBIC)
    height, width = pixels_HWC.shape[:2]
    file = base64.b64encode(encode(pixels_HWC)).decode()
    return {"caption": caption, "height": height, "width": width, "file": file}


def numbers(values_HW: np.ndarray, caption: str = "") -> Data:
    """A cell with a map of numbers, which have a colour by their sign: {"caption", "values"}."""
    return {"caption": caption, "values": packed(values_HW)}


def group(title: str, cells: Sequence[Data], across: int, *, size: int = 96) -> Data:
    """Cells under a title, in rows of `across`; the longer side of a cell has `size` pixels on the page."""
    return {"title": title, "cells": list(cells), "across": max(1, min(across, len(cells))), "size": size}


def gallery(lead: str, groups: Sequence[Data], *, scale: float = 1.0, note: str = "") -> Data:
    """The view.

    lead   the sentence above it
    scale  size of a number in a map that has the full colour
    """
    return {"view": "gallery", "lead": lead, "groups": list(groups), "scale": scale, "note": note}


def pixels(cell: Data) -> np.ndarray:
    """[H, W, 3] uint8 of a cell that `picture` made."""
    return decode(base64.b64decode(cell["file"]))


def values(cell: Data) -> np.ndarray:
    """[H, W] float32 of a cell that `numbers` made."""
    return unpacked(cell["values"])

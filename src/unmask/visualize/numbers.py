"""Numbers for a page: arrays as base64 inside JSON, and thumbnails of matrices."""

from __future__ import annotations

import base64
import math
from typing import Any, Literal

import numpy as np

Data = dict[str, Any]
"""Plain JSON values: the data of a view."""


def packed(values: np.ndarray, kind: Literal["float16", "uint8", "int16"] = "float16") -> Data:
    """An array as {"kind", "shape", "data": base64 of its little-endian bytes}.

    float16 keeps three digits of a number. uint8 is for shares from 0 to 1: a byte stands for byte / 255. int16 is for
    samples from -1 to 1: an integer stands for integer / 2^15.
    """
    if kind == "uint8":
        flat = np.rint(np.clip(values, 0.0, 1.0) * 255).astype(np.uint8)
    elif kind == "int16":
        flat = np.clip(np.rint(values * 2.0**15), -(2**15), 2**15 - 1).astype("<i2")
    else:
        flat = np.clip(values, -65_504, 65_504).astype("<f2")
    return {"kind": kind, "shape": list(flat.shape), "data": base64.b64encode(flat.tobytes()).decode()}


def unpacked(value: Data) -> np.ndarray:
    """The array that `packed` encoded, in float32, with the precision of its kind."""
    raw = base64.b64decode(value["data"])
    if value["kind"] == "uint8":
        return (np.frombuffer(raw, np.uint8).astype(np.float32) / 255).reshape(value["shape"])
    if value["kind"] == "int16":
        return (np.frombuffer(raw, "<i2").astype(np.float32) / 2**15).reshape(value["shape"])
    return np.frombuffer(raw, "<f2").astype(np.float32).reshape(value["shape"])


def thumbnail(values: np.ndarray, side: int = 48) -> np.ndarray:
    """[..., T, S] -> [..., t, s] with t, s <= side: the largest value of each tile, so that no strong cell is lost."""
    for axis in (-1, -2):
        size = values.shape[axis]
        width = math.ceil(size / side)
        values = np.maximum.reduceat(values, np.arange(0, size, width), axis=axis)
    return values

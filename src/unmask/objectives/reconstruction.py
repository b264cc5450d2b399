"""Reconstruction: what a model restores of the masked patches of a picture."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

GREY = 128  # of masked patches


class Reconstruction(NamedTuple):
    """What a model restores of the masked patches of a picture.

    picture   [size, size, C] uint8, as the model reads it
    restored  [size, size, C] uint8, the visible patches of the picture, and the predictions in place of the others
    hidden    [size, size] bool, the pixels of the masked patches
    """

    picture: np.ndarray
    restored: np.ndarray
    hidden: np.ndarray

    @property
    def masked(self) -> np.ndarray:
        """[size, size, C] uint8: the picture with its masked patches in grey."""
        return np.where(self.hidden[..., None], np.uint8(GREY), self.picture)

    @property
    def error(self) -> float:
        """The mean absolute difference of the masked pixels, as a share of their range."""
        differences = np.abs(self.restored[self.hidden].astype(np.float64) - self.picture[self.hidden])
        return float(differences.mean()) / 255

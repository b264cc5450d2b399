"""Reconstruction: what a model restores of a picture that it sees in part, or changed."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

GREY = 128  # of masked patches


class Reconstruction(NamedTuple):
    """What a model restores of a picture.

    picture   [size, size, C] uint8, as the model reads it, before it is masked or changed
    seen      [size, size, C] uint8, what the model sees of it
    restored  [size, size, C] uint8, with the predictions in place of the hidden pixels
    hidden    [size, size] bool, the pixels that are predicted
    """

    picture: np.ndarray
    seen: np.ndarray
    restored: np.ndarray
    hidden: np.ndarray

    @classmethod
    def whole(cls, picture: np.ndarray, seen: np.ndarray, restored: np.ndarray) -> Self:
        """Of a picture of which all pixels are predicted."""
        return cls(picture, seen, restored, np.ones(picture.shape[:2], bool))

    @property
    def error(self) -> float:
        """The mean absolute difference of the hidden pixels, as a share of their range."""
        differences = np.abs(self.restored[self.hidden].astype(np.float64) - self.picture[self.hidden])
        return float(differences.mean()) / 255

"""Rotation: by which multiple of 90 degrees is a picture rotated? (RotNet, Gidaris et al. 2018)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unmask.data.pictures.processor import ImageProcessor
from unmask.objectives.objective import Objective, Term
from unmask.objectives.pictures import ChangedPictures, PictureConfig
from unmask.types import Example

QUARTERS = 4


class Rotation(ChangedPictures):
    """All four rotations of each picture are rows of a batch, and the summary of each predicts which it is (section 3).

    crop  smallest share of a picture that its square covers

    Squares are rotated by transposing and mirroring, which leaves no trace in the pixels (section 3.1).
    """

    name = "rotation"
    terms = (Term("rotation", "rotations", accuracy="rotations that were predicted correctly"),)
    head_labels = (("rotation", "rotation"),)

    def __init__(self, processor: ImageProcessor, *, crop: float) -> None:
        super().__init__(processor, QUARTERS, side=processor.size, crop=crop)

    def changed(self, square_HWC: np.ndarray, rng: np.random.Generator) -> list[Example]:
        """The picture rotated counter-clockwise by 0, 90, 180 and 270 degrees, which are the numbers 0 to 3."""
        pixels_CHW = self.processor.pixels(square_HWC)
        return [self.example(np.rot90(pixels_CHW, k, (1, 2)), k) for k in range(QUARTERS)]


@dataclass(frozen=True, kw_only=True)
class RotationConfig(PictureConfig):
    """Predict by which multiple of 90 degrees a picture is rotated.

    crop  smallest share of a picture that is read
    """

    crop: float = 0.5

    kind: ClassVar[str] = "rotation"
    learned: ClassVar[str] = "rotations of pictures"
    example: ClassVar[str] = "rotation-tiny"
    objective = Rotation
    own_heads: ClassVar[frozenset[str]] = frozenset({"rotation"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("patches", "rotation"),)

    def build(self, processor: ImageProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        return Rotation(processor, crop=self.crop)

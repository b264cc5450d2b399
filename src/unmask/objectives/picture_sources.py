"""What objectives on pictures share: how they read folders, and the fields that fit a model to its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from unmask.data.loader import Collated, Loader
from unmask.data.order import Shuffled
from unmask.data.pictures.folder import PictureFolder, Pictures
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.source import Joined
from unmask.models.model import ModelConfig
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.objective import Objective, StreamOptions
from unmask.types import Batch

BLOCK = 256  # pictures whose order is drawn at once


class PictureObjective(Objective):
    """An objective on pictures. A subclass turns pictures into rows (`rows`)."""

    processor: ImageProcessor

    def stream(self, splits: Sequence[Pictures], options: StreamOptions) -> Loader:
        order = Shuffled(self.source(splits), BLOCK, seed=options["seed"])
        return Loader(Collated(order, self.rows), cut=options["cut"], workers=options["workers"])

    def source(self, splits: Sequence[Pictures]) -> Joined:
        """The pictures of all folders, with the channels of the processor."""
        return Joined([split.of_channels(self.processor.channels) for split in splits])

    def rows(self, pictures: Sequence[np.ndarray], rng: np.random.Generator) -> Batch:
        """Pictures [H, W, C] uint8 as a batch."""
        raise NotImplementedError(f"{type(self).__name__} makes no rows of pictures.")


@dataclass(frozen=True, kw_only=True)
class PictureConfig(ObjectiveConfig):
    """Fields of every objective on pictures.

    size      pixels of a side of what the model reads      patch  of a patch
    channels  numbers of a pixel: 3, or 1 for grey
    """

    size: int = 32
    patch: int = 4
    channels: int = 3

    requires: ClassVar[frozenset[str]] = frozenset({"pictures"})

    @classmethod
    def opens(cls, folder: Path | str) -> PictureFolder:
        """A folder of pictures."""
        return PictureFolder(folder)

    def processor(self, processor: ImageProcessor) -> ImageProcessor:
        """That of the folder, for pictures of this size."""
        if processor.channels != self.channels:
            mean = (float(np.mean(processor.mean)),) * self.channels
            processor = replace(processor, mean=mean, std=(float(np.mean(processor.std)),) * self.channels)
        return replace(processor, size=self.size, patch=self.patch, resize_to=None)

    def model_fields(self, processor: ImageProcessor) -> dict[str, int]:
        return {"size": self.size, "patch": self.patch, "channels": self.channels}

    def of_model(self, model: ModelConfig) -> Self:
        fields = {name: getattr(model, name) for name in ("size", "patch", "channels") if hasattr(model, name)}
        return replace(self, **fields)

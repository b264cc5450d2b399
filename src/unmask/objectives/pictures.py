"""Objectives on pictures: how they are drawn, prepared and cut into patches, whatever is learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from unmask.data import collate
from unmask.data.files.corpora import format_of
from unmask.data.loader import Collated, Loader
from unmask.data.order import Shuffled
from unmask.data.pictures.corpus import PictureCorpus
from unmask.data.pictures.folder import PictureFolder, Pictures
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.source import Joined
from unmask.errors import UnmaskError
from unmask.models.model import ModelConfig
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.objective import Objective, StreamOptions
from unmask.types import Batch, Kind

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


class MaskedPictures(PictureObjective):
    """Masks a share of the patches of every picture, in `corrupt`.

    rate  the share; raises UnmaskError for one that is not between 0 and 1
    """

    def __init__(self, processor: ImageProcessor, *, rate: float) -> None:
        self.processor, self.rate = processor, rate
        self.grid = processor.size // processor.patch
        if not 0 < rate < 1:
            raise UnmaskError(f"The rate is the share of a picture that is masked, between 0 and 1, not {rate}.")

    def evaluation_rows(self, splits: Sequence[Pictures], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        source, rng = self.source(splits), np.random.default_rng(0)
        pictures = [source.read(unit) for unit in range(min(limit_rows, len(source.cost)))]
        return [self.rows(pictures[i : i + rows], rng) for i in range(0, len(pictures), rows)]

    def rows(self, pictures: Sequence[np.ndarray], rng: np.random.Generator) -> Batch:
        """Pictures [H, W, C] as a batch with masked patches."""
        batch = collate.pad([self.processor.example(one) for one in pictures], Kind.PADDING, multiple=1)
        return self.corrupt(batch, rng)


@dataclass(frozen=True, kw_only=True)
class PictureConfig(ObjectiveConfig):
    """What a model reads of a picture.

    size      pixels of a side of what the model reads
    patch     pixels of the side of a patch
    channels  numbers of a pixel: 3, or 1 for grey

    of_folder  fields that the model of a folder decides for a run that starts from it
    """

    size: int = 32
    patch: int = 4
    channels: int = 3

    requires: ClassVar[frozenset[str]] = frozenset({"pictures"})
    of_folder: ClassVar[tuple[str, ...]] = ("size", "patch", "channels")

    @classmethod
    def chosen(cls, current: ObjectiveConfig, option: str, value: str) -> ObjectiveConfig | None:
        """As for every objective, but a run that learns from texts is not turned into one on pictures."""
        return super().chosen(current, option, value) if isinstance(current, PictureConfig) else None

    @classmethod
    def opens(cls, folder: Path | str) -> PictureFolder | PictureCorpus:
        """A folder of pictures, or a corpus that was built from one."""
        return PictureFolder(folder) if format_of(Path(folder)) is None else PictureCorpus(folder)

    def processor(self, processor: ImageProcessor) -> ImageProcessor:
        """That of the folder, for pictures of this size."""
        if processor.channels != self.channels:
            mean = (float(np.mean(processor.mean)),) * self.channels
            processor = replace(processor, mean=mean, std=(float(np.mean(processor.std)),) * self.channels)
        return replace(processor, size=self.size, patch=self.patch, resize_to=None)

    def model_fields(self, processor: ImageProcessor) -> dict[str, Any]:
        return {"size": self.size, "patch": self.patch, "channels": self.channels}

    def of_model(self, model: ModelConfig) -> Self:
        fields = {name: getattr(model, name) for name in self.of_folder if hasattr(model, name)}
        return replace(self, **fields)

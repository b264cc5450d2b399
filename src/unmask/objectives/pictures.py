"""Objectives on pictures: how they are drawn, prepared and cut into patches, whatever is learned from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from unmask.data import collate
from unmask.data.augmentation import compose
from unmask.data.files.corpora import format_of
from unmask.data.loader import Collated, Loader
from unmask.data.order import Shuffled
from unmask.data.pictures.augmentation import HorizontalFlip, RandomResizedCrop
from unmask.data.pictures.corpus import PictureCorpus
from unmask.data.pictures.folder import PictureFolder, Pictures
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.source import Joined
from unmask.errors import UnmaskError
from unmask.models.model import Model, ModelConfig
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.objective import Objective, Probe, StreamOptions
from unmask.objectives.reconstruction import Reconstruction
from unmask.types import Batch, Example, Head, Kind

BLOCK = 256  # pictures whose order is drawn at once
LOOKED_AT = 32  # pictures of a folder, spread over it, among which one must have a colour
SQUARE = (1.0, 1.0)  # width / height
PROBES = 4  # held-out pictures that are restored at every evaluation


class PictureObjective(Objective):
    """An objective on pictures. A subclass turns pictures into rows (`rows`)."""

    processor: ImageProcessor

    def reconstruct(
        self, model: Model, pictures: Sequence[np.ndarray], rng: np.random.Generator
    ) -> list[Reconstruction]:
        """What the model restores of the masked patches of some pictures [H, W, C] uint8. Call it in evaluation mode,
        without gradients. Raises UnmaskError for an objective that predicts no pixels."""
        raise UnmaskError(f"An objective of {self.terms[0].label} predicts no pixels of a picture.")

    def stream(self, splits: Sequence[Pictures], options: StreamOptions) -> Loader:
        order = Shuffled(self.source(splits), BLOCK, seed=options["seed"])
        return Loader(Collated(order, self.rows), cut=options["cut"], workers=options["workers"])

    def source(self, splits: Sequence[Pictures]) -> Joined:
        """The pictures of all folders, with the channels of the processor."""
        return Joined([split.of_channels(self.processor.channels) for split in splits])

    def evaluation_rows(self, splits: Sequence[Pictures], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        source, rng = self.source(splits), np.random.default_rng(0)
        pictures = [source.read(unit) for unit in range(min(limit_rows, len(source.cost)))]
        return [self.rows(pictures[i : i + rows], rng) for i in range(0, len(pictures), rows)]

    def rows(self, pictures: Sequence[np.ndarray], rng: np.random.Generator) -> Batch:
        """Pictures [H, W, C] uint8 as a batch."""
        raise NotImplementedError(f"{type(self).__name__} makes no rows of pictures.")


class RestoredPictures(PictureObjective):
    """Predicts pixels: a run restores some held-out pictures at every evaluation. A subclass restores pictures
    (`reconstruct`).

    given  what the model sees of a picture, in a word
    about  sentences on what it sees and restores
    """

    restores = True
    given: ClassVar[str]
    about: ClassVar[str]

    def probes(self, split: Any, tokenizer: Any, length: int) -> list[Probe]:
        """Pictures of a held-out split, evenly spread over it."""
        source = self.source([split])
        count = len(source.cost)
        units = dict.fromkeys(i * count // PROBES for i in range(PROBES))
        return [Probe(f"held-out picture {i + 1}", np.empty(0, np.int64), item=source.read(i)) for i in units]

    def pictures(self, model: Model, processor: Any, probes: Sequence[Probe]) -> list[dict[str, np.ndarray]]:
        """The reconstruction of each probe, with the same random numbers at every call."""
        pictures = [probe.item for probe in probes if probe.item is not None]
        found = self.reconstruct(model, pictures, np.random.default_rng(0)) if pictures else []
        return [{"picture": one.picture, self.given: one.seen, "restored": one.restored} for one in found]


class MaskedPictures(PictureObjective):
    """Masks a share of the patches of every picture, in `corrupt`.

    rate  the share; raises UnmaskError for one that is not between 0 and 1
    """

    def __init__(self, processor: ImageProcessor, *, rate: float) -> None:
        self.processor, self.rate = processor, rate
        self.grid = processor.size // processor.patch
        if not 0 < rate < 1:
            raise UnmaskError(f"The rate is the share of a picture that is masked, between 0 and 1, not {rate}.")

    def rows(self, pictures: Sequence[np.ndarray], rng: np.random.Generator) -> Batch:
        """Pictures [H, W, C] as a batch with masked patches."""
        batch = collate.pad([self.processor.example(one) for one in pictures], Kind.PADDING, multiple=1)
        return self.corrupt(batch, rng)


def require_colours(processor: ImageProcessor) -> None:
    """Raises UnmaskError for a processor of grey pixels, which an objective on colours cannot use."""
    if processor.channels != 3:
        raise UnmaskError(
            "This run learns from colours, but its model reads grey pictures: set --channels 3, or start from a model "
            "that reads colours."
        )


class ChangedPictures(PictureObjective):
    """Predicts from the summary of a picture which of some known changes was made. A subclass changes pictures
    (`changed`).

    changes  number of changes
    side     pixels of the side of the squares that are changed. They are cut out without stretching, because the
             direction of stretching would give a rotation away
    crop     smallest share of a picture that a square covers in training, where squares are also mirrored at random

    Raises UnmaskError for a share that is not above 0 and at most 1.
    """

    def __init__(self, processor: ImageProcessor, changes: int, *, side: int, crop: float) -> None:
        if not 0 < crop <= 1:
            raise UnmaskError(f"The smallest crop is a share of the picture above 0 and at most 1, not {crop}.")
        self.processor, self.changes = processor, changes
        self.heads = {self.name: Head("sequence", changes, pretraining=True)}
        self.augment = compose(RandomResizedCrop(side, (crop, 1.0), SQUARE), HorizontalFlip())
        self.largest = RandomResizedCrop(side, (1.0, 1.0), SQUARE)

    def evaluation_rows(self, splits: Sequence[Pictures], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        """The largest squares of held-out pictures, each with its changes; the same at every call."""
        source, rng = self.source(splits), np.random.default_rng(0)
        examples = list[Example]()
        for unit in range(len(source.cost)):
            if len(examples) >= limit_rows:
                break
            examples += self.changed(self.largest(source.read(unit), rng), rng)
        examples = examples[:limit_rows]
        return [self._batch(examples[i : i + rows]) for i in range(0, len(examples), rows)]

    def rows(self, pictures: Sequence[np.ndarray], rng: np.random.Generator) -> Batch:
        """Each picture with its changes. The target, at the first place of a row, is the number of the change."""
        return self._batch([example for one in pictures for example in self.changed(self.augment(one, rng), rng)])

    def changed(self, square_HWC: np.ndarray, rng: np.random.Generator) -> list[Example]:
        """The examples of a square picture."""
        raise NotImplementedError(f"{type(self).__name__} changes no pictures.")

    def example(self, pixels_CHW: np.ndarray, change: int) -> Example:
        """A changed picture with the number of its change."""
        target = {self.name: (np.zeros(1, np.int64), np.array([change]))}
        return replace(self.processor.patches(pixels_CHW), targets=target)

    def _batch(self, examples: Sequence[Example]) -> Batch:
        return collate.pad(examples, Kind.PADDING, multiple=1)

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if f"loss/{self.name}" not in found:
            return []
        accuracy, loss = found[f"{self.name}/correct"], found[f"loss/{self.name}"]
        return [
            f"Held-out pictures, {self.terms[0].label}: accuracy {accuracy:.1%}, loss {loss:.2f} (guessing: "
            f"{1 / self.changes:.1%}, {math.log(self.changes):.2f})."
        ]


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
    plain: ClassVar[bool] = True
    of_folder: ClassVar[tuple[str, ...]] = ("size", "patch", "channels")
    pipeline: ClassVar[str] = "image-feature-extraction"
    command: ClassVar[tuple[str, str] | None] = ("embed", "--data pictures --out vectors.npy")

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
        return replace(processor, size=self.size, patch=self.patch, resize_to=None, ratio=False)

    def model_fields(self, processor: ImageProcessor) -> dict[str, Any]:
        return {"size": self.size, "patch": self.patch, "channels": self.channels}

    def mismatch(self, corpus: object, folder: object) -> str:
        return (
            f"The pictures in {corpus} would be prepared otherwise than those that {folder} was trained on: leave "
            f"--patch and --channels out, and copy preprocessor_config.json from {folder} to {corpus}."
        )

    def model_settings(self) -> dict[str, Any]:
        return {"size": self.size}

    def of_model(self, model: ModelConfig) -> Self:
        fields = {name: getattr(model, name) for name in self.of_folder if hasattr(model, name)}
        return replace(self, **fields)


@dataclass(frozen=True, kw_only=True)
class ColourConfig(PictureConfig):
    """Of an objective on the colours of pictures."""

    def check_data(self, splits: Sequence[Pictures]) -> list[str]:
        """Raises UnmaskError where none of some pictures of each folder has a colour."""
        for split in splits:
            units = range(0, len(split.sources), -(-len(split.sources) // LOOKED_AT) or 1)
            if units and not any(np.ptp(split.of_channels(3).read(unit), axis=2).any() for unit in units):
                raise UnmaskError(
                    "The pictures are grey, and this run learns from colours: give "
                    "pictures with colours, or choose another recipe, such as simmim-tiny."
                )
        return []

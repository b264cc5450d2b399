"""How recordings are changed in supervised training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.data.augmentation import Augmentation, Maybe, compose
from unmask.data.examples import Collate, PackedGroups
from unmask.data.recordings.augmentation import Crop, Gain, Noise, Shift, SilencedBands, Speed
from unmask.data.recordings.examples import RecordingExamples
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.models.model_config import ModelConfig
from unmask.objectives.crops import spans
from unmask.tasks.rows import TaskOptions
from unmask.types import Batch, Example, Kind


@dataclass(frozen=True, kw_only=True)
class Augmenting(TaskOptions):
    """Changes of the training recordings; by default there are none.

    speed   change of the speed: 0.1 plays a recording at 0.9, 1 or 1.1 of its speed (Ko et al. 2015)
    gain    decibels by which a recording becomes louder or quieter; without effect where samples are normalised
    noise   share of the recordings to which white noise is added, 10 to 40 decibels below the recording
    silenced_bands  bands of frequencies that are silenced, each of at most a tenth of the spectrum (Park et al. 2019)
    masks   share of the frames that are masked in spans, as in the pre-training of wav2vec 2.0 (Baevski et al. 2020)
    span    frames of such a span
    """

    speed: float = 0.0
    gain: float = 0.0
    noise: float = 0.0
    silenced_bands: int = 0
    masks: float = 0.0
    span: int = 10

    def check(self) -> None:
        if not 0 <= self.speed < 1 or not 0 <= self.noise <= 1 or not 0 <= self.masks < 1:
            raise UnmaskError(
                "--speed and --masks must be at least 0 and below 1, and --noise at least 0 and at most 1."
            )
        if min(self.gain, self.silenced_bands) < 0 or self.span < 1:
            raise UnmaskError("--gain and --silenced-bands must be at least 0, and --span at least 1.")
        if self.span != Augmenting.span and not self.masks:
            raise UnmaskError("--span is for --masks, the share of masked frames: set it, or leave --span out.")

    def check_model(self, config: ModelConfig) -> None:
        """Raises UnmaskError for masked frames with a model that has no vector for them."""
        if self.masks and "masked frames" not in config.offers:
            raise UnmaskError(
                f"A {type(config).__name__} has no vector for masked frames: leave --masks out, or silence bands of "
                "frequencies with --silenced-bands."
            )

    def parts(self, rate: int) -> list[Augmentation]:
        """The changes of samples, in their order."""
        parts: list[Augmentation] = [Speed(self.speed)] if self.speed else []
        parts += [Gain(self.gain)] if self.gain else []
        parts += [SilencedBands(self.silenced_bands)] if self.silenced_bands else []
        parts += [Maybe(Noise(), self.noise)] if self.noise else []
        return parts

    def training(self, processor: RecordingProcessor, longest: int) -> Collate | None:
        """Makes the batches of training from `RecordingExamples`; None without any change. Raises UnmaskError for
        values out of range."""
        self.check()
        parts = self.parts(processor.rate)
        if not parts and not self.masks:
            return None
        return TrainingRecordings(processor, compose(*parts), longest, self.masks, self.span)


@dataclass(frozen=True, kw_only=True)
class Cropping(Augmenting):
    """Changes for tasks whose answer does not depend on when something is heard.

    crop   smallest share of a recording that a random crop keeps; 1: no such crop
    shift  largest shift in time, in seconds
    """

    crop: float = 1.0
    shift: float = 0.0

    def check(self) -> None:
        super().check()
        if not 0 < self.crop <= 1 or self.shift < 0:
            raise UnmaskError("--crop is a share of a recording, above 0 and at most 1, and --shift at least 0.")

    def parts(self, rate: int) -> list[Augmentation]:
        moves: list[Augmentation] = [Crop(self.crop)] if self.crop < 1 else []
        moves += [Shift(most)] if (most := round(self.shift * rate)) else []
        return [*moves, *super().parts(rate)]


@dataclass(frozen=True)
class TrainingRecordings:
    """Makes a batch of changed recordings, packed into rows, with the targets that they have unchanged.

    longest  most frames of a recording
    masks    share of the frames that are masked in spans of `span`
    """

    processor: RecordingProcessor
    augment: Augmentation
    longest: int
    masks: float
    span: int

    def __call__(self, groups: Sequence[RecordingExamples], rng: np.random.Generator) -> Batch:
        """Every recording of the groups. The generator is drawn from for each of them."""
        examples = [self.example(group, i, rng) for group in groups for i in range(len(group))]
        return PackedGroups(Kind.PADDING)([examples], rng)

    def example(self, group: RecordingExamples, index: int, rng: np.random.Generator) -> Example:
        """A changed recording; one that would become too short to be read stays as it is."""
        plain_N = group.samples(index)
        changed_N = self.augment(plain_N, rng)[: self.processor.samples(self.longest)]
        example = group.example(index, changed_N if self.processor.frames(len(changed_N)) else plain_N)
        if self.masks:
            example.tokens[spans(len(example.tokens), self.masks, self.span, rng)] = Kind.MASK
        return example

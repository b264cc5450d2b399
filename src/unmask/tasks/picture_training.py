"""How pictures are augmented and mixed in supervised training.

Shapes: N pictures, H height and W width in pixels, C channels, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unmask.data import collate
from unmask.data.augmentation import Augmentation, compose
from unmask.data.examples import Collate
from unmask.data.pictures.augmentation import (
    HorizontalFlip,
    PadAndCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
)
from unmask.data.pictures.examples import PictureExamples
from unmask.data.pictures.mixing import Mixing
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.rand_augment import RandAugment
from unmask.errors import UnmaskError
from unmask.tasks.rows import TaskOptions
from unmask.types import Batch, Kind

GREY = 128  # of erased boxes; the mean of the default processor


@dataclass(frozen=True, kw_only=True)
class AugmentingEach(TaskOptions):
    """Augmentation of each training picture alone; by default there is none.

    crop        smallest share of a picture that a random crop covers; 1: no such crop
    padding     pixels that are added to each side of the resized picture before it is cropped at random
    flip        share of the pictures that are mirrored left and right
    operations  operations of RandAugment for each picture (Cubuk et al. 2020); 0: none
    magnitude   strength of these operations, from 0 to 10
    erasing     share of the pictures in which a random box is erased (Zhong et al. 2020)
    """

    crop: float = 1.0
    padding: int = 0
    flip: float = 0.0
    operations: int = 0
    magnitude: float = 9.0
    erasing: float = 0.0

    def check(self) -> None:
        super().check()
        if not 0 < self.crop <= 1:
            raise UnmaskError(f"--crop is a share of the picture, above 0 and at most 1, not {self.crop}.")
        if self.operations < 0:
            raise UnmaskError("--operations must be at least 0.")
        if self.crop < 1 and self.padding:
            raise UnmaskError("--crop and --padding are two ways to crop at random: leave one of them out.")

    def augmented(self, processor: ImageProcessor) -> AugmentedPictures | None:
        """Makes the batches of training from `PictureExamples`; None without any augmentation. Raises UnmaskError for
        values out of range."""
        AugmentingEach.check(self)
        parts: list[Augmentation] = []
        if self.crop < 1:
            parts.append(RandomResizedCrop(processor.size, (self.crop, 1.0), resample=processor.resample))
        else:
            parts.append(Resize(processor.size, processor.resample))
        parts += [PadAndCrop(self.padding)] if self.padding else []
        parts += [HorizontalFlip(self.flip)] if self.flip else []
        parts += [RandAugment(self.operations, self.magnitude)] if self.operations else []
        parts += [RandomErasing(self.erasing, value=GREY)] if self.erasing else []
        square = replace(processor, resize_to=None, ratio=False)  # augmented pictures have the size of the model
        return None if len(parts) == 1 and self.crop == 1 else AugmentedPictures(square, compose(*parts))


@dataclass(frozen=True, kw_only=True)
class Augmenting(AugmentingEach):
    """Augmentation of the training pictures of a classifier; by default there is none.

    mixup      alpha of Mixup (Zhang et al. 2018); 0: none
    cutmix     alpha of CutMix (Yun et al. 2019); 0: none. With both, a batch has one of the two
    smoothing  share of a label's probability that is spread over all classes (Szegedy et al. 2016)
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    smoothing: float = 0.0

    def check(self) -> None:
        super().check()
        if not 0 <= self.smoothing < 1:
            raise UnmaskError(f"--smoothing must be at least 0 and below 1, not {self.smoothing}.")
        if min(self.mixup, self.cutmix) < 0:
            raise UnmaskError("--mixup and --cutmix must be at least 0.")

    def training(self, processor: ImageProcessor, classes: int) -> Collate | None:
        """As `augmented`, with probabilities of the classes as targets."""
        Augmenting.check(self)
        each = self.augmented(processor)
        mixing = Mixing(mixup=self.mixup, cutmix=self.cutmix) if self.mixup or self.cutmix else None
        if each is None and mixing is None and not self.smoothing:
            return None
        each = each or AugmentedPictures(processor)
        return MixedPictures(each.processor, each.augment, classes=classes, mixing=mixing, smoothing=self.smoothing)


@dataclass(frozen=True)
class AugmentedPictures:
    """Makes a batch of augmented pictures. `augment` returns pictures of the size of the model; None: they stay as they
    are."""

    processor: ImageProcessor
    augment: Augmentation | None = None

    def __call__(self, groups: Sequence[PictureExamples], rng: np.random.Generator) -> Batch:
        """Every picture of the groups as a row. The generator is drawn from for each picture in turn."""
        numbered = [(group, i) for group in groups for i in range(len(group))]
        pixels_NCHW, target_N = self.pixels(numbered, rng), np.stack([group.value(i) for group, i in numbered])
        return self.batch(pixels_NCHW, groups[0].name, target_N)

    def pixels(self, numbered: Sequence[tuple[PictureExamples, int]], rng: np.random.Generator) -> np.ndarray:
        """[N, C, H, W] float32: the augmented pictures with these numbers in their groups, normalised."""
        pictures = (group.pixels(i) for group, i in numbered)
        augmented = (one if self.augment is None else self.augment(one, rng) for one in pictures)
        return np.stack([self.processor.pixels(one) for one in augmented])

    def batch(self, pixels_NCHW: np.ndarray, name: str, values_NK: np.ndarray) -> Batch:
        """The pictures as rows, each with the target `name` at its first place."""
        place = np.zeros(1, np.int64)
        examples = [
            replace(self.processor.patches(pixels_CHW), targets={name: (place, values)})
            for pixels_CHW, values in zip(pixels_NCHW, values_NK, strict=True)
        ]
        return collate.pad(examples, Kind.PADDING, multiple=1)


@dataclass(frozen=True, kw_only=True)
class MixedPictures(AugmentedPictures):
    """Makes a batch of augmented and mixed pictures, whose targets are probabilities of the K classes."""

    classes: int
    mixing: Mixing | None = None
    smoothing: float = 0.0

    def __call__(self, groups: Sequence[PictureExamples], rng: np.random.Generator) -> Batch:
        """As for augmented pictures; the generator is drawn from for the mixing last."""
        numbered = [(group, i) for group in groups for i in range(len(group))]
        pixels_NCHW = self.pixels(numbered, rng)
        target_NK = self.probabilities(np.array([group.value(i)[0] for group, i in numbered]))
        if self.mixing is not None:
            mixed = self.mixing(pixels_NCHW, target_NK, rng)
            weights_N1 = mixed.weights[:, None]
            pixels_NCHW, target_NK = mixed.pixels, weights_N1 * mixed.labels + (1 - weights_N1) * mixed.others
        return self.batch(pixels_NCHW, groups[0].name, target_NK[:, None].astype(np.float32))

    def probabilities(self, labels_N: np.ndarray) -> np.ndarray:
        """[N, K]: 1 - smoothing for the label, and smoothing / K for every class."""
        return np.eye(self.classes)[labels_N] * (1 - self.smoothing) + self.smoothing / self.classes

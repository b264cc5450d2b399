"""Image classification: one label for a picture.

Shapes: N rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import huggingface
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.pictures import digits
from unmask.data.pictures.decoding import SUFFIXES
from unmask.data.pictures.examples import PictureExamples
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture, doubts
from unmask.data.pictures.recutting import Recut
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.kernels.linear import Logits
from unmask.models.model import Model
from unmask.tasks.balance import ClassLoss, Weighing
from unmask.tasks.encoded import Encoded
from unmask.tasks.one_label import OneLabel
from unmask.tasks.picture_references import FEATURES, Features, regression_on_pictures
from unmask.tasks.picture_training import Augmenting
from unmask.tasks.pictures import PictureTask
from unmask.tasks.reading import counts_of, labels_of
from unmask.tasks.stand_in import StandIn
from unmask.tasks.task import Say, Score, Task
from unmask.types import Batch, Loss


@dataclass(frozen=True, kw_only=True)
class PictureOptions(Augmenting, Weighing):
    """Options for the training of an image classifier.

    size  pixels of a side of what the model reads; None: the size of the folder
    """

    size: int | None = None

    def check(self) -> None:
        super().check()
        if self.balance != "none" and (self.mixup or self.cutmix or self.smoothing):
            raise UnmaskError("--balance is for pictures of one class: leave out --mixup, --cutmix and --smoothing.")


class ImageClassification(PictureTask, OneLabel):
    """Predict which of the labels a picture has: cross-entropy at the class token (Dosovitskiy et al. 2021, section
    3.1), or at the mean of the last feature map.

    weighing    weights of classes in the loss, or the focal loss; None: plain cross-entropy
    augmenting  augmentation of the training pictures
    """

    task_name, name = "image-classification", "image_classification"
    options_class = PictureOptions
    panel = "classifyPicture"
    pipeline = "image-classification"
    references_are = "logistic regression on the pixels, and on histograms of oriented gradients"

    def __init__(
        self, labels: Sequence[str], *, weighing: ClassLoss | None = None, augmenting: Augmenting | None = None
    ) -> None:
        super().__init__(labels, weighing=weighing)
        self.augmenting = augmenting or Augmenting()

    @classmethod
    def owns(cls, path: Path) -> bool:
        return path.suffix.lower() in SUFFIXES

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        labels = labels_of(sets, say, held_out=held_out)
        for sentence in doubts(sets):
            say(sentence)
        return cls(labels, weighing=options.weighing(counts_of(sets["train"], labels)), augmenting=options)

    @classmethod
    def stand_in(cls, config: Any) -> StandIn:
        rows = {"train": "train", "test": "test"}
        return StandIn("the digits of scikit-learn", "digits", digits.write, rows, {"flip": 0.0})

    @classmethod
    def prepared(cls, loaded: Loaded[Model], options: PictureOptions) -> Loaded[Model]:
        """The folder for pictures of the size that is asked for."""
        return loaded if options.size is None else huggingface.resized(loaded, options.size)

    def encode(self, rows: Sequence[Row], processor: ImageProcessor, length: int) -> Encoded:
        values = np.stack([self.value(row) for row in rows]) if rows else np.empty((0, 1), np.int64)
        pictures = [row for row in rows if isinstance(row, Picture)]
        examples = PictureExamples(pictures, processor, self.name, values)
        return Encoded(examples, np.arange(len(rows)), rows, length)

    def for_training(self, encoded: Encoded, processor: ImageProcessor) -> Encoded:
        """Augmented pictures."""
        return replace(encoded, collate=self.augmenting.training(processor, len(self.labels)))

    def of_answers(self, logits: Tensor | Logits, values_M: Tensor) -> Loss:
        """The cross-entropy with the labels [M], or with probabilities [M, C] of mixed pictures; `correct` counts the
        pictures whose most likely class is that of the target."""
        if values_M.dim() == 1:
            return super().of_answers(logits, values_M)
        logits_MC = (logits.made() if isinstance(logits, Logits) else logits).float()
        with torch.no_grad():
            correct = (logits_MC.argmax(-1) == values_M.argmax(-1)).sum()
        return Loss(F.cross_entropy(logits_MC, values_M, reduction="sum"), len(values_M), {"correct": correct})

    def for_teacher(self, student: Any, teacher: Any, owner: object) -> Callable[[Batch], Batch] | None:
        """The same pictures, as the teacher's processor cuts them into patches."""
        if not isinstance(teacher, ImageProcessor):
            return super().for_teacher(student, teacher, owner)
        return Recut(student, teacher, self.name)

    def drawn(self, row: Row) -> np.ndarray | None:
        assert isinstance(row, Picture)
        return row.pixels()

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, features) for name, features in FEATURES.items()}

    def _reference(self, train: Sequence[Row], features: Features) -> Score:
        answers = regression_on_pictures(train, features, self._true(train), len(self.labels))
        return lambda rows: self.metrics(answers(rows), rows)

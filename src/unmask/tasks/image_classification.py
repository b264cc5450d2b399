"""Image classification: one label for a picture.

Shapes: N rows, C outputs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.pictures.decoding import SUFFIXES
from unmask.data.pictures.examples import PictureExamples
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture, by_class, of_table
from unmask.data.pictures.recutting import Recut
from unmask.data.processor import Processor
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.kernels.linear import Logits
from unmask.models.model import ModelConfig
from unmask.tasks.balance import ClassLoss, Weighing
from unmask.tasks.encoded import Encoded
from unmask.tasks.forms import Form, Input, Object
from unmask.tasks.one_label import OneLabel
from unmask.tasks.picture_references import FEATURES, Features, regression_on_pictures
from unmask.tasks.picture_training import Augmenting
from unmask.tasks.reading import counts_of, labels_of
from unmask.tasks.rows import Rows, column
from unmask.tasks.task import Say, Score, Task
from unmask.types import Batch, Loss


@dataclass(frozen=True, kw_only=True)
class PictureRows(Rows):
    """Pictures with a label: a folder with a subfolder for each class, or a table of files.

    picture   column of a table that holds the names of files, or their bytes
    label     column of a table that holds the label
    stratify  hold out the same share of each class, instead of random rows
    """

    picture: str | None = column()
    label: str | None = column()
    stratify: bool = True

    LEARNING: ClassVar[tuple[str, ...]] = (*Rows.LEARNING, "stratify")


@dataclass(frozen=True, kw_only=True)
class PictureOptions(Augmenting, Weighing):
    """Options for the training of an image classifier."""

    def check(self) -> None:
        super().check()
        if self.balance != "none" and (self.mixup or self.cutmix or self.smoothing):
            raise UnmaskError("--balance is for pictures of one class: leave out --mixup, --cutmix and --smoothing.")


class PictureForm(Form):
    """A picture: on the command line the name of its file, in a request {"picture": its bytes in Base64}."""

    wanted = object = lacking = 'an object such as {"picture": "<the bytes of a file in Base64>"}'
    known = frozenset({"picture"})

    def by_name(self, parts: Sequence[str], whole: bool, number: int) -> Object:
        raise UnmaskError(f"Text {number} is a text, and this model reads pictures; it must be {self.wanted}.")

    def line(self, line: str, number: int, *, single: bool = False) -> Input:
        """The picture in the file that a line names."""
        path = Path(line.strip())
        if not path.is_file():
            raise UnmaskError(f"There is no picture {path}; give the name of a file.")
        return {"picture": path.read_bytes()}

    def row(self, values: Object, place: str) -> Row:
        given = values.get("picture")
        if isinstance(given, str):
            try:
                given = base64.b64decode(given.partition("base64,")[2] or given, validate=True)
            except binascii.Error:
                raise UnmaskError(f"{place}: the picture is not Base64.") from None
        if not isinstance(given, bytes) or not given:
            raise UnmaskError(f"{place} has no picture; it must be {self.wanted}.")
        return Picture(place=place, source=given)


class ImageClassification(OneLabel):
    """Predict which of the labels a picture has: cross-entropy at the class token (Dosovitskiy et al. 2021, section
    3.1), or at the mean of the last feature map.

    weighing    weights of classes in the loss, or the focal loss; None: plain cross-entropy
    augmenting  augmentation of the training pictures
    """

    task_name, name = "image-classification", "image_classification"
    row_class = Picture
    rows_class = PictureRows
    options_class = PictureOptions
    folders = True
    rate_share = 0.1
    rows_are = "pictures with a label"
    panel = "classifyPicture"
    references_are = "logistic regression on the pixels, and on histograms of oriented gradients"
    form = PictureForm()

    def __init__(
        self, labels: Sequence[str], *, weighing: ClassLoss | None = None, augmenting: Augmenting | None = None
    ) -> None:
        super().__init__(labels, weighing=weighing)
        self.augmenting = augmenting or Augmenting()

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        if path.is_dir():
            return by_class(path)
        return of_table(path, picture=rows.picture, label=rows.label, encoding=rows.encoding)

    @classmethod
    def owns(cls, path: Path) -> bool:
        return path.suffix.lower() in SUFFIXES

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        labels = labels_of(sets, say, held_out=held_out)
        return cls(labels, weighing=options.weighing(counts_of(sets["train"], labels)), augmenting=options)

    @classmethod
    def processor_of(cls, loaded: Loaded[Any], owner: object) -> Processor[Any]:
        return loaded.require_processor(owner)

    @classmethod
    def new_processor(cls, config: Any) -> Processor[Any]:
        channels = (0.5,) * config.channels
        return ImageProcessor(size=config.size, mean=channels, std=channels).for_model(config)

    @classmethod
    def check_model(cls, config: ModelConfig, owner: object) -> None:
        """Raises UnmaskError for a model that does not read pictures."""
        if "pictures" not in config.offers:
            raise UnmaskError(
                f"{owner} is a model that reads no pictures; take a ViT, a DeiT, a Swin, a ResNet or a VGG."
            )

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        if path.suffix.lower() in SUFFIXES:
            return [Picture(place=str(path), source=path)]
        return None

    @classmethod
    def query(cls, row: Row) -> str:
        return row.place

    def encode(self, rows: Sequence[Row], processor: ImageProcessor, length: int) -> Encoded:
        values = np.stack([self.value(row) for row in rows]) if rows else np.empty((0, 1), np.int64)
        pictures = [row for row in rows if isinstance(row, Picture)]
        examples = PictureExamples(pictures, processor, self.name, values)
        return Encoded(examples, np.arange(len(rows)), rows, length)

    def for_training(self, encoded: Encoded, processor: ImageProcessor) -> Encoded:
        """Augmented pictures. Raises UnmaskError if one of them cannot be decoded."""
        assert isinstance(encoded.examples, PictureExamples)
        encoded.examples.check()
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

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, features) for name, features in FEATURES.items()}

    def _reference(self, train: Sequence[Row], features: Features) -> Score:
        answers = regression_on_pictures(train, features, self._true(train), len(self.labels))
        return lambda rows: self.metrics(answers(rows), rows)

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

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.pictures.decoding import SUFFIXES
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture
from unmask.tasks.balance import Weighing
from unmask.tasks.encoded import Encoded
from unmask.tasks.one_label import OneLabel
from unmask.tasks.picture_references import FEATURES, Features, regression_on_pictures
from unmask.tasks.pictures import PictureTask
from unmask.tasks.reading import counts_of, labels_of
from unmask.tasks.rows import TaskOptions
from unmask.tasks.task import Say, Score, Task


@dataclass(frozen=True, kw_only=True)
class PictureOptions(Weighing, TaskOptions):
    """Options for the training of an image classifier."""


class ImageClassification(PictureTask, OneLabel):
    """Predict which of the labels a picture has: cross-entropy at the class token (Dosovitskiy et al. 2021, section
    3.1).

    weighing  weights of classes in the loss, or the focal loss; None: plain cross-entropy
    """

    task_name, name = "image-classification", "image_classification"
    options_class = PictureOptions
    panel = "classifyPicture"
    references_are = "logistic regression on the pixels, and on histograms of oriented gradients"

    @classmethod
    def owns(cls, path: Path) -> bool:
        return path.suffix.lower() in SUFFIXES

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        labels = labels_of(sets, say, held_out=held_out)
        return cls(labels, weighing=options.weighing(counts_of(sets["train"], labels)))

    def encode(self, rows: Sequence[Row], processor: ImageProcessor, length: int) -> Encoded:
        examples = []
        for row in rows:
            assert isinstance(row, Picture)
            target = {self.name: (np.zeros(1, np.int64), self.value(row))}
            examples.append(replace(processor.example(row.pixels(processor.channels)), targets=target))
        return Encoded(examples, np.arange(len(rows)), rows, length)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, features) for name, features in FEATURES.items()}

    def _reference(self, train: Sequence[Row], features: Features) -> Score:
        answers = regression_on_pictures(train, features, self._true(train), len(self.labels))
        return lambda rows: self.metrics(answers(rows), rows)

"""Picture embedding: a vector for a picture, so that pictures of one class lie close to each other (FaceNet, Schroff et
al. 2015).

Shapes: N rows, M pictures of a batch, E numbers of a vector, k pictures of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from unmask import metrics
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.order import Classes
from unmask.data.pictures.examples import PictureExamples
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture, PicturePair
from unmask.errors import UnmaskError
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.tasks.compared import Compared, RowsOfClasses, classes_of, curve_of
from unmask.tasks.encoded import Encoded
from unmask.tasks.file_forms import FileForm
from unmask.tasks.forms import Form
from unmask.tasks.picture_references import FEATURES, Features, features_of, pixel_values
from unmask.tasks.picture_training import AugmentingEach
from unmask.tasks.pictures import PictureTask
from unmask.tasks.rows import Rows, column
from unmask.tasks.task import Say, Score, Task
from unmask.tasks.triplets import BatchTriplets, Miner
from unmask.tasks.vector_scores import units
from unmask.types import Batch, Head, Loss


@dataclass(frozen=True, kw_only=True)
class PictureEmbeddingRows(RowsOfClasses):
    """Pictures with a class, such as the name of a person: a folder with a subfolder for each class, or a table of
    files. Without dev rows, a tenth of the classes is held out.

    picture  column of a table that holds the names of files, or their bytes
    label    column of a table that holds the class
    """

    picture: str | None = column()
    label: str | None = column()


@dataclass(frozen=True, kw_only=True)
class PictureEmbeddingOptions(AugmentingEach):
    """Options for the training of vectors of pictures.

    vector_size  numbers of a vector
    margin       by how much the squared distance to another class must exceed that to the own class
    miner        triplets of a batch that are compared: semi-hard, hard or all
    per_class    pictures of a class in a batch; a batch has --batch-size / --per-class classes
    """

    vector_size: int = 128
    margin: float = 0.2
    miner: Miner = "semi-hard"
    per_class: int = 4

    def check(self) -> None:
        super().check()
        BatchTriplets(self.margin, self.miner)
        if self.vector_size < 1 or self.per_class < 2:
            raise UnmaskError(
                f"--vector-size must be at least 1 and --per-class at least 2, not {self.vector_size} and "
                f"{self.per_class}."
            )


class PictureEmbedding(PictureTask, Compared):
    """A vector of length 1 for each picture: a linear layer on the summary of the trunk, trained by triplets.

    triplets     the training loss
    per_class    pictures of a class in a batch
    vector_size  E
    augmenting   augmentation of the training pictures
    threshold    see `Compared`
    """

    task_name, name = "picture-embedding", "picture_embedding"
    item = "picture"
    rows_class: ClassVar[type[Rows]] = PictureEmbeddingRows
    options_class = PictureEmbeddingOptions
    metric = "map@r"
    panel, gives = "comparePictures", "vectors of pictures"
    pipeline = "image-feature-extraction"
    reference = "correlation of the pixels of two pictures"
    references_are = "cosine of the pixels of two pictures, and of their histograms of oriented gradients"
    form: ClassVar[Form] = FileForm("picture", Picture, PicturePair, ending=".png")

    def __init__(
        self,
        triplets: BatchTriplets | None = None,
        *,
        per_class: int = 4,
        vector_size: int = 128,
        threshold: float | None = None,
        augmenting: AugmentingEach | None = None,
    ) -> None:
        self.triplets, self.per_class, self.threshold = triplets or BatchTriplets(), per_class, threshold
        self.augmenting = augmenting or AugmentingEach()
        self.heads: Mapping[str, Head] = {self.name: Head("embedding", vector_size)}

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        options.check()
        cls.say_classes(sets, say)
        triplets = BatchTriplets(options.margin, options.miner)
        return cls(triplets, per_class=options.per_class, vector_size=options.vector_size, augmenting=options)

    def encode(self, rows: Sequence[Row], processor: ImageProcessor, length: int) -> Encoded:
        found = [(i, one) for i, row in enumerate(rows) if isinstance(row, Picture) for one in row.pictures]
        owners, numbers = np.array([i for i, _ in found], np.int64), classes_of(rows)
        examples = PictureExamples([one for _, one in found], processor, self.name, numbers[owners, None])
        return Encoded(examples, owners, rows, length, classes=Classes(numbers, self.per_class))

    def for_training(self, encoded: Encoded, processor: ImageProcessor) -> Encoded:
        """Augmented pictures."""
        return replace(encoded, collate=self.augmenting.augmented(processor))

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        target = batch.targets[self.name]
        outputs_ME = model.answer(self.name, hidden_BTD, target.places, batch)
        with exactly(hidden_BTD):  # differences of distances would be lost in bfloat16
            return self.triplets(self.squash(outputs_ME.float()), target.values)

    def scores(self, units_NE: np.ndarray, rows: Sequence[Row]) -> dict[str, float]:
        """Retrieval of the other pictures of a class (`metrics.of_neighbours`), and verification of pairs
        (`metrics.of_verification`)."""
        found = metrics.of_neighbours(units_NE, classes_of(rows))
        return {**found, **metrics.of_verification(curve_of(units_NE, rows))}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        pixels_NF = features_of(rows, pixel_values)
        return self.scores(units(pixels_NF - pixels_NF.mean(1, keepdims=True)), rows)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, features) for name, features in FEATURES.items()}

    def _reference(self, features: Features) -> Score:
        return lambda rows: self.scores(units(features_of(rows, features)), rows)

    def is_collapsed(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> bool:
        """Whether the mean squared distance of two pictures is below a hundredth of the margin."""
        middle_E = np.concatenate(answers).mean(0)
        return bool(2 * (1 - middle_E @ middle_E) < 0.01 * self.triplets.margin)

"""Picture embedding: a vector for a picture, so that pictures of one class lie close to each other (FaceNet, Schroff et
al. 2015).

Shapes: N rows, M pictures of a batch, E numbers of a vector, k pictures of a row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from unmask import metrics
from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.order import Classes
from unmask.data.pictures.examples import PictureExamples
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture, PicturePair
from unmask.errors import UnmaskError, plural
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.tasks.embedding import Embedding
from unmask.tasks.encoded import Encoded
from unmask.tasks.forms import Form, Input, Object
from unmask.tasks.picture_references import FEATURES, Features, features_of, pixel_values
from unmask.tasks.picture_training import AugmentingEach
from unmask.tasks.pictures import PictureForm, PictureTask
from unmask.tasks.rows import Rows, column
from unmask.tasks.task import Curve, Say, Score, Task
from unmask.tasks.triplets import BatchTriplets, Miner
from unmask.tasks.vector_scores import units
from unmask.types import Batch, Head, Loss

RATES = np.geomspace(1e-4, 1.0, 81)  # false accept rates of the curve in a report


@dataclass(frozen=True, kw_only=True)
class PictureEmbeddingRows(Rows):
    """Pictures with a class, such as the name of a person: a folder with a subfolder for each class, or a table of
    files. Without dev rows, a tenth of the classes is held out.

    picture  column of a table that holds the names of files, or their bytes
    label    column of a table that holds the class
    """

    picture: str | None = column()
    label: str | None = column()

    def hold_out(self, whole: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset, str]:
        return *dataset.hold_out_classes(whole, count, rng), "whole classes"


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


class PairForm(PictureForm):
    """A picture, or two that are compared: on a line two names of files with a tab between them, in a request
    {"picture", "other"}."""

    known = frozenset({"picture", "other"})

    def line(self, line: str, number: int, *, single: bool = False) -> Input:
        first, tab, second = line.partition("\t")
        found = super().line(first, number)
        assert isinstance(found, Mapping)
        return {**found, "other": super().line(second, number)["picture"]} if tab else found  # type: ignore[call-overload]

    def row(self, values: Object, place: str) -> Row:
        found = super().row(values, place)
        if "other" not in values:
            return found
        other = super().row({"picture": values["other"]}, place)
        assert isinstance(found, Picture)
        assert isinstance(other, Picture)
        return PicturePair(place=place, source=found.source, other=other.source)


class PictureEmbedding(PictureTask):
    """A vector of length 1 for each picture: a linear layer on the summary of the trunk, trained by triplets.

    triplets     the training loss
    per_class    pictures of a class in a batch
    vector_size  E
    augmenting   augmentation of the training pictures
    threshold    the cosine from which two pictures count as one class: where both kinds of errors were equally frequent
                 on the dev rows (`fitted`); None: unknown

    The answer to a row is an array [k, E], for its one or two pictures. Classes of rows that are scored may be new.
    """

    task_name, name = "picture-embedding", "picture_embedding"
    gives_vectors = True
    rows_class: ClassVar[type[Rows]] = PictureEmbeddingRows
    options_class = PictureEmbeddingOptions
    metric = "map@r"
    panel, gives = "comparePictures", "vectors of pictures"
    reference = "correlation of the pixels of two pictures"
    references_are = "cosine of the pixels of two pictures, and of their histograms of oriented gradients"
    form: ClassVar[Form] = PairForm()

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
        self._notice = ""

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        options.check()
        known = set(dataset.classes(sets["train"]))
        for name, rows in sets.items():
            single = check_classes(rows)
            new = "" if name == "train" else f", {len(set(rows.labels) - known):,} of them not in training"
            say(f"{name}: {plural(len(rows), 'picture')} of {plural(len(rows.labels), 'class', 'classes')}{new}.")
            if single:
                say(f"{name}: {single}")
        triplets = BatchTriplets(options.margin, options.miner)
        return cls(triplets, per_class=options.per_class, vector_size=options.vector_size, augmenting=options)

    def for_rows(self, rows: Dataset, folder: Path, model: Model | None = None) -> Task:
        other = copy.copy(self)
        other._notice = check_classes(rows)
        return other

    @property
    def notice(self) -> str:
        return self._notice

    def check_teachable(self) -> None:
        raise UnmaskError(
            f"{self.task_name} cannot be learned from a teacher: vectors have no probabilities to soften."
        )

    def encode(self, rows: Sequence[Row], processor: ImageProcessor, length: int) -> Encoded:
        found = [(i, one) for i, row in enumerate(rows) if isinstance(row, Picture) for one in row.pictures]
        owners, numbers = np.array([i for i, _ in found], np.int64), classes_of(rows)
        examples = PictureExamples([one for _, one in found], processor, self.name, numbers[owners, None])
        return Encoded(examples, owners, rows, length, classes=Classes(numbers, self.per_class))

    def for_training(self, encoded: Encoded, processor: ImageProcessor) -> Encoded:
        """Augmented pictures."""
        return replace(encoded, collate=self.augmenting.augmented(processor))

    def squash(self, logits: Tensor) -> Tensor:
        """The outputs scaled to length 1."""
        return F.normalize(logits, dim=-1)

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        target = batch.targets[self.name]
        outputs_ME = model.answer(self.name, hidden_BTD, target.places, batch)
        with exactly(hidden_BTD):  # differences of distances would be lost in bfloat16
            return self.triplets(self.squash(outputs_ME.float()), target.values)

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        """Retrieval of the other pictures of a class (`metrics.of_neighbours`), and verification of pairs
        (`metrics.of_verification`)."""
        return _scores(np.concatenate(answers), rows)

    def curves(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, Curve]:
        curve = _roc(np.concatenate(answers), rows)
        points = [[float(far), curve.tar_at(far)] for far in RATES]
        return {"ROC": {"x": "false accept rate", "y": "true accept rate", "log_x": True, "points": points}}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        pixels_NF = features_of(rows, pixel_values)
        return _scores(units(pixels_NF - pixels_NF.mean(1, keepdims=True)), rows)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, features) for name, features in FEATURES.items()}

    def _reference(self, features: Features) -> Score:
        return lambda rows: _scores(units(features_of(rows, features)), rows)

    def is_collapsed(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> bool:
        """Whether the mean squared distance of two pictures is below a hundredth of the margin."""
        middle_E = np.concatenate(answers).mean(0)
        return bool(2 * (1 - middle_E @ middle_E) < 0.01 * self.triplets.margin)

    def fitted(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> None:
        self.threshold = _roc(np.concatenate(answers), rows).equal_error[1]

    def settings(self) -> dict[str, Any]:
        return {} if self.threshold is None else {"threshold": self.threshold}

    def answer(self, row: Row, found: np.ndarray) -> dict[str, Any]:
        """{"embedding": [numbers]} for one picture; for two {"similarity"}, the cosine, and if the threshold is known
        {"same", "threshold"}."""
        answer = Embedding.answer(self, row, found)  # type: ignore[arg-type]
        if len(found) == 1 or self.threshold is None:
            return answer
        return {**answer, "same": answer["similarity"] >= self.threshold, "threshold": self.threshold}

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        shown = Embedding.render(text, answer)
        return f"{'same' if answer['same'] else 'different'}  {shown}" if "same" in answer else shown


def classes_of(rows: Sequence[Row]) -> np.ndarray:
    """[N] the class of each row, from 0."""
    return np.unique([row.label for row in rows], return_inverse=True)[1].astype(np.int64)


def check_classes(rows: Dataset) -> str:
    """A sentence on classes with one picture; empty if there are none. Raises UnmaskError for pictures of one class
    alone, and if no class has two pictures."""
    counts = rows.histogram()
    single = [label for label, count in counts.items() if count == 1]
    if len(counts) < 2 or len(single) == len(counts):
        several = plural(len(counts) - len(single), "class", "classes")
        raise UnmaskError(
            f"{rows.path} has {plural(len(counts), 'class', 'classes')}, and {several} with two pictures or more: "
            "at least two classes are needed, and one of them with two pictures."
        )
    if not single:
        return ""
    of = f"{len(single):,} of {plural(len(counts), 'class', 'classes')}"
    return f"{of} have one picture, which is compared with the others, but has none of its class to find."


def _scores(units_NE: np.ndarray, rows: Sequence[Row]) -> dict[str, float]:
    return {**metrics.of_neighbours(units_NE, classes_of(rows)), **metrics.of_verification(_roc(units_NE, rows))}


def _roc(units_NE: np.ndarray, rows: Sequence[Row]) -> metrics.Roc:
    return metrics.roc(*metrics.pairs_of(units_NE, classes_of(rows)))

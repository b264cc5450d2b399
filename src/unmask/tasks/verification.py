"""Verification: a vector for a recording, so that recordings of one speaker lie close to each other, and others far.

Shapes: N rows, M recordings of a batch, E numbers of a vector, C speakers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import SPEAKERS, Recording, RecordingPair, Wanted
from unmask.errors import UnmaskError
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.tasks.compared import Compared, RowsOfClasses, classes_of, curve_of
from unmask.tasks.encoded import Encoded
from unmask.tasks.file_forms import FileForm
from unmask.tasks.forms import Form
from unmask.tasks.recording_references import rate_of, standardised, statistics
from unmask.tasks.recording_training import Cropping
from unmask.tasks.recordings import RecordingRows, RecordingTask
from unmask.tasks.rows import Rows, column
from unmask.tasks.task import Say, Score, Task
from unmask.tasks.vector_scores import units
from unmask.types import Batch, Head, Loss

SPEAKERS_HEAD = "speakers"
"""The name of the head with a direction for each training speaker, which reads the vectors; only training runs it."""


@dataclass(frozen=True, kw_only=True)
class VerificationRows(RowsOfClasses, RecordingRows):
    """Recordings with a speaker, or another class that is recognised by comparison. Without dev rows, a tenth of the
    classes is held out.

    label  column of a table that holds the speaker; for a folder without subfolders, a regular expression for the names
           of files with one group in brackets, such as '_([a-z]+)_'
    """

    label: str | None = column()

    WANTED: ClassVar[Wanted] = Wanted(labels=(*SPEAKERS, *Wanted.labels))


@dataclass(frozen=True, kw_only=True)
class VerificationOptions(Cropping):
    """Options for the training of vectors of recordings.

    vector_size  numbers of a vector
    margin       by how much the cosine with the own speaker must exceed those with the others (Wang et al. 2018)
    scale        factor on all cosines before the softmax
    """

    vector_size: int = 128
    margin: float = 0.4
    scale: float = 30.0

    def check(self) -> None:
        super().check()
        if self.vector_size < 1 or self.margin < 0 or self.scale <= 0:
            raise UnmaskError("--vector-size must be at least 1, --margin at least 0, and --scale above 0.")


@dataclass(frozen=True)
class AdditiveMargin:
    """-log softmax(s (cos θ - m [own class])), summed (Wang et al. 2018, "Additive Margin Softmax for Face
    Verification", equation 6)."""

    scale: float = 30.0
    margin: float = 0.4

    def __call__(self, cosines_MC: Tensor, classes_M: Tensor) -> Loss:
        """The metric `correct` counts the vectors whose own class has the largest cosine."""
        own_MC = F.one_hot(classes_M, cosines_MC.shape[1])
        total = F.cross_entropy(self.scale * (cosines_MC - self.margin * own_MC), classes_M, reduction="sum")
        return Loss(total, len(classes_M), {"correct": (cosines_MC.detach().argmax(-1) == classes_M).sum()})


class Verification(RecordingTask, Compared):
    """A vector of length 1 for each recording, an x-vector (Snyder et al. 2018), trained to tell the training speakers
    apart by a margin between cosines.

    loss         the training loss
    speakers     [C] names of the training speakers, in the order of their outputs; empty: the task is not trained
    vector_size  E
    augmenting   changes of the training recordings
    threshold    see `Compared`
    """

    task_name = name = "verification"
    also_called = ("speaker-verification",)
    item = "recording"
    rows_class: ClassVar[type[Rows]] = VerificationRows
    options_class = VerificationOptions
    metric = "eer"
    panel, gives = "compareRecordings", "vectors of recordings"
    rows_are = "recordings with a speaker"
    reference = "cosine of the mean and the deviation of mel-frequency cepstra"
    references_are = "cosine of the mean and the deviation of mel-frequency cepstra, standardised on the training rows"
    form: ClassVar[Form] = FileForm("recording", Recording, RecordingPair, ending=".wav")

    def __init__(
        self,
        loss: AdditiveMargin | None = None,
        *,
        speakers: Sequence[str] = (),
        vector_size: int = 128,
        augmenting: Cropping | None = None,
        threshold: float | None = None,
    ) -> None:
        self.margin, self.labels, self.threshold = loss or AdditiveMargin(), tuple(speakers), threshold
        self.augmenting = augmenting or Cropping()
        compared = {SPEAKERS_HEAD: Head("prototypes", len(speakers))} if speakers else {}
        self.heads: Mapping[str, Head] = {self.name: Head("embedding", vector_size), **compared}

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        options.check()
        cls.say_classes(sets, say)
        loss = AdditiveMargin(options.scale, options.margin)
        speakers = sorted(sets["train"].histogram())  # the order of `classes_of`
        return cls(loss, speakers=speakers, vector_size=options.vector_size, augmenting=options)

    def encode(self, rows: Sequence[Row], processor: RecordingProcessor, length: int) -> Encoded:
        self._numbers = dict(zip((row.label for row in rows), classes_of(rows).tolist(), strict=True))
        return super().encode(rows, processor, length)

    def value(self, row: Row) -> np.ndarray:
        return np.array([self._numbers[row.label]])

    def for_training(self, encoded: Encoded, processor: RecordingProcessor) -> Encoded:
        """Changed recordings."""
        return replace(encoded, collate=self.augmenting.training(processor, encoded.length))

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        target = batch.targets[self.name]
        vectors_ME = model.answer(self.name, hidden_BTD, target.places, batch)
        with exactly(hidden_BTD):  # differences of cosines would be lost in bfloat16
            return self.margin(model.heads[SPEAKERS_HEAD](vectors_ME.float()), target.values)

    def scores(self, units_NE: np.ndarray, rows: Sequence[Row]) -> dict[str, float]:
        """Of all pairs of recordings: the equal error rate, the least cost of detection (`Roc.detection_cost`), the
        area under the curve, and the accuracy where both kinds of pairs are equally frequent."""
        curve = curve_of(units_NE, rows)
        costs = {"eer": curve.equal_error[0], "mindcf": curve.detection_cost()}
        return {**costs, "auc": curve.auc, "accuracy": curve.accuracy}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        return self.scores(units(statistics(rows, rate_of(train))), rows)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {"cepstra": partial(self._reference, train)}

    def _reference(self, train: Sequence[Row]) -> Score:
        rate = rate_of(train)
        scaled = standardised(statistics(train, rate))
        return lambda rows: self.scores(units(scaled(statistics(rows, rate))), rows)

    def is_collapsed(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> bool:
        """Whether the mean cosine of two recordings is above 0.998."""
        middle_E = np.concatenate(answers).mean(0)
        return bool(middle_E @ middle_E > 0.998)

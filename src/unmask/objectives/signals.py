"""Objectives on records of sensors: their crops of whole segments, packed into rows.

Shapes: N records of a batch, B rows, T segments of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from unmask.data.files.corpora import format_of
from unmask.data.signals import synthetic
from unmask.data.signals.corpus import SignalCorpus
from unmask.data.signals.folder import SignalFolder
from unmask.data.signals.processor import SignalProcessor
from unmask.errors import UnmaskError, plural
from unmask.models.model import Model, ModelConfig
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.crops import LEAST, Crops, check_label_alpha, crop
from unmask.objectives.objective import Objective
from unmask.types import Batch, Example


class SignalObjective(Crops):
    """An objective on records, which are cropped at random and packed."""

    processor: SignalProcessor

    def samples(self, places: int) -> int:
        return places * self.processor.segment

    def example(self, item: Any, length: int, rng: np.random.Generator | None = None) -> Example:
        begin = crop(self.processor.segments(len(item)), length, rng) * self.processor.segment
        values = self.processor.values(item)[begin : begin + self.samples(length)]
        return self.processor.segmented(values)

    def errors_along(self, model: Model, item: np.ndarray, length: int) -> np.ndarray:
        """[F]: how badly the model restores each segment of a record [N, L] when it is masked, for rows of `length`
        segments. Call it in evaluation mode, without gradients. Raises UnmaskError for a record that is too short, and
        for an objective that restores no segments."""
        raise UnmaskError(f"An objective of {self.terms[0].label} restores no segments of a record.")


def records_of(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """For each record of packed rows, in ascending order, the flat place of its first segment [N], and its number of
    segments [N]."""
    if batch.documents is None:
        rows, length = batch.tokens.shape
        return np.arange(rows) * length, np.full(rows, length)
    documents_BT = batch.documents.numpy().astype(np.int64)
    numbers = documents_BT + np.arange(len(documents_BT))[:, None] * (documents_BT.max(initial=0) + 1)
    flat = np.where(documents_BT > 0, numbers, -1).ravel()
    begins = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
    counts = np.diff(begins, append=len(flat))
    real = flat[begins] >= 0
    return begins[real], counts[real]


def check_records(processor: SignalProcessor, splits: Sequence[Any]) -> None:
    """Raises UnmaskError for records with another number of leads than the model reads, and where no record is long
    enough to be read."""
    for split in splits:
        other = split.headers[:, 2] != processor.leads
        if other.any():
            first, leads = int(other.argmax()), int(split.headers[other, 2][0])
            raise UnmaskError(
                f"{int(other.sum()):,} of {plural(len(other), 'unit')} have another number of leads than the "
                f"{processor.leads} that the model reads, such as {split.names[first]} with {leads}: give --leads "
                f"{leads} if all records have {leads}, or leave the others out."
            )
    least = LEAST * processor.segment
    if splits and not any((split.at_rate(processor.rate).cost >= least).any() for split in splits):
        raise UnmaskError(
            f"No record has {least / processor.rate:.3f} s, which are {LEAST} segments of this model: use longer "
            "records."
        )


@dataclass(frozen=True, kw_only=True)
class SignalConfig(ObjectiveConfig):
    """What a model reads of a record of sensors.

    rate         samples a second; other rates are resampled
    leads        leads of each record
    label_alpha  the labels of a corpus, such as its sites, are mixed with weights n^alpha of their lengths n
    """

    rate: int = 300
    leads: int = 1
    label_alpha: float = 1.0

    requires: ClassVar[frozenset[str]] = frozenset({"signals"})
    plain: ClassVar[bool] = True
    pipeline: ClassVar[str] = ""
    command: ClassVar[tuple[str, str] | None] = None

    @classmethod
    def chosen(cls, current: ObjectiveConfig, option: str, value: str) -> ObjectiveConfig | None:
        """As for every objective, but a run that learns from something else is not turned into one on records."""
        return super().chosen(current, option, value) if isinstance(current, SignalConfig) else None

    @classmethod
    def opens(cls, folder: Path | str) -> SignalFolder | SignalCorpus:
        """A folder of records, or a corpus that was built from one."""
        return SignalFolder(folder) if format_of(Path(folder)) is None else SignalCorpus(folder)

    def build(self, processor: SignalProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        check_records(processor, splits)
        check_label_alpha(self.label_alpha)
        found = self.of_signals(processor)
        found.label_alpha = self.label_alpha
        return found

    def of_signals(self, processor: SignalProcessor) -> SignalObjective:
        """The objective, for records that this processor prepares."""
        raise NotImplementedError(f"{type(self).__name__} makes no objective")

    def stand_in(self) -> str:
        return f"synthetic-ecg-{self.rate:g}"

    def make(self, folder: Path) -> None:
        """Electrocardiograms that are synthesised."""
        synthetic.write(folder, rate=self.rate)

    def processor(self, processor: SignalProcessor) -> SignalProcessor:
        """That of the folder, at this rate, for these leads."""
        return replace(processor, rate=self.rate, leads=self.leads)

    def model_fields(self, processor: SignalProcessor) -> dict[str, Any]:
        return {"rate": self.rate, "leads": self.leads}

    def of_model(self, model: ModelConfig) -> Self:
        fields = {name: getattr(model, name) for name in ("rate", "leads") if hasattr(model, name)}
        return replace(self, **fields)

    def mismatch(self, corpus: object, folder: object) -> str:
        return (
            f"The records in {corpus} would be prepared otherwise than those that {folder} was trained on: leave "
            f"--rate and --leads out, and copy preprocessor_config.json from {folder} to {corpus}."
        )

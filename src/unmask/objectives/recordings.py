"""Objectives on recordings: their crops, and the spans of frames that are masked.

Shapes: N recordings of a batch, F frames of a recording, B rows, T frames of a row, M masked frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unmask.data.files.corpora import format_of
from unmask.data.recordings import synthetic
from unmask.data.recordings.corpus import RecordingCorpus
from unmask.data.recordings.folder import RecordingFolder
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.crops import LEAST, Crops, check_label_alpha, crop, drawn_spans, joined, with_mask
from unmask.objectives.objective import Objective
from unmask.types import Batch, Example


class RecordingObjective(Crops):
    """An objective on recordings, which are cropped at random and packed."""

    processor: RecordingProcessor

    def samples(self, places: int) -> int:
        return self.processor.samples(places)

    def example(self, item: Any, length: int, rng: np.random.Generator | None = None) -> Example:
        begin = crop(self.processor.frames(len(item)), length, rng) * self.processor.hop
        values = self.processor.values(item)[begin : begin + self.processor.samples(length)]
        return self.processor.framed(values)


def recordings_of(batch: Batch, processor: RecordingProcessor) -> tuple[np.ndarray, np.ndarray]:
    """For each recording of packed rows, in ascending order, the flat place of its first frame [N], and its number of
    frames [N]."""
    assert batch.signal is not None
    assert batch.signal.lengths is not None
    samples_N = batch.signal.lengths.numpy()
    return batch.signal.places.numpy(), (samples_N - processor.window) // processor.hop + 1


def masked_spans(
    batch: Batch, processor: RecordingProcessor, share: float, span: int, rng: np.random.Generator
) -> tuple[Batch, list[np.ndarray]]:
    """Packed rows whose masked frames hold MASK, and the flat places of the masked frames of each recording, in
    ascending order. The samples stay in the signal: the targets are computed from them."""
    found = drawn_spans(*recordings_of(batch, processor), share, span, rng)
    return replace(batch, tokens=with_mask(batch, joined(found))), found


def check_lengths(processor: RecordingProcessor, splits: Sequence[Any]) -> None:
    """Raises UnmaskError where no recording is long enough to be read."""
    least = processor.samples(LEAST)
    if splits and not any((split.at_rate(processor.rate).cost >= least).any() for split in splits):
        raise UnmaskError(
            f"No recording has {least / processor.rate:.3f} s, which are {LEAST} frames of this model: use longer "
            "recordings."
        )


@dataclass(frozen=True, kw_only=True)
class RecordingConfig(ObjectiveConfig):
    """What a model reads of a recording.

    rate         samples a second; other rates are resampled
    label_alpha  the labels of a corpus, such as its languages, are mixed with weights n^alpha of their lengths n, and
                 then the corpora are (Babu et al. 2021, XLS-R, section 3: 0.5; 1 keeps their proportions)
    """

    rate: int = 16_000
    label_alpha: float = 1.0

    requires: ClassVar[frozenset[str]] = frozenset({"recordings"})
    plain: ClassVar[bool] = True

    @classmethod
    def chosen(cls, current: ObjectiveConfig, option: str, value: str) -> ObjectiveConfig | None:
        """As for every objective, but a run that learns from texts or pictures is not turned into one on recordings."""
        return super().chosen(current, option, value) if isinstance(current, RecordingConfig) else None

    @classmethod
    def opens(cls, folder: Path | str) -> RecordingFolder | RecordingCorpus:
        """A folder of recordings, or a corpus that was built from one."""
        return RecordingFolder(folder) if format_of(Path(folder)) is None else RecordingCorpus(folder)

    def build(self, processor: RecordingProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        check_lengths(processor, splits)
        check_label_alpha(self.label_alpha)
        found = self.of_recordings(processor)
        found.label_alpha = self.label_alpha
        return found

    def of_recordings(self, processor: RecordingProcessor) -> RecordingObjective:
        """The objective, for recordings that this processor prepares."""
        raise NotImplementedError(f"{type(self).__name__} makes no objective")

    def stand_in(self) -> str:
        return f"spoken-{self.rate}"

    def make(self, folder: Path) -> None:
        """Words and short sentences that are synthesised."""
        synthetic.write(folder, rate=self.rate)

    def processor(self, processor: RecordingProcessor) -> RecordingProcessor:
        """That of the folder, at this rate."""
        return replace(processor, rate=self.rate)

    def model_fields(self, processor: RecordingProcessor) -> dict[str, Any]:
        return {}

    def mismatch(self, corpus: object, folder: object) -> str:
        return (
            f"The recordings in {corpus} would be prepared otherwise than those that {folder} was trained on: leave "
            f"--rate out, and copy preprocessor_config.json from {folder} to {corpus}."
        )

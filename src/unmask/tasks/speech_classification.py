"""Speech classification: one label for a recording: a word, a speaker, a language, an emotion.

Shapes: N rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.doubts import doubts
from unmask.data.labelled.rows import Row
from unmask.data.recordings import synthetic
from unmask.data.recordings.items import RECORDINGS
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording
from unmask.data.recordings.segments import Framed, framed
from unmask.data.recordings.spectrogram import picture_of
from unmask.tasks.balance import ClassLoss, Weighing
from unmask.tasks.encoded import Encoded
from unmask.tasks.one_label import OneLabel
from unmask.tasks.reading import counts_of, labels_of
from unmask.tasks.recording_references import regression_on_cepstra
from unmask.tasks.recording_training import Cropping
from unmask.tasks.recordings import RecordingTask
from unmask.tasks.stand_in import StandIn
from unmask.tasks.task import Say, Score, Task


@dataclass(frozen=True, kw_only=True)
class SpeechOptions(Cropping, Weighing):
    """Options for the training of a classifier of recordings."""

    def check(self) -> None:
        Cropping.check(self)
        Weighing.check(self)


class SpeechClassification(OneLabel, RecordingTask):
    """Predict which of the labels a recording has: cross-entropy at the mean of its frames.

    weighing    weights of classes in the loss, or the focal loss; None: plain cross-entropy
    augmenting  changes of the training recordings
    """

    task_name, name, general = "speech-classification", "speech_classification", "classification"
    options_class = SpeechOptions
    panel = "classifyRecording"
    pipeline = "audio-classification"
    references_are = "logistic regression on the mean and the deviation of mel-frequency cepstra"

    def __init__(
        self, labels: Sequence[str], *, weighing: ClassLoss | None = None, augmenting: Cropping | None = None
    ) -> None:
        super().__init__(labels, weighing=weighing)
        self.augmenting = augmenting or Cropping()

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        labels = labels_of(sets, say, held_out=held_out)
        for sentence in doubts(sets, RECORDINGS.noun):
            say(sentence)
        return cls(labels, weighing=options.weighing(counts_of(sets["train"], labels)), augmenting=options)

    @classmethod
    def stand_in(cls, config: Any) -> StandIn:
        rate = cls.new_processor(config).rate
        rows = {split: f"words-{split}.tsv" for split in ("train", "dev", "test")}
        return StandIn("words that are synthesised", f"spoken-{rate}", partial(synthetic.write, rate=rate), rows)

    def for_training(self, encoded: Encoded, processor: RecordingProcessor) -> Encoded:
        """Changed recordings."""
        return replace(encoded, collate=self.augmenting.training(processor, encoded.length))

    def framed(self, rows: Sequence[Row], processor: RecordingProcessor) -> list[Framed]:
        return list(framed([row for row in rows if isinstance(row, Recording)], processor))

    def drawn(self, row: Row) -> np.ndarray | None:
        """Its spectrogram."""
        assert isinstance(row, Recording)
        return picture_of(row)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {"cepstra": partial(self._reference, train)}

    def _reference(self, train: Sequence[Row]) -> Score:
        answers = regression_on_cepstra(train, self._true(train), len(self.labels))
        return lambda rows: self.metrics(answers(rows), rows)

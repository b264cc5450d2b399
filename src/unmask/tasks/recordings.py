"""RecordingTask: what tasks on labelled recordings share: how rows and requests are read, and the processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unmask.data.labelled.dataset import Dataset, hold_out_groups
from unmask.data.labelled.rows import Row
from unmask.data.processor import Processor
from unmask.data.recordings.decoding import SUFFIXES
from unmask.data.recordings.examples import RecordingExamples
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording, Wanted, are_recordings, labelled
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.model import Model, ModelConfig
from unmask.tasks.encoded import Encoded
from unmask.tasks.file_forms import FileForm
from unmask.tasks.forms import Form
from unmask.tasks.rows import Rows, column
from unmask.tasks.task import Task

SECONDS = 30  # of a recording, with a hop of 20 ms, by default
USUAL_LENGTH = 50 * SECONDS


@dataclass(frozen=True, kw_only=True)
class RecordingRows(Rows):
    """Recordings: a folder, or a table of files or bytes with maybe columns begin and end, in seconds.

    recording  column of a table that holds the names of files, or their bytes
    group      column, or regular expression for the names of files with one group in brackets, such as '_([a-z]+)_', of
               what must not be in training and evaluation at once, such as the speaker: without dev rows, whole groups
               are held out
    length     longest recording, in frames; longer ones are cut
    """

    recording: str | None = column()
    group: str | None = column()

    WANTED: ClassVar[Wanted] = Wanted(needs="")
    """The columns that rows of this kind need, and their usual names."""

    @property
    def wanted(self) -> Wanted:
        """The columns that are read."""
        given = {name: getattr(self, name, None) for name in ("recording", "label", "text", "group")}
        return Wanted(**given, labels=self.WANTED.labels, needs=self.WANTED.needs)

    def hold_out(self, whole: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset, str]:
        if self.group is None:
            return super().hold_out(whole, count, rng)
        return *hold_out_groups(whole, count, rng), "whole groups"


@dataclass(frozen=True, kw_only=True)
class LabelledRecordingRows(RecordingRows):
    """Recordings with a label: a folder with a subfolder for each class, or a table of files.

    label     column of a table that holds the label; for a folder without subfolders, a regular expression for the
              names of files with one group in brackets, such as '^([0-9])_'
    stratify  hold out the same share of each class, instead of random rows
    """

    label: str | None = column()
    stratify: bool = True

    WANTED: ClassVar[Wanted] = Wanted()
    LEARNING: ClassVar[tuple[str, ...]] = (*Rows.LEARNING, "stratify")


class RecordingTask(Task):
    """A task whose rows are recordings.

    A subclass gives the target of a row (`target`), and the rest of a task. Its head has the name of the task.
    """

    row_class: ClassVar[type[Row]] = Recording
    rows_class: ClassVar[type[Rows]] = LabelledRecordingRows
    folders = True
    items: ClassVar[str] = "recordings"
    rate_shares: ClassVar[tuple[float, float] | None] = (0.1, 0.1)
    rows_are = "recordings with a label"
    form: ClassVar[Form] = FileForm("recording", Recording, ending=".wav")
    usual_length: ClassVar[int] = USUAL_LENGTH
    tokens_at_once: ClassVar[int | None] = 1_024

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        return labelled(path, rows.wanted, encoding=rows.encoding)

    @classmethod
    def owns(cls, path: Path) -> bool:
        return path.suffix.lower() in SUFFIXES

    @classmethod
    def holds(cls, path: Path) -> bool:
        return are_recordings(path)

    @classmethod
    def processor_of(cls, loaded: Loaded[Any], owner: object) -> Processor[Any]:
        return loaded.require_processor(owner)

    @classmethod
    def new_processor(cls, config: Any) -> RecordingProcessor:
        return RecordingProcessor(rate=getattr(config, "rate", RecordingProcessor.rate)).for_model(config)

    @classmethod
    def check_model(cls, config: ModelConfig, owner: object) -> None:
        """Raises UnmaskError for a model that does not read recordings."""
        if cls.items not in config.offers:
            raise UnmaskError(f"{owner} is a model that reads no recordings; take a wav2vec 2.0, a HuBERT or a CPC.")

    @classmethod
    def prepared(cls, loaded: Loaded[Model], options: Any) -> Loaded[Model]:
        """The same folder. Raises UnmaskError for changes of the recordings that the model cannot read."""
        options.check_model(loaded.model.config)
        return loaded

    def target(self, row: Recording) -> tuple[np.ndarray, ...]:
        """What is predicted of a recording: places, values, and maybe lengths, as in `Example.targets`. By default the
        value of the row (`value`) at its first place."""
        return np.zeros(1, np.int64), self.value(row)

    def value(self, row: Row) -> np.ndarray:
        """The target of a row, [1]."""
        raise NotImplementedError

    def windows(self, recording: Recording, processor: RecordingProcessor, length: int) -> Sequence[Recording]:
        """The parts in which a recording is read. By default it is one, which is cut after `length` frames."""
        return (recording,)

    def encode(self, rows: Sequence[Row], processor: RecordingProcessor, length: int) -> Encoded:
        found = [
            (i, row, part, len(parts) > 1)
            for i, row in enumerate(rows)
            if isinstance(row, Recording)
            for parts in (self.windows(one, processor, length) for one in row.recordings)
            for part in parts
        ]
        recordings, targets = [part for _, _, part, _ in found], [self.target(row) for _, row, _, _ in found]
        once = [number for number, (*_, several) in enumerate(found) if several]
        examples = RecordingExamples(recordings, processor, self.name, targets, longest=length, once=once)
        owners = np.array([i for i, *_ in found], np.int64)
        cut = tuple(dict.fromkeys(owners[list(examples.cut)].tolist()))
        return Encoded(examples, owners, rows, length, cut=cut, unit="frames")

    def check_encoded(self, encoded: Encoded) -> None:
        """Raises UnmaskError for recordings that cannot be decoded, or that are too short."""
        assert isinstance(encoded.examples, RecordingExamples)
        encoded.examples.check()

    def along(self, found: Any) -> dict[str, list[dict[str, Any]]]:
        """The parts of an answer that belong to times: "words" {"word", "begin", "end", "probability"}, and "letters"
        {"letter", "time", "probability"}, in seconds. Empty by default."""
        return {}

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        if path.suffix.lower() in SUFFIXES:
            return [Recording(place=str(path), source=path)]
        return None

    @classmethod
    def query(cls, row: Row) -> str:
        return row.place

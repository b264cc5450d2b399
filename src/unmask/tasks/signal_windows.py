"""WindowedSignals: tasks that cut records of sensors into windows, and answer a record by the mean of its windows.

Shapes: C outputs, W windows of a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.signals.checks import examine
from unmask.data.signals.examples import SignalExamples
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import SignalRow, check_records_apart
from unmask.errors import UnmaskError
from unmask.tasks.encoded import Encoded
from unmask.tasks.rows import TaskOptions
from unmask.tasks.signals import SignalTask
from unmask.tasks.task import Say


@dataclass(frozen=True, kw_only=True)
class WindowOptions(TaskOptions):
    """Options for the windows of records.

    window  seconds of a window: records are cut into windows, each is answered, and the answers are averaged
    step    seconds from one window to the next, in all classes and sets alike; None: half of a window
    """

    window: float = 10.0
    step: float | None = None

    def check(self) -> None:
        super().check()
        if not self.window > 0 or (self.step is not None and not 0 < self.step <= self.window):
            raise UnmaskError("--window must be above 0, and --step above 0 and at most the window.")


@dataclass(frozen=True)
class Windows:
    """The answer to a record: those to its windows [W, C], and where they begin and end [W, 2], in seconds."""

    answers: np.ndarray
    seconds: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """[C]: the answer to the record."""
        return np.asarray(self.answers.mean(0))


class WindowedSignals(SignalTask):
    """A task on records that are cut into windows of `window` seconds, `step` seconds from one to the next."""

    window: float
    step: float

    @classmethod
    def check_sets(cls, sets: Mapping[str, Dataset], say: Say, *, held_out: bool) -> None:
        """Say what is unusual about the records. Raises UnmaskError for a record, or a patient, of two sets, and for
        records that cannot be read."""
        for name in sets.keys() - {"train", *(["dev"] if held_out else [])}:
            check_records_apart(sets["train"], sets[name])
        for name, rows in sets.items():
            for sentence in examine(rows):
                say(f"{name}: {sentence}")

    def value(self, row: Row) -> np.ndarray:
        """The target of a row, [1]."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        return {"window": self.window, "step": self.step}

    def encode(self, rows: Sequence[Row], processor: SignalProcessor, length: int) -> Encoded:
        records = [row for row in rows if isinstance(row, SignalRow)]
        values = np.array([self.value(row)[0] for row in records])
        window, step = (max(1, round(x * processor.rate / processor.segment)) for x in (self.window, self.step))
        window = min(window, length)
        examples = SignalExamples(records, processor, self.name, values, window=window, step=min(step, window))
        split = int((np.bincount(examples.owners, minlength=1) > 1).sum())
        return Encoded(examples, examples.owners, rows, window, split=split, unit="segments")

    def check_encoded(self, encoded: Encoded) -> None:
        """Raises UnmaskError for records that cannot be decoded, or that are too short."""
        assert isinstance(encoded.examples, SignalExamples)
        encoded.examples.check()

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Windows:
        own: Any = encoded.examples[encoded.of_rows[row]]
        return Windows(np.concatenate(parts), own.seconds)

"""WindowedSignals: tasks that cut records of sensors into windows, and answer a record by the mean of its windows.

Shapes: C outputs, W windows of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.data.labelled.rows import Row
from unmask.data.signals.examples import SignalExamples, cut
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import SignalRow
from unmask.errors import UnmaskError
from unmask.tasks.encoded import Encoded
from unmask.tasks.rows import TaskOptions
from unmask.tasks.signals import SignalTask


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

    def value(self, row: Row) -> np.ndarray:
        """The target of a row, [1]."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        return {"window": self.window, "step": self.step}

    def encode(self, rows: Sequence[Row], processor: SignalProcessor, length: int) -> Encoded:
        records = [row for row in rows if isinstance(row, SignalRow)]
        window, step = (max(1, round(x * processor.rate / processor.segment)) for x in (self.window, self.step))
        window = min(window, length)
        spans, owners = cut(records, processor, window, min(step, window))
        values = [self.value(row) for row in records]
        targets = [(np.zeros(1, np.int64), values[owner]) for owner in owners.tolist()]
        examples = SignalExamples(records, processor, self.name, spans, owners, targets)
        split = int((np.bincount(examples.owners, minlength=1) > 1).sum())
        return Encoded(examples, examples.owners, rows, window, split=split, unit="segments")

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Windows:
        own: Any = encoded.examples[encoded.of_rows[row]]
        return Windows(np.concatenate(parts), own.seconds)

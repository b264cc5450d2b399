"""TextTask: the base of tasks with one answer for a text or a pair of texts, at its [CLS]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.data.labelled.rows import Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.tasks.lengths import Long, frames
from unmask.tasks.rows import TaskOptions
from unmask.tasks.task import Encoded, Task
from unmask.types import Example


@dataclass(frozen=True, kw_only=True)
class TextOptions(TaskOptions):
    """Options of tasks on texts.

    long  texts that do not fit: truncate, head+tail, window-mean, window-max or error
    """

    long: Long = "truncate"


class TextTask(Task):
    """A task with one answer for a text or a pair, at its [CLS] (Devlin et al. 2018, section 4.1).

    long  treatment of texts that do not fit; windows are trained on separately, and the answer is the mean or the
          maximum of each output over the windows
    """

    single_or_pairs = True

    def __init__(self, long: Long = "truncate") -> None:
        self.long = long

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        firsts = tokenizer.ids([row.text for row in rows])
        paired = [i for i, row in enumerate(rows) if row.pair is not None]
        seconds = dict(zip(paired, tokenizer.ids([rows[i].pair or "" for i in paired]), strict=True))
        examples: list[Example] = []
        owners: list[int] = []
        cut: list[int] = []
        split = 0
        for i, (row, first) in enumerate(zip(rows, firsts, strict=True)):
            framed = frames(tokenizer, first, seconds.get(i), length, self.long, row.place or f"Text {i + 1}")
            if len(framed) > 1:
                split += 1
            elif len(framed[0][0]) == length < len(tokenizer.join(first, seconds.get(i))[0]):
                cut.append(i)
            value = self.value(row)
            target = (np.zeros(len(value), np.int64), value)
            examples += [Example(tokens, segments, {self.name: target}) for tokens, segments in framed]
            owners += [i] * len(framed)
        return Encoded(examples, np.array(owners, np.int64), rows, length, cut=tuple(cut), split=split)

    def value(self, row: Row) -> np.ndarray:
        """The label of a row as the values of its target; 0 for a row without a label."""
        raise NotImplementedError

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Any:
        """[1, C]: the mean, or the maximum, of each output over the windows of a row."""
        found = np.concatenate(parts)
        if len(found) == 1:
            return found
        merged = found.max(0, keepdims=True) if self.long == "window-max" else found.mean(0, keepdims=True)
        return self.normalise(merged)

    def normalise(self, answer: np.ndarray) -> np.ndarray:
        """Make an answer [1, C] of the merged outputs of windows, such as probabilities that sum to 1."""
        return answer

    def settings(self) -> dict[str, Any]:
        return {} if self.long == "truncate" else {"long": self.long}

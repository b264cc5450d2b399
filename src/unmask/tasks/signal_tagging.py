"""Signal tagging: a label for each beat of an electrocardiogram, or for each interval of any record.

Shapes: N rows, K marks (beats or intervals) of a record, M targets, C outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from unmask import metrics
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.signals.beats import r_peaks
from unmask.data.signals.examples import SignalExamples, segments_of
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import SignalRow, Wanted
from unmask.data.signals.tagged import tagged
from unmask.errors import UnmaskError
from unmask.tasks.balance import ClassLoss, Weighing
from unmask.tasks.encoded import Encoded
from unmask.tasks.labels import label_id
from unmask.tasks.lengths import windows
from unmask.tasks.one_label import OneLabel
from unmask.tasks.reading import counts_of
from unmask.tasks.signal_references import MODELS, Experts, of_beats
from unmask.tasks.signals import RecordRows, SignalTask
from unmask.tasks.task import Say, Score, Task
from unmask.types import Head

TRIALS = 500  # of resampling, for the intervals of a report
RATES = ("sensitivity", "positive predictivity")  # recall and precision, in the words of ANSI/AAMI EC57


@dataclass(frozen=True, kw_only=True)
class MarkedRows(RecordRows):
    """Records with annotated beats (WFDB), in a folder or in a table; or a table with the begin, the end and the label
    of intervals."""


@dataclass(frozen=True, kw_only=True)
class MarkOptions(Weighing):
    """Options for the training of a tagger of records.

    window  seconds that are read at once: longer records are cut into windows, which share a quarter of them, and each
            beat or interval is answered where it is furthest from an edge
    """

    window: float = 10.0

    def check(self) -> None:
        super().check()
        if not self.window > 0:
            raise UnmaskError("--window must be above 0 seconds.")


@dataclass(frozen=True)
class Marked:
    """The answer to a record: probabilities of its beats or intervals [K, C], and where they begin and end [K, 2], in
    seconds."""

    probabilities: np.ndarray
    seconds: np.ndarray


class SignalTagging(OneLabel, SignalTask):
    """Predict the label of each beat, or of each interval: cross-entropy at the segment that holds the beat, or at the
    segments whose middles lie in the interval.

    window    seconds that are read at once
    beats     whether it labels beats: a record without marks is answered at its R peaks (`beats.r_peaks`), else at each
              segment
    weighing  weights of classes in the loss, or the focal loss; None: plain cross-entropy

    The state of a segment comes from a model that sees beyond it, so the intervals to the neighbouring beats need no
    features. The answer to an interval is the mean of the probabilities of its segments.
    """

    task_name, name, general = "signal-tagging", "signal_tagging", "tagging"
    rows_class = MarkedRows
    options_class = MarkOptions
    one_label = False
    panel, gives = "tagSignal", "labels of beats or intervals"
    rows_are = "records with labelled beats or intervals"
    reference = "the most frequent label of the training rows"
    references_are = "logistic regression and a random forest on the intervals around a beat and its shape"

    def __init__(
        self,
        labels: Sequence[str],
        *,
        window: float = MarkOptions.window,
        beats: bool = True,
        weighing: ClassLoss | None = None,
    ) -> None:
        super().__init__(labels, weighing=weighing)
        self.heads: Mapping[str, Head] = {self.name: Head("token", len(self.labels))}
        self.metric = "macro_f1"  # most beats are normal
        self.window, self.beats = window, beats

    @classmethod
    def records(cls, path: Path, wanted: Wanted, encoding: str | None) -> Dataset:
        return tagged(path, wanted, encoding=encoding)

    @classmethod
    def holds(cls, path: Path) -> bool:
        return cls.owns(path) or super().holds(path)

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        labels = cls.labels_in(sets, say, held_out=held_out)
        weighing = options.weighing(counts_of(sets["train"], labels))
        beats = all(begin == end for row in sets["train"] for begin, end in _of(row).marks)
        return cls(labels, window=options.window, beats=beats, weighing=weighing)

    @classmethod
    def for_references(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """As `learned`; windows have no effect on the references."""
        return cls.learned(sets, MarkOptions(), say, held_out=held_out)

    def settings(self) -> dict[str, Any]:
        return {"window": self.window, "beats": self.beats}

    # -- rows

    def encode(self, rows: Sequence[Row], processor: SignalProcessor, length: int) -> Encoded:
        records = [self._marked(_of(row), processor) for row in rows]
        room = min(max(1, round(self.window * processor.rate / processor.segment)), length)
        spans, owners, targets, split = list[tuple[int, int]](), list[int](), [], 0
        for number, record in enumerate(records):
            segments = segments_of(record, processor)
            places_M, marks_M = _places(record, processor, segments)
            values_K = np.array([label_id(self._ids, tag, record) for tag in record.tags] or [0] * len(record.marks))
            split += segments > room
            for begin, low, high in windows(segments, room):
                own = slice(*np.searchsorted(places_M, [low, high]))
                if own.start < own.stop:
                    spans.append((begin, min(begin + room, segments)))
                    owners.append(number)
                    targets.append((places_M[own] - begin, values_K[marks_M[own]].astype(np.int64)))
        cut = np.array(spans, np.int64).reshape(-1, 2), np.array(owners, np.int64)
        examples = SignalExamples(records, processor, self.name, *cut, targets)
        return Encoded(examples, cut[1], rows, room, split=split, unit="segments")

    def _marked(self, record: SignalRow, processor: SignalProcessor) -> SignalRow:
        """The record with marks: those that it has, else its R peaks or its segments."""
        if record.marks:
            return record
        if self.beats:
            times = (r_peaks(record.signal(processor.rate).samples[:, 0], processor.rate) / processor.rate).tolist()
            return replace(record, marks=tuple((time, time) for time in times))
        edges = np.arange(segments_of(record, processor) + 1) * (processor.segment / processor.rate)
        return replace(record, marks=tuple(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)))

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Marked:
        examples: Any = encoded.examples
        record = examples.rows[row]
        _, marks_M = _places(record, examples.processor, segments_of(record, examples.processor))
        sums_KC = np.zeros((len(record.marks), len(self.labels)))
        if parts:
            np.add.at(sums_KC, marks_M, np.concatenate(parts))
        counts_K = np.bincount(marks_M, minlength=len(sums_KC))
        return Marked(sums_KC / counts_K[:, None], np.array(record.marks).reshape(-1, 2))

    # -- scores

    def _true(self, rows: Sequence[Row]) -> np.ndarray:
        return np.array([label_id(self._ids, tag, row) for row in rows for tag in row.tags], np.int64)

    def _arrays(self, answers: Sequence[Any], rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate([answer.probabilities for answer in answers]), self._true(rows)

    def tables(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        """Sensitivity and positive predictivity of each class (ANSI/AAMI EC57), which are recall and precision, with
        intervals where there are two records, or groups, or more."""
        probabilities, true = self._arrays(answers, rows)
        names = [_of(row).group or str(i) for i, row in enumerate(rows)]
        groups, of_row = np.unique(names, return_inverse=True)
        of_mark = np.repeat(of_row, [len(row.tags) for row in rows])
        C = len(self.labels)
        confusions_GCC = np.zeros((len(groups), C, C), np.int64)
        np.add.at(confusions_GCC, (of_mark, true, probabilities.argmax(1)), 1)

        def score(drawn: np.ndarray) -> dict[str, float]:
            return self._rates(confusions_GCC[drawn].sum(0))

        found = score(np.arange(len(groups)))
        ends = metrics.intervals(score, groups.tolist(), trials=TRIALS) if len(groups) > 1 else {}
        lines = []
        for i, label in enumerate(self.labels):
            shown = [f"{found[key]:.3f}" for key in (f"{name} of {label}" for name in RATES)]
            if ends:
                both = [ends[f"{name} of {label}"] for name in RATES]
                shown = [f"{one} ({low:.3f} to {high:.3f})" for one, (low, high) in zip(shown, both, strict=True)]
            lines.append([label, f"{confusions_GCC[:, i].sum():,}", *shown])
        drawn = "patients" if any(_of(row).group for row in rows) else "records"
        title = "Each class" + (f", with 95 % intervals by resampling {drawn}" if ends else ", of one record")
        return {title: {"heads": ["class", "number", *RATES], "rows": lines}}

    def _rates(self, confusion_CC: np.ndarray) -> dict[str, float]:
        """RATES of each label, from the numbers of true and predicted classes; 0 where nothing is counted."""
        right_C = confusion_CC.diagonal()
        sums = confusion_CC.sum(1), confusion_CC.sum(0)
        rates = zip(self.labels, *(right_C / np.maximum(1, of_C) for of_C in sums), strict=True)
        return {f"{name} of {label}": float(x) for label, *own in rates for name, x in zip(RATES, own, strict=True)}

    def examples(self, answers: Sequence[Any], rows: Sequence[Row]) -> list[dict[str, Any]]:
        """None: a beat is no row that can be drawn."""
        return []

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        """Of beats alone: other sensors have no features that all of them share."""
        experts = Experts(of_beats)
        return {name: partial(self._reference, train, experts, name) for name in MODELS if self.beats}

    def _reference(self, train: Sequence[Row], experts: Experts, name: str) -> Score:
        answer = experts.fitted(name, train, self._true(train), len(self.labels))
        return lambda rows: self.scores(answer(rows), self._true(rows))

    # -- answers

    def compared(self, row: Row, found: Any) -> None:
        """None: a record has many marks, which the tables of the report compare."""

    def answer(self, row: Row, found: Any) -> dict[str, Any]:
        """{"beats": [{"time", "label", "probability"}]}, or {"intervals": [{"begin", "end", "label", "probability"}]}
        where neighbours of equal label are one interval; with seconds."""
        best = [
            (begin, end, self.labels[int(p.argmax())], float(p.max()))
            for (begin, end), p in zip(found.seconds.tolist(), found.probabilities, strict=True)
        ]
        if self.beats:
            return {"beats": [{"time": begin, "label": label, "probability": p} for begin, _, label, p in best]}
        joined = []
        for label, group in groupby(best, key=lambda one: one[2]):
            parts = list(group)
            mean = float(np.mean([p for *_, p in parts]))
            joined.append({"begin": parts[0][0], "end": parts[-1][1], "label": label, "probability": mean})
        return {"intervals": joined}

    def along(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        if "beats" in answer:
            return {"lead": _counted(answer["beats"]), "beats": answer["beats"]}
        return {"lead": _counted(answer["intervals"]), "answers": answer["intervals"]}

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        found = answer.get("beats") or answer.get("intervals") or []
        lines = [f"{text}: {_counted(found)}"]
        for one in found:
            times = "\t".join(f"{one[name]:.3f}" for name in ("time", "begin", "end") if name in one)
            lines.append(f"{times}\t{one['label']}\t{one['probability']:.3f}")
        return "\n".join(lines) + "\n"


def _of(row: Row) -> SignalRow:
    assert isinstance(row, SignalRow)
    return row


def _places(record: SignalRow, processor: SignalProcessor, segments: int) -> tuple[np.ndarray, np.ndarray]:
    """The segments [M] that stand for the marks, ascending, and the mark of each [M]: those whose middles lie in it, or
    the one that holds its middle. What begins after the last whole segment belongs to that one."""
    edges_K2 = np.array(record.marks, np.float64).reshape(-1, 2) * (processor.rate / processor.segment)
    first_K, last_K = np.ceil(edges_K2 - 0.5).astype(np.int64).T
    holding_K = np.floor(edges_K2.mean(1)).astype(np.int64)
    first_K = np.where(last_K > first_K, first_K, holding_K)
    counts_K = np.maximum(1, last_K - first_K)
    marks_M = np.repeat(np.arange(len(counts_K)), counts_K)
    steps_M = np.arange(len(marks_M)) - (counts_K.cumsum() - counts_K)[marks_M]
    return np.minimum(first_K[marks_M] + steps_M, segments - 1), marks_M


def _counted(found: Sequence[Mapping[str, Any]]) -> str:
    """How many of the beats or intervals have each label."""
    counts = Counter(one["label"] for one in found).most_common()
    return ", ".join(f"{label} {count:,}" for label, count in counts) or "nothing was found"

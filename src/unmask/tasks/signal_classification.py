"""Signal classification: one label for a record of sensors: the rhythm of an electrocardiogram, an activity, a fault.

Shapes: N rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from unmask import metrics
from unmask.data import collate
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.doubts import doubts
from unmask.data.labelled.rows import Row
from unmask.data.signals.reading import SIGNALS, SignalRow
from unmask.tasks.balance import ClassLoss, Weighing
from unmask.tasks.encoded import Encoded
from unmask.tasks.one_label import OneLabel
from unmask.tasks.reading import counts_of
from unmask.tasks.signal_references import MODELS, Experts
from unmask.tasks.signal_windows import WindowedSignals, WindowOptions
from unmask.tasks.signals import SignalRows
from unmask.tasks.task import Say, Score, Task
from unmask.types import Example, Kind

TRIALS = 500  # of resampling, for the intervals of a report
SHOWN = ("accuracy", "macro_f1", "cinc_f1", "roc_auc", "pr_auc", "calibration_error")


@dataclass(frozen=True, kw_only=True)
class SignalOptions(WindowOptions, Weighing):
    """Options for the training of a classifier of records."""

    def check(self) -> None:
        WindowOptions.check(self)
        Weighing.check(self)


class SignalClassification(OneLabel, WindowedSignals):
    """Predict which of the labels a record has: cross-entropy of each window with the label of its record; the answer
    to a record is the mean of the probabilities of its windows.

    window    seconds of a window
    step      seconds from one window to the next; None: half of a window
    weighing  weights of classes in the loss, or the focal loss; None: plain cross-entropy
    """

    task_name, name, general = "signal-classification", "signal_classification", "classification"
    rows_class = SignalRows
    options_class = SignalOptions
    panel = "classifySignal"
    reference = "the shares of the labels in the training rows"
    references_are = "logistic regression and a random forest on features of heartbeats, as experts read them"

    def __init__(
        self,
        labels: Sequence[str],
        *,
        window: float = SignalOptions.window,
        step: float | None = None,
        weighing: ClassLoss | None = None,
    ) -> None:
        super().__init__(labels, weighing=weighing)
        self.metric = "macro_f1"  # rhythms are of unequal frequency
        self.window, self.step = window, step or window / 2

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        labels = cls.labels_in(sets, say, held_out=held_out)
        for sentence in doubts(sets, SIGNALS.noun):
            say(sentence)
        weighing = options.weighing(counts_of(sets["train"], labels))
        return cls(labels, window=options.window, step=options.step, weighing=weighing)

    @classmethod
    def for_references(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """As `learned`; windows have no effect on the references, which read whole records."""
        return cls.learned(sets, SignalOptions(), say, held_out=held_out)

    # -- scores

    def scores(self, probabilities: np.ndarray, true: np.ndarray) -> dict[str, float]:
        """The metrics of probabilities [N, C]; of records, while `tables` has those of windows too."""
        plain = super().scores(probabilities, true)
        return {**plain, **metrics.of_probabilities(probabilities, true, self.labels)}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        shares = np.bincount(self._true(train), minlength=len(self.labels)) / len(train)
        return self.scores(np.tile(shares, (len(rows), 1)), self._true(rows))

    def _arrays(self, answers: Sequence[Any], rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
        return np.stack([answer.mean for answer in answers]), self._true(rows)

    def tables(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        """The scores by window, by record and, where patients have several records, by patient, with intervals; and
        those of each class against the rest."""
        probabilities, true = self._arrays(answers, rows)
        names = [(isinstance(row, SignalRow) and row.group) or str(i) for i, row in enumerate(rows)]
        several = len(set(names)) < len(names)
        owners = np.repeat(np.arange(len(rows)), [len(answer.answers) for answer in answers])
        windows = np.concatenate([answer.answers for answer in answers])
        levels: dict[str, tuple[np.ndarray, np.ndarray, Sequence[str]]] = {
            "windows": (windows, true[owners], [names[i] for i in owners]),
            "records": (probabilities, true, names),
        }
        if several and (patients := self._patients(probabilities, true, names)) is not None:
            levels["patients"] = patients
        lines = [self._line(level, *values) for level, values in levels.items()]
        heads = ["by", "number", *(name for name in SHOWN if any(name in line for line in lines))]
        drawn = "patients" if several else "records"
        title = f"Scores with 95 % intervals, by resampling {drawn}"
        return {
            title: {"heads": heads, "rows": [[line.get(head, "") for head in heads] for line in lines]},
            "Each class against the rest, by record": self._against_rest(probabilities, true),
        }

    def _line(self, level: str, probabilities: np.ndarray, true: np.ndarray, groups: Sequence[str]) -> dict[str, str]:
        """Name of a metric -> its value and interval, as text."""

        def score(drawn: np.ndarray) -> dict[str, float]:
            return metrics.of_probabilities(probabilities[drawn], true[drawn], self.labels)

        found = score(np.arange(len(true)))
        ends = metrics.intervals(score, groups, trials=TRIALS) if len(set(groups)) > 1 else {}
        cells = {name: f"{value:.3f}" for name, value in found.items()}
        for name, (low, high) in ends.items():
            cells[name] = f"{cells[name]} ({low:.3f} to {high:.3f})" if name in cells else ""
        return {"by": level, "number": f"{len(true):,}", **cells}

    def _patients(
        self, probabilities: np.ndarray, true: np.ndarray, names: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray, Sequence[str]] | None:
        """The mean probabilities of the records of each patient; None if a patient's records have several labels."""
        order, first, of_row = np.unique(names, return_index=True, return_inverse=True)
        if (true[first][of_row] != true).any():
            return None
        sums = np.zeros((len(order), probabilities.shape[1]))
        np.add.at(sums, of_row, probabilities)
        return sums / np.bincount(of_row)[:, None], true[first], order.tolist()

    def _against_rest(self, probabilities: np.ndarray, true: np.ndarray) -> dict[str, Any]:
        areas = metrics.areas(probabilities, true)
        classes = metrics.per_class(probabilities.argmax(1), true, self.labels)
        lines = []
        for number, label in enumerate(self.labels):
            own = [f"{area:.3f}" for area in areas[number]] if number in areas else ["", ""]
            lines.append([label, f"{classes[label]['support']:,.0f}", f"{classes[label]['f1']:.3f}", *own])
        return {"heads": ["class", "records", "f1", "roc_auc", "pr_auc"], "rows": lines}

    # -- references and answers

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        experts = Experts()
        return {name: partial(self._reference, train, experts, name) for name in MODELS}

    def _reference(self, train: Sequence[Row], experts: Experts, name: str) -> Score:
        answer = experts.fitted(name, train, self._true(train), len(self.labels))
        return lambda rows: self.scores(answer(rows), self._true(rows))

    def answer(self, row: Row, found: Any) -> dict[str, Any]:
        """{"label", "probability", "scores": {label: probability}, "windows": [{"begin", "end", "label",
        "probability"}]}, with seconds."""
        windows = [
            {"begin": begin, "end": end, "label": self.labels[int(p.argmax())], "probability": float(p.max())}
            for (begin, end), p in zip(found.seconds.tolist(), found.answers, strict=True)
        ]
        return {**super().answer(row, found.mean[None]), "windows": windows}

    def explained(self, answers: list[Any], model: Any, encoded: Encoded, processor: Any) -> list[dict[str, Any]]:
        """Each window has "looked": "rhythm", the weights of its segments; "beats", those of the places of the
        convolution, one segment after the other; "bands". Each of the three adds up to 1. For MINA alone."""
        return [
            {**answer, "windows": [{**one, **_looked(model, x)} for one, x in zip(answer["windows"], own, strict=True)]}
            for answer, own in zip(answers, (encoded.examples[part] for part in encoded.of_rows), strict=True)
        ]

    def along(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {"lead": f"{answer['label']}: {answer['probability']:.1%}", "answers": answer["windows"]}


def _looked(model: Any, example: Example) -> dict[str, Any]:
    """{"looked"} for one window; empty for a model without attention."""
    looked = model.looked(collate.pad([example], Kind.PADDING).to(model.device))
    if looked is None:
        return {}
    found = {"beats": looked.places, "rhythm": looked.segments.sum(-1), "bands": looked.bands}
    return {"looked": {name: x[0].flatten().float().tolist() for name, x in found.items()}}

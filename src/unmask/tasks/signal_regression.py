"""Signal regression: a number for a record of sensors: a pulse, a load, the remaining life of a machine.

Shapes: N rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from unmask import metrics
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.signals import synthetic
from unmask.tasks.one_score import OneScore
from unmask.tasks.signal_references import SCORES, Experts
from unmask.tasks.signal_windows import WindowedSignals, WindowOptions
from unmask.tasks.stand_in import StandIn
from unmask.tasks.task import Say, Score, Task
from unmask.types import Head


class SignalRegression(OneScore, WindowedSignals):
    """Predict a number for a record: squared error of each window, with the number of its record in standard units; the
    answer to a record is the mean of those to its windows.

    window  seconds of a window
    step    seconds from one window to the next; None: half of a window
    centre  mean of the training scores
    scale   their standard deviation
    """

    task_name, name, general = "signal-regression", "signal_regression", "regression"
    heads: Mapping[str, Head] = {"signal_regression": Head("sequence", 1)}
    options_class = WindowOptions
    panel = "scoreSignal"
    rows_are = "records of sensors with a score"
    reference = "the mean score of the training rows"
    references_are = "ridge regression and a random forest on features of heartbeats, as experts read them"

    def __init__(
        self,
        *,
        window: float = WindowOptions.window,
        step: float | None = None,
        centre: float = 0.0,
        scale: float = 1.0,
    ) -> None:
        self.window, self.step = window, step or window / 2
        self.centre, self.scale = centre, scale

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        values = cls.scores_of(sets, say)
        cls.check_sets(sets, say, held_out=held_out)
        scales = {"centre": float(np.mean(values)), "scale": float(np.std(values))}
        return cls(window=options.window, step=options.step, **scales)

    @classmethod
    def for_references(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """As `learned`; windows have no effect on the references, which read whole records."""
        return cls.learned(sets, WindowOptions(), say, held_out=held_out)

    @classmethod
    def stand_in(cls, config: Any) -> StandIn:
        rows = {split: f"pulse-{split}.tsv" for split in ("train", "dev", "test")}
        write = partial(synthetic.write, rate=config.rate)
        what = "electrocardiograms that are synthesised, with their beats a minute,"
        return StandIn(what, f"synthetic-ecg-{config.rate:g}", write, rows)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "centre": self.centre, "scale": self.scale}

    def found_scores(self, answers: Sequence[Any]) -> np.ndarray:
        return np.array([answer.mean[0] for answer in answers], np.float64)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        experts = Experts()
        return {name: partial(self._reference, train, experts, name) for name in SCORES}

    def _reference(self, train: Sequence[Row], experts: Experts, name: str) -> Score:
        answer = experts.fitted_scores(name, train, np.concatenate([self.value(row) for row in train]))
        return lambda rows: metrics.of_scores(answer(rows)[:, 0], np.array([float(row.label) for row in rows]))

    def answer(self, row: Row, found: Any) -> dict[str, Any]:
        """{"score", "windows": [{"begin", "end", "score"}]}, with seconds."""
        windows = [
            {"begin": begin, "end": end, "score": float(score)}
            for (begin, end), [score] in zip(found.seconds.tolist(), found.answers, strict=True)
        ]
        return {**super().answer(row, found), "windows": windows}

    def along(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        scores = [one["score"] for one in answer["windows"]]
        return {"lead": f"{answer['score']:.4g}; its windows have {min(scores):.4g} to {max(scores):.4g}"}

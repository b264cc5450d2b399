"""Forecasting: the next values of a series, with quantiles.

Shapes: M targets, H values of a forecast, Q quantiles, O forecasts of a row, F forecasts of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask import metrics
from unmask.data.files.tables import format_by_name
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.signals import synthetic_series
from unmask.data.signals.forecasts import ForecastExamples, origins
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.series import SeriesRow, are_series, filled, series_in, series_of
from unmask.errors import UnmaskError
from unmask.models.model import Model, ModelConfig
from unmask.tasks.encoded import Encoded
from unmask.tasks.rows import Rows, TaskOptions
from unmask.tasks.series import SeriesForm, SeriesRows
from unmask.tasks.series_references import REFERENCES, Forecast, period_of, seasonal
from unmask.tasks.signals import SignalTask
from unmask.tasks.stand_in import StandIn
from unmask.tasks.task import Curve, Say, Score, Task
from unmask.types import Batch, Head, Loss

WINDOWS = 4  # forecasts, or 2 seasons, that a window has by default


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(TaskOptions):
    """Options for the training of forecasts.

    context    most values that the model reads before a forecast, rounded up to whole segments; None: four times those
               of a forecast, or two seasons if that is more
    quantiles  that are forecast, ascending
    period     values of a season, for the seasonal reference and the scale of MASE; None: found by autocorrelation
    """

    context: int | None = None
    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)
    period: int | None = None

    def check(self) -> None:
        ascending = all(a < b for a, b in pairwise((0.0, *self.quantiles, 1.0)))
        if not self.quantiles or not ascending:
            raise UnmaskError("--quantiles must be numbers between 0 and 1 in ascending order, such as 0.1,0.5,0.9.")
        if min(one for one in (self.context, self.period, 1) if one is not None) < 1:
            raise UnmaskError("--context and --period must be at least 1.")


@dataclass(frozen=True)
class Forecasts:
    """The answer to a row: `quantiles` [O, H, Q]; the places in the series where the forecasts begin, `starts` [O]; the
    standard deviations of the windows before them, `scales` [O]."""

    quantiles: np.ndarray
    starts: np.ndarray
    scales: np.ndarray


class Forecasting(SignalTask):
    """Predict quantiles of the next values of a series from a window before them: the pinball loss, at the last segment
    of the window, of values that are scaled by the window alone.

    horizon    H, values that are forecast at once
    context    most values of a window
    quantiles  that are forecast
    period     values of a season; 1: none
    """

    task_name = name = "forecasting"
    series = True
    row_class: ClassVar[type[Row]] = SeriesRow
    rows_class: ClassVar[type[Rows]] = SeriesRows
    options_class = ForecastOptions
    metric = "wql"
    outcomes = "score"
    form = SeriesForm()
    panel, gives = "forecastSeries", "forecasts with quantiles"
    pipeline = "time-series-forecasting"
    rows_are = "series of numbers"
    reference = "the last season, repeated, with quantiles of the changes from season to season"
    references_are = "the last value, and the line through the first and the last value"

    def __init__(
        self,
        horizon: int = SeriesRows.horizon,
        context: int = WINDOWS * SeriesRows.horizon,
        quantiles: tuple[float, ...] = ForecastOptions.quantiles,
        period: int = 1,
    ) -> None:
        self.horizon, self.context, self.quantiles, self.period = horizon, context, tuple(quantiles), period
        self.heads: Mapping[str, Head] = {self.name: Head("token", horizon * len(self.quantiles))}

    # -- rows

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        found: Dataset = rows.series_in(path, scoring=scoring)
        return found

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        rows = series_of(sets["train"].rows)
        period = options.period
        if period is None:
            period = period_of([filled(row.values[: row.end]) for row in rows])
            said = f"A season has {period:,} values" if period > 1 else "No season was found"
            say(f"{said}, by autocorrelation; --period sets its values.")
        horizon = rows[0].horizon
        context = options.context or max(WINDOWS * horizon, 2 * period)
        return cls(horizon, context, options.quantiles, period)

    @classmethod
    def stand_in(cls, config: Any) -> StandIn:
        what = "series of a trend, a season and noise"
        return StandIn(what, "synthetic-series", synthetic_series.write, {"train": synthetic_series.FILE})

    @classmethod
    def check_model(cls, config: ModelConfig, owner: object) -> None:
        super().check_model(config, owner)
        if config.leads != 1:  # type: ignore[attr-defined]
            raise UnmaskError(f"{owner} reads several leads at once, but forecasts are of one series: take --leads 1.")

    @classmethod
    def new_processor(cls, config: Any) -> SignalProcessor:
        return replace(super().new_processor(config), normalise="none")  # windows are scaled here

    def settings(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "context": self.context,
            "quantiles": list(self.quantiles),
            "period": self.period,
        }

    def encode(self, rows: Sequence[Row], processor: SignalProcessor, length: int) -> Encoded:
        return self._encoded(rows, processor, length)

    def check_encoded(self, encoded: Encoded) -> None:
        """Does nothing: the series were read before."""

    def for_training(self, encoded: Encoded, processor: SignalProcessor) -> Encoded:
        """All windows, from one value to the next."""
        return self._encoded(encoded.rows, processor, encoded.length, step=1)

    def _encoded(
        self, rows: Sequence[Row], processor: SignalProcessor, length: int, step: int | None = None
    ) -> Encoded:
        series = [row if row.begin < row.end else replace(row, horizon=self.horizon) for row in series_of(rows)]
        if other := next((row for row in series if row.horizon != self.horizon), None):
            raise UnmaskError(
                f"The model forecasts {self.horizon} values at once, not {other.horizon}: leave --horizon out."
            )
        segments = min(-(-self.context // processor.segment), length)
        context = segments * processor.segment
        examples = ForecastExamples(series, processor, self.name, context, step=step)
        return Encoded(examples, examples.owners, series, segments, unit="segments")

    # -- the model

    def squash(self, logits: Tensor) -> Tensor:
        """[M, H * Q] -> [M, H, Q] in ascending order, so that quantiles do not cross, which never raises the pinball
        loss."""
        return logits.unflatten(-1, (self.horizon, len(self.quantiles))).sort(-1).values

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """The pinball loss in units of the windows, a mean over the known values and the quantiles of each forecast,
        summed over the forecasts; the metric `error` is the same of the absolute errors of the median."""
        target = batch.targets[self.name]
        logits = model.answer(self.name, hidden_BTD, target.places, batch).float()
        found_MHQ = logits.unflatten(-1, (self.horizon, len(self.quantiles)))
        known_MH = target.values.isfinite()
        errors_MHQ = target.values.float().where(known_MH, 0)[..., None] - found_MHQ
        levels_Q = errors_MHQ.new_tensor(self.quantiles)
        shares_MH = known_MH / known_MH.sum(-1, keepdim=True).clamp(min=1)
        losses_MH = torch.maximum(levels_Q * errors_MHQ, (levels_Q - 1) * errors_MHQ).mean(-1)
        middle = int(np.argmin(np.abs(np.array(self.quantiles) - 0.5)))
        error = (errors_MHQ[..., middle].detach().abs() * shares_MH).sum()
        return Loss((losses_MH * shares_MH).sum(), len(errors_MHQ), {"error": error})

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Forecasts:
        own: Any = encoded.examples[encoded.of_rows[row]]
        centre_O11, scale_O11 = own.scaling.T[:, :, None, None]
        scaled_OHQ = np.concatenate(parts).astype(np.float64)
        return Forecasts(scaled_OHQ * scale_O11 + centre_O11, own.starts, scale_O11[:, 0, 0])

    # -- scores

    def metrics(self, answers: Sequence[Forecasts], rows: Sequence[Row]) -> dict[str, float]:
        """As `metrics.of_forecasts`; `loss` is that of `score`, of quantiles that do not cross."""
        series, found_FHQ = series_of(rows), np.concatenate([answer.quantiles for answer in answers])
        true_FH = self._true(series, answers)
        losses_FHQ = metrics.pinball(true_FH, found_FHQ, self.quantiles)
        losses_FHQ /= np.concatenate([answer.scales for answer in answers])[:, None, None]
        losses = [own[np.isfinite(own)].mean() for own in losses_FHQ if np.isfinite(own).any()]
        return {**self._scores(series, answers, found_FHQ, true_FH), "loss": float(np.mean(losses)) if losses else 0.0}

    def _scores(
        self, series: Sequence[SeriesRow], answers: Sequence[Forecasts], found_FHQ: np.ndarray, true_FH: np.ndarray
    ) -> dict[str, float]:
        errors = [metrics.seasonal_error(row.values[: row.begin or row.end], self.period) for row in series]
        scales_F = np.repeat(errors, [len(answer.starts) for answer in answers])
        return metrics.of_forecasts(true_FH, found_FHQ, self.quantiles, scales_F)

    def _true(self, series: Sequence[SeriesRow], answers: Sequence[Forecasts]) -> np.ndarray:
        """[F, H]: the values that were forecast."""
        pairs = zip(series, answers, strict=True)
        return np.stack([row.values[i : i + self.horizon] for row, answer in pairs for i in answer.starts.tolist()])

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        return self._plain(rows, seasonal)

    def _plain(self, rows: Sequence[Row], forecast: Forecast) -> dict[str, float]:
        """The scores of a plain forecast, which reads all values before it."""
        series = series_of(rows)
        answers = [self._plainly(row, forecast) for row in series]
        found_FHQ = np.concatenate([answer.quantiles for answer in answers])
        return self._scores(series, answers, found_FHQ, self._true(series, answers))

    def _plainly(self, row: SeriesRow, forecast: Forecast) -> Forecasts:
        starts = origins(row, self.context, 1, self.horizon)
        before = [filled(row.values[:start]) for start in starts.tolist()]
        found = [forecast(values, self.horizon, self.quantiles, self.period) for values in before]
        return Forecasts(np.stack(found), starts, np.ones(len(starts)))

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        def learned(forecast: Forecast) -> Score:
            return lambda rows: self._plain(rows, forecast)

        return {name: partial(learned, forecast) for name, forecast in REFERENCES.items()}

    def tables(self, answers: Sequence[Forecasts], rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        """The scores of each series, beside those of the last season."""
        heads, lines = ["series", "forecasts", "mase", "of the last season", "wql", "of the last season"], []
        for row, answer in zip(rows, answers, strict=True):
            own, plain = self.metrics([answer], [row]), self._plain([row], seasonal)
            lines.append([row.id, len(answer.starts), own["mase"], plain["mase"], own["wql"], plain["wql"]])
        return {"Scores of each series": {"heads": heads, "rows": lines}}

    def curves(self, answers: Sequence[Forecasts], rows: Sequence[Row]) -> dict[str, Curve]:
        """The error by the step of the forecast."""
        true_FH = self._true(series_of(rows), answers)
        found_FHQ = np.concatenate([answer.quantiles for answer in answers])
        errors_FH = np.abs(true_FH - metrics.median_of(found_FHQ, self.quantiles))
        errors_FH /= np.concatenate([answer.scales for answer in answers])[:, None]
        points = [[h, float(np.nanmean(own))] for h, own in enumerate(errors_FH.T, 1) if np.isfinite(own).any()]
        return {"Absolute error of the median, in deviations of the window": {
            "x": "values ahead", "y": "error", "points": points, "log_x": False,
        }}  # fmt: skip

    # -- answers

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        """The series of a file, whose next values are forecast; None for another file, such as lines of JSON."""
        jsonl = format_by_name(path) in ("jsonl", "json")
        return series_in(path, encoding=encoding).rows if are_series(path) and not jsonl else None

    def answer(self, row: Row, found: Forecasts) -> dict[str, Any]:
        """{"forecast": {quantile: [values]}}, the last forecast of the row."""
        columns_QH = found.quantiles[-1].T.tolist()
        return {"forecast": {f"{q:g}": column for q, column in zip(self.quantiles, columns_QH, strict=True)}}

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        """Lines with tabs: one of names, then one for each value, with its number from 1."""
        forecast, name = answer["forecast"], str(answer.get("id", text))
        steps = enumerate(zip(*forecast.values(), strict=True), 1)
        lines = [["series", "step", *forecast], *([name, str(h), *(f"{x:.6g}" for x in xs)] for h, xs in steps)]
        return "\n".join("\t".join(line) for line in lines)

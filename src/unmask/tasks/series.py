"""Rows and requests of forecasts: series, whose ends are the dev and the test forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.signals.series import Columns, SeriesRow, of_values, series_in, series_of
from unmask.errors import UnmaskError
from unmask.tasks.forms import Form, Object
from unmask.tasks.rows import Rows, column


@dataclass(frozen=True, kw_only=True)
class SeriesRows(Rows):
    """Series at equal steps of time: a table with a column for each, or with a row for each value; a record of sensors;
    or a folder of these. The last values of each series are the test forecasts, those before them the dev forecasts.

    series   column of the names of series, in a table with a row for each value of each series
    value    column of the values, several with commas between them; without it and without names of series, each column
             of numbers is a series
    horizon  values that are forecast at once
    origins  forecasts of each series in the dev rows, and in the test rows: one after the other, up to the end
    """

    series: str | None = column()
    value: str | None = column()
    horizon: int = 24
    origins: int = 4

    @property
    def fewest(self) -> int:
        return 1

    @property
    def files(self) -> dict[str, Path | None]:
        return {**super().files, "test": self.test or self.train}

    @property
    def span(self) -> int:
        """Values of each series that are forecast for a score. Raises UnmaskError for sizes below 1."""
        if min(self.horizon, self.origins) < 1:
            raise UnmaskError("--horizon and --origins must be at least 1.")
        return self.horizon * self.origins

    def series_in(self, path: Path, *, scoring: bool) -> Dataset:
        """The series of a file or folder: their ends are forecast for a score; for training, all values but those of
        the test. Raises UnmaskError as `series_in`, for a series that is not longer than these, and for folds."""
        if self.folds is not None or self.fold is not None:
            raise UnmaskError("Series are split by time, and their ends are the test: leave --folds and --fold out.")
        found, span = series_in(path, Columns(self.series, self.value), encoding=self.encoding), self.span
        kept = span if scoring or self.test is None else 0
        whole = series_of(found)
        self._check([(row, len(row.values)) for row in whole], kept)
        ends = [(row, len(row.values) - kept) for row in whole]
        parts = [(row, *((end, len(row.values)) if scoring else (0, end))) for row, end in ends]
        rows = [replace(row, begin=begin, end=end, horizon=self.horizon) for row, begin, end in parts]
        return replace(found, rows=tuple(rows))

    def _check(self, counts: Sequence[tuple[SeriesRow, int]], kept: int) -> None:
        """Raises UnmaskError for a series that has no more values than are forecast."""
        if short := next((row for row, count in counts if count <= kept), None):
            raise UnmaskError(
                f"{short.place} has {len(short.values):,} values, too few for {self.origins} dev and test forecasts of "
                f"{self.horizon}: lower --horizon or --origins, or leave the series out."
            )

    def hold_out(self, whole: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset, str]:
        self._check([(row, row.end) for row in series_of(whole)], self.span)
        ends = [(row, row.end - self.span) for row in series_of(whole)]
        dev = [replace(row, begin=begin) for row, begin in ends]
        train = [replace(row, end=begin) for row, begin in ends]
        how = f"the last {self.span:,} training values of each series"
        return replace(whole, rows=tuple(dev)), replace(whole, rows=tuple(train)), how


class SeriesForm(Form):
    """A series: on the command line the name of a file that has one; in a request {"values": [1, 2.5, null, ...]}."""

    known = frozenset({"values"})
    wanted = object = lacking = 'an object such as {"values": [1, 2.5, 4, ...]}'
    example = "series.csv"

    def by_name(self, parts: Sequence[str], whole: bool, number: int) -> Object:
        raise UnmaskError(f"Text {number} is a text, and this model reads series; it must be {self.wanted}.")

    def line(self, line: str, number: int, *, single: bool = False) -> Object:
        path = Path(line.strip())
        if not path.exists():
            raise UnmaskError(f"There is no file {path}; give one with a series.")
        return {"values": path}

    def item(self, row: Row) -> Object:
        """The values before the first one that is forecast."""
        assert isinstance(row, SeriesRow)
        before = row.values[: row.begin]
        return {"values": [None if np.isnan(value) else float(value) for value in before]}

    def row(self, values: Object, place: str) -> Row:
        given = values.get("values")
        if not isinstance(given, Path):  # of a line; no request holds one
            return of_values(given, place)
        found = series_in(given)
        if len(found) > 1:
            raise UnmaskError(f"{given} has {len(found):,} series: give it as --file {given}, for forecasts of all.")
        row: Row = found[0]
        return row

"""Series: sequences of numbers at equal steps of time, for forecasts: from tables, from folders and from records.

Shapes: N values of a series.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.cells import column_in
from unmask.data.files.tables import Table, column_of, format_by_name, read_table
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row, listed
from unmask.data.signals.arrays import TIMES
from unmask.data.signals.decoding import SURE, read
from unmask.data.signals.items import is_reference
from unmask.errors import UnmaskError, plural

NAMES = ("unique_id", "series", "series_id", "item_id")
STAMPS = ("ds", "date", "datetime", *TIMES, "day", "week", "month", "quarter", "year", "hour", "step", "index")
VALUES = ("y", "value", "target", "values")
"""Usual names of columns, ignoring case."""
EMPTY = frozenset({"", "-", "na", "n/a", "nan", "null", "none"})
UNEVEN = 1.5  # of the usual step: a longer one is counted


@dataclass(frozen=True, slots=True)
class SeriesRow(Row):
    """A series, and where its forecasts lie; `id` is its name.

    values   [N] float64; NaN where there is none
    begin    the first value that is forecast
    end      the value after the last one that is forecast; where it is `begin`, what follows it is forecast
    horizon  values that are forecast at once
    """

    values: np.ndarray = field(default_factory=lambda: np.zeros(0), compare=False)
    begin: int = 0
    end: int = 0
    horizon: int = 1

    @property
    def texts(self) -> tuple[str, ...]:
        """Empty: a model reads no text of a series."""
        return ()

    @property
    def key(self) -> tuple[str, ...]:
        """A hash of the values, and the part that is forecast."""
        digest = hashlib.blake2b(self.values.tobytes(), digest_size=16).hexdigest()
        return (digest, str(self.begin), str(self.end))


def series_of(rows: Iterable[Row]) -> list[SeriesRow]:
    """The rows that are series."""
    return [row for row in rows if isinstance(row, SeriesRow)]


@dataclass(frozen=True)
class Columns:
    """The columns of a table; None: those with usual names.

    series  of the names of series, in a table with a row for each value of each series
    value   of the values; several with commas between them. Without names of series, each column is a series, and None
            takes all with numbers
    """

    series: str | None = None
    value: str | None = None


def series_in(path: Path, columns: Columns | None = None, *, encoding: str | None = None) -> Dataset:
    """The series of a table, of a record of sensors, whose leads are the series, or of a folder of these. All values of
    each are after its end: nothing is forecast yet.

    Raises UnmaskError, which names the file, and the row or column, for a table without numbers, for values that are no
    numbers, for times that go back, and for series without a value.
    """
    columns = columns or Columns()
    within = [one for one in path.rglob("*") if one.is_file() and are_series(one) and not is_reference(one)]
    files = sorted(within) if path.is_dir() else [path]
    if not files:
        raise UnmaskError(f"{path} has no series: files such as .csv, .parquet or .npy.")
    rows, notes, found = list[SeriesRow](), list[str](), dict[str, str]()
    for file in files:
        if file.suffix.lower() in SURE:
            signal = read(file, own_rate=1.0)
            named = dict(zip(signal.leads, signal.samples.T.astype(np.float64), strict=True))
            found = {"value": "leads"}
        else:
            named, found, said = _of_table(file, read_table(file, _format(file), encoding=encoding), columns)
            notes += [f"{file.name}: {one}" if path.is_dir() else one for one in said]
        for name, values in named.items():
            whole = name if not path.is_dir() else f"{file.stem} {name}" if len(named) > 1 else file.stem
            if not np.isfinite(values).any():
                raise UnmaskError(f"{file}: the series {name} has no values: leave it out.")
            end = len(values)
            rows.append(SeriesRow(id=whole, place=f"{file}: {name}", values=values, begin=end, end=end))
    return Dataset(path, tuple(rows), found, tuple(notes))


def are_series(path: Path) -> bool:
    """Whether a file is a table, or a record, by its suffix."""
    suffix = path.suffix.lower()
    return (suffix in SURE and suffix != ".dat") or format_by_name(path) not in (None, "conll")


def of_values(values: Any, place: str) -> SeriesRow:
    """A series of a list of numbers or nulls. Raises UnmaskError, which begins with `place`, for another value."""
    if not isinstance(values, list) or not any(isinstance(one, int | float) for one in values):
        raise UnmaskError(f"{place}: 'values' must be a list of numbers.")
    found = np.array([_number(one, f"{place}, value {i}", "values") for i, one in enumerate(values, 1)])
    return SeriesRow(place=place, values=found, begin=len(found), end=len(found))


def filled(values_N: np.ndarray) -> np.ndarray:
    """A copy whose gaps have straight lines between their neighbours; before the first value and after the last one,
    that value; without any, zeros."""
    known = np.flatnonzero(np.isfinite(values_N))
    if len(known) == len(values_N):
        return values_N
    return np.interp(np.arange(len(values_N)), known, values_N[known]) if len(known) else np.zeros(len(values_N))


def _format(path: Path) -> str:
    found = format_by_name(path)
    if found in (None, "conll"):
        raise UnmaskError(f"{path} is no table of series: give a .csv, .tsv, .jsonl or .parquet file.")
    return str(found)


def _of_table(
    path: Path, table: Table, columns: Columns
) -> tuple[dict[str, np.ndarray], dict[str, str], tuple[str, ...]]:
    """Name -> values of the series of a table, the roles of its columns, and notes."""
    if all(_is_number(name) for name in table.columns):
        raise UnmaskError(f"{path} must have a first line with the names of its columns.")
    stamps = column_of(table.columns, STAMPS)
    named = column_of(table.columns, NAMES) if columns.series is None else columns.series
    roles, notes = {"time": stamps} if stamps else {}, list[str]()
    groups: dict[str, list[tuple[int, Mapping[str, Any]]]] = {"": table.rows}
    others = [name for name in table.columns if name not in (stamps, named)]
    if named is not None:
        named = column_in(table.columns, named, (), "series", path, option="--series")
        groups = {}
        for number, cells in table.rows:
            groups.setdefault(str(cells.get(named)), []).append((number, cells))
        roles["series"] = named
    if columns.value is not None:
        chosen = [
            column_in(table.columns, one.strip(), (), "values", path, option="--value")
            for one in columns.value.split(",")
        ]
    elif named is not None and (usual := column_of(others, VALUES)):
        chosen = [usual]
    else:
        chosen = [name for name in others if any(_is_number(cells.get(name)) for _, cells in table.rows)]
        if left := [name for name in others if name not in chosen]:
            notes.append(f"Columns without numbers, left out: {listed(left)}.")
    if not chosen:
        raise UnmaskError(f"{path} has no column of numbers; it has {', '.join(table.columns)}.")
    roles["value"] = ", ".join(chosen[:3]) + (", ..." if len(chosen) > 3 else "")
    found, uneven = {}, list[str]()
    for group, rows in groups.items():
        if stamps and _has_gaps(path, [(number, cells.get(stamps)) for number, cells in rows]):
            uneven.append(group or "all series")
        for name in chosen:
            key = " ".join(filter(None, (group, name if len(chosen) > 1 or not group else "")))
            found[key] = np.array([_number(cells.get(name), f"{path}:{number}", name) for number, cells in rows])
    if uneven:
        notes.append(f"The times have gaps, and are read as if they had none: {listed(uneven)}.")
    if lacking := sum(bool(np.isnan(values).any()) for values in found.values()):
        notes.append(f"{plural(lacking, 'series', 'series')} with empty values: straight lines fill them.")
    return found, roles, tuple(notes)


def _has_gaps(path: Path, stamps: Sequence[tuple[int, Any]]) -> bool:
    """Whether some steps of time are longer than most. Raises UnmaskError for a time that is not after the one before;
    times in unknown formats are not checked."""
    seconds = np.array([*_seconds(stamps)])
    if len(seconds) < len(stamps) or len(seconds) < 2:
        return False
    steps = np.diff(seconds)
    if (steps <= 0).any():
        number, value = stamps[int(np.argmax(steps <= 0)) + 1]
        raise UnmaskError(
            f"{path}:{number}: the time {value} is not after the one before: sort the rows, and if they are of several "
            "series, name the column of their names with --series."
        )
    return bool(steps.max() > UNEVEN * np.median(steps))


def _seconds(stamps: Sequence[tuple[int, Any]]) -> Iterator[float]:
    for _, value in stamps:
        if _is_number(value):
            yield float(value)
            continue
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError:
            return
        yield (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()


def _is_number(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except (TypeError, ValueError):
        return False


def _number(value: Any, place: str, column: str) -> float:
    if value is None or (isinstance(value, str) and value.strip().lower() in EMPTY):
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UnmaskError(f"{place}: '{value}' in the column '{column}' is no number.") from None

"""Arrays of numbers as records: MATLAB files, NumPy files, Parquet, and tables of text with a column for each lead.

Shapes: N samples of a record, L leads.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unmask.data.signals import matlab
from unmask.data.signals.signal import MOST_BYTES, MOST_SAMPLES, single
from unmask.errors import UnmaskError, needs

RATES = ("fs", "rate", "sampling_rate", "sample_rate", "frequency", "freq", "samplerate")
"""Names of a number that is the samples a second, ignoring case."""
TIMES = ("time", "t", "seconds", "sec", "elapsed time", "timestamp", "time [s]", "time (s)")
"""Names of a column that has the seconds of each sample, ignoring case."""
UNKNOWN = "not a record in a known format: WFDB, MATLAB, EDF, NumPy, CSV or Parquet."
HEADER_LINES = 2  # of a table of text, at most: names, and units


class Leads(NamedTuple):
    """samples [N, L] float32, the names of the leads, and the samples a second if the file says them."""

    samples: np.ndarray
    leads: tuple[str, ...]
    rate: float | None


def leads_of(content: bytes, name: str) -> Leads:
    """The record in the bytes of a file, whose format is known by its first bytes; text is a table. Raises UnmaskError,
    which begins with `name`, if it has no array of numbers."""
    try:
        if content[:6] == b"\x93NUMPY":
            return of_arrays({"": np.load(io.BytesIO(content), allow_pickle=False)}, name)
        if content[:4] == b"PK\x03\x04":
            return of_arrays(_npz(content, name), name)
        if content[:4] == b"PAR1":
            return of_columns(_parquet(content), name)
        if matlab.is_matlab(content):
            return of_arrays(matlab.arrays_in(content), name)
    except UnmaskError:
        raise
    except Exception as error:  # the libraries raise many kinds of errors for a damaged file
        reason = next(iter(str(error).splitlines()), "it is damaged")[:200]
        raise UnmaskError(f"{name} cannot be decoded: {reason}.") from None
    if content[:8] == b"\x89HDF\r\n\x1a\n" or content[:15] == b"MATLAB 7.3 MAT-":
        raise UnmaskError(f"{name} is HDF5 (MATLAB 7.3), which is not read: save it with -v7.")
    if b"\0" in content[:1024]:
        raise UnmaskError(f"{name} is {UNKNOWN}")
    return of_text(content, name)


def of_arrays(found: Mapping[str, Any], name: str) -> Leads:
    """The largest array of numbers [N, L], [L, N] or [N] among some with names; a single number with a name in RATES is
    the rate. The longer axis is time."""
    rate, arrays = None, []
    for key, value in found.items():
        array = np.asarray(value)
        if array.dtype.kind not in "iufb" or not array.size:
            continue
        if key.lower() in RATES and array.size == 1:
            rate = float(array.reshape(-1)[0])
        elif array.squeeze().ndim in (1, 2) or array.size == 1:
            arrays.append(array.squeeze())
    if not arrays:
        raise UnmaskError(f"{name} has no array of numbers [samples, leads].")
    largest = max(arrays, key=lambda array: array.size)
    if largest.size > MOST_SAMPLES:
        raise UnmaskError(
            f"{name} has {largest.size:,} numbers, but the limit is {MOST_SAMPLES:,}: cut it into pieces."
        )
    samples = largest.reshape(-1, 1) if largest.ndim < 2 else largest
    samples = samples.T if samples.shape[0] < samples.shape[1] else samples
    return Leads(single(samples), names_of(samples.shape[1]), rate)


def of_columns(columns: Mapping[str, Sequence[Any]], name: str) -> Leads:
    """A lead for each column; one with a name in TIMES gives the rate. Empty values are NaN."""
    numbers = {}
    for lead, values in columns.items():
        try:
            numbers[lead] = np.array([_number(value) for value in values], np.float64)
        except (TypeError, ValueError):
            raise UnmaskError(f"{name}: the column {lead!r} has values that are no numbers.") from None
    time = next((lead for lead in numbers if lead.strip().strip("'").lower() in TIMES), None)
    rate = None if time is None else _rate(numbers.pop(time), name)
    if not numbers:
        raise UnmaskError(f"{name} has no column of numbers.")
    return Leads(single(np.stack(list(numbers.values()), 1)), tuple(numbers), rate)


def of_text(content: bytes, name: str) -> Leads:
    """A table of numbers with commas, semicolons, tabs or spaces, with or without a line of names above it."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UnmaskError(
            f"{name} is not a record in a known format: WFDB, MATLAB, EDF, NumPy, CSV or Parquet."
        ) from None
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    first = next(iter(lines), "")
    mark = next((mark for mark in ("\t", ";", ",") if mark in first), None)
    rows = [[*row] for row in csv.reader(lines, delimiter=mark)] if mark else [line.split() for line in lines]
    above = 0
    while above < min(HEADER_LINES, len(rows)) and not _are_numbers(rows[above]):
        above += 1
    wide = len(rows[0]) if rows else 0
    for number, row in enumerate(rows[above:], above + 1):
        if len(row) != wide:
            raise UnmaskError(f"{name}: row {number} has {len(row)} values, but the first has {wide}.")
    if len(rows) == above:
        raise UnmaskError(f"{name} has no rows of numbers.")
    names = [one.strip().strip("'") for one in rows[0]] if above else list(names_of(wide))
    if len(set(names)) < wide:
        raise UnmaskError(f"{name} has two columns with one name.")
    return of_columns({lead: [row[i] for row in rows[above:]] for i, lead in enumerate(names)}, name)


def check_size(numbers: int, name: str) -> None:
    """Raises UnmaskError for a record of too many numbers."""
    if numbers > MOST_SAMPLES:
        raise UnmaskError(f"{name} has {numbers:,} numbers, but the limit is {MOST_SAMPLES:,}: cut it into pieces.")


def names_of(count: int) -> tuple[str, ...]:
    """Names of leads that have none."""
    return tuple(f"lead {i}" for i in range(1, count + 1))


def _number(value: Any) -> float:
    if value is None or (isinstance(value, str) and not value.strip().strip("-")):
        return np.nan
    return float(value)


def _are_numbers(row: Sequence[str]) -> bool:
    try:
        return bool([_number(value) for value in row])
    except ValueError:
        return False


def _rate(seconds: np.ndarray, name: str) -> float:
    """Samples a second. Raises UnmaskError for times that are half a step from evenly spaced ones."""
    count, length = len(seconds) - 1, float(seconds[-1] - seconds[0])
    even = np.linspace(seconds[0], seconds[-1], count + 1)
    if not length > 0 or not np.abs(seconds - even).max() < length / count / 2:
        raise UnmaskError(f"{name} has times that are not evenly spaced seconds: resample it, or remove the column.")
    return round(count / length, 3)


def _npz(content: bytes, name: str) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(one.file_size for one in archive.infolist()) > MOST_BYTES:
            raise UnmaskError(f"{name} is too large when it is decompressed.")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def _parquet(content: bytes) -> dict[str, Any]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise needs("Parquet files need pyarrow", "data") from None
    return {str(name): values for name, values in parquet.read_table(io.BytesIO(content)).to_pydict().items()}

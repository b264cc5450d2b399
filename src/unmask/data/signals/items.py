"""Items of records: those of a folder or of a table, one after another, with their names and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.data.files.cells import span_in
from unmask.data.files.items import FILES, Item, Items, Medium
from unmask.data.files.tables import column_of, on_hub
from unmask.data.signals import arrays, wfdb
from unmask.data.signals.decoding import SUFFIXES, SURE, TABLES, Source, files_of
from unmask.errors import UnmaskError

REFERENCE = "reference"  # what the names of files of labels begin with, ignoring case
OF_RECORD = (".dat", ".mat", ".atr")  # suffixes of files of a record, beside its header


@dataclass(frozen=True, slots=True)
class SignalItem(Item):
    """A record, or its part from `begin` to `end` seconds; None: its end. `own_rate` is that of a file that does not
    say it."""

    begin: float = 0.0
    end: float | None = None
    own_rate: float | None = None

    @property
    def size(self) -> int:
        """Bytes of the samples, which are in other files than the header; 0 if there are none."""
        if isinstance(self.source, bytes):
            return len(self.source)
        try:
            return sum(path.stat().st_size for path in files_of(self.source))
        except (OSError, UnmaskError):
            return 0


class SignalMedium(Medium):
    """Files of records. A record of several files has the name of its header."""

    def is_one(self, path: Path) -> bool:
        return path.suffix.lower() in SURE

    def files_in(self, folder: Path) -> tuple[list[Path], list[Path]]:
        found, others = super().files_in(folder)
        headers = {path.with_suffix("") for path in found if path.suffix.lower() == ".hea"}
        whole = [path for path in found if path.suffix.lower() == ".hea" or path.with_suffix("") not in headers]
        sure = [path for path in whole if path.suffix.lower() in SURE]
        own = {path for path in others if path.suffix.lower() in OF_RECORD and path.with_suffix("") in headers}
        tables = [path for path in whole if path.suffix.lower() in TABLES]
        if sure:  # tables beside records say something about them
            return sure, [path for path in others if path not in own and not is_reference(path)]
        return tables, others

    def item(self, source: Source, name: str, place: str, label: str, cells: Mapping[str, Any]) -> SignalItem:
        """Raises UnmaskError for a begin, an end or a rate that is no number."""
        found = with_suffix(source) if isinstance(source, Path) else source
        rates = column_of(list(cells), arrays.RATES)
        own_rate = None if rates is None else rate_in(cells, rates, place)
        return SignalItem(found, name, place, label, *span_in(cells, place), own_rate)


SIGNALS = SignalMedium(
    "record",
    SUFFIXES,
    ".hea, .mat or .edf",
    columns=("record", "signal", "ecg", "samples", "values", *FILES),
    labels=("label", "class", "rhythm", "diagnosis", "category", "target"),
)


def items_of(path: Path, *, record: str | None = None, label: str | None = None, encoding: str | None = None) -> Items:
    """The records of a folder, or of a table with files or bytes, which may have columns of the begin and the end of a
    part, in seconds, and of the rate. In a folder, the label is the name of the subfolder, if all records are in
    subfolders. A table needs no labels.

    record, label  columns of a table; None: the first with a usual name

    Raises UnmaskError, now or while reading, for data without records, and for a value of a table that is none.
    """
    if path.is_dir():
        return SIGNALS.of_folder(path)
    if not (path.is_file() or on_hub(path)):
        raise UnmaskError(f"There is no file or folder {path}.")
    return SIGNALS.of_table(path, record, label, encoding)


def is_reference(path: Path) -> bool:
    """Whether a file has the labels of the records beside it, by its name."""
    return path.suffix.lower() == ".csv" and path.name.lower().startswith(REFERENCE)


def with_suffix(source: Path) -> Path:
    """The file of a record that a table may name without its suffix."""
    if source.is_file():
        return source
    if (beside := wfdb.header_of(source)) is not None:
        return beside
    return next(
        (one for suffix in sorted(SUFFIXES) if (one := source.with_name(source.name + suffix)).is_file()), source
    )


def rate_in(cells: Mapping[str, Any], column: str, place: str) -> float:
    """The samples a second of a row. Raises UnmaskError for a value that is none."""
    try:
        found = float(cells.get(column) or "")
    except (TypeError, ValueError):
        found = 0.0
    if not 0 < found < float("inf"):
        raise UnmaskError(f"{place}: the column '{column}' must be samples a second, not {cells.get(column)!r}.")
    return found

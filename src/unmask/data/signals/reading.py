"""Labelled records: a folder with a subfolder for each class, a folder with a REFERENCE.csv, or a table of records.

Shapes: N samples of a record, L leads, W windows.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.cells import Pattern, column_in, is_pattern, span_in, value_in
from unmask.data.files.items import BYTES, PATH, SHOWN, class_of, visible
from unmask.data.files.lines import lines
from unmask.data.files.tables import column_of, format_by_name, guess_format, read_table
from unmask.data.files.tables import rows as rows_of
from unmask.data.labelled.dataset import Dataset, in_turns
from unmask.data.labelled.rows import Row, listed
from unmask.data.signals import arrays, wfdb
from unmask.data.signals.decoding import (
    ARRAYS,
    SUFFIXES,
    SURE,
    TABLES,
    Source,
    annotations_of,
    decode,
    digest_of,
    header,
    read,
)
from unmask.data.signals.items import SIGNALS, is_reference, rate_in, with_suffix
from unmask.data.signals.signal import Annotations, Signal
from unmask.errors import UnmaskError, plural

PATIENTS = ("patient", "patient_id", "subject", "subject_id", "person")
"""Usual names of columns."""
LONG = 16  # samples for each lead of an array that is taken for a record: pictures and lists of vectors have fewer


@dataclass(frozen=True, slots=True)
class SignalRow(Row):
    """A record, or a part of one. Its `label` is a class, its `group` the patient.

    source    the path of a file, its bytes, or a record in memory
    begin     of the part, in seconds
    end       of the part, in seconds; None: the end of the record
    own_rate  samples a second of a file that does not say them
    leads     names of the leads that are read, in this order; empty: all
    marks     begin and end of what has each of the `tags`, in seconds of the part, ascending; a beat ends where it
              begins
    """

    source: Source = field(default=b"", compare=False)
    begin: float = 0.0
    end: float | None = None
    own_rate: float | None = None
    leads: tuple[str, ...] = ()
    marks: tuple[tuple[float, float], ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Empty: a model reads no text of a record."""
        return ()

    @property
    def key(self) -> tuple[str, ...]:
        """A hash of the samples, and the part: copies of a file under other names are the same row."""
        return (self.digest, str(self.begin), str(self.end))

    @property
    def digest(self) -> str:
        """A hash of the samples of the whole record."""
        return digest_of(self.source)

    def signal(self, rate: float | None = None) -> Signal:
        """The samples [N, L] that a model can read, `rate` a second; None: the rate of the record. Raises UnmaskError,
        which names the row, for the reasons of `decode`."""
        return decode(self.source, rate, self.begin, self.end, leads=self.leads, own_rate=self.own_rate, name=self.name)

    def count(self, rate: float) -> int:
        """N at this rate. Raises UnmaskError, which names the row, for a file that is no record."""
        first, last = header(self.source, own_rate=self.own_rate, name=self.name).bounds(rate, self.begin, self.end)
        return last - first

    def annotations(self, rate: float) -> Annotations:
        """The annotations beside the record that lie in the part, as samples of the part at `rate`. Raises UnmaskError,
        which names the row, if there are none."""
        found = annotations_of(self.source, name=self.name)
        own = header(self.source, name=self.name)
        samples = np.rint(found.samples * (rate / own.rate)).astype(np.int64)
        first, last = own.bounds(rate, self.begin, self.end)
        return found.part(samples, first, last)

    @property
    def name(self) -> str:
        """The name in messages: that of a file is its path."""
        return str(self.source) if isinstance(self.source, str | Path) else self.place


@dataclass(frozen=True)
class Wanted:
    """The columns that are read; None: the first with a usual name. In place of the columns `label` and `group`, a
    regular expression with one group in brackets finds the value in the name of the file.

    record  column of paths, bytes or lists of numbers
    group   column of what must not be in two splits at once: the patient
    rate    samples a second of files that do not say them
    """

    record: str | None = None
    label: str | None = None
    group: str | None = None
    rate: float | None = None


def labelled(path: Path, wanted: Wanted | None = None, *, encoding: str | None = None) -> Dataset:
    """The records of a folder or of a table.

    In a folder the labels are in a file whose name begins with REFERENCE, as in the challenges of PhysioNet; without
    one, the label is the name of the subfolder, or what the expression `wanted.label` finds in the name. A table has
    paths relative to its folder, with or without a suffix, or lists of numbers, and maybe columns of the begin and the
    end in seconds, of the patient, and of the rate.

    Raises UnmaskError, which names the row and the column, if a value is missing, empty or of another type.
    """
    wanted = wanted or Wanted()
    if path.is_dir():
        references = references_in(path) if wanted.label is None else []
        return of_references(path, references, wanted) if references else of_folder(path, wanted)
    if is_reference(path):
        return of_references(path.parent, [path], wanted)
    return of_table(path, wanted, encoding=encoding)


def are_signals(path: Path) -> bool:
    """Whether labelled rows are records: a folder in which at least half of the files are, or a table whose first row
    names one, or has its numbers. A folder of arrays (.npy, .npz) may hold anything: they are records if the first one
    has one axis, or two axes with one at least LONG times as long as the other."""
    try:
        if path.is_dir():
            found, _ = SIGNALS.files_in(path)
            return SIGNALS.fills(path) and (_is_long if found[0].suffix.lower() in ARRAYS else is_record)(found[0])
        if is_reference(path):
            return bool(references_in(path.parent))
        if format_by_name(path) in (None, "conll"):
            return False
        cells = next(rows_of(path, format_by_name(path) or ""), (0, {}))[1]
        source = _source(cells, SIGNALS.column(_names(cells), None, path), path.parent, str(path), 1.0)
    except UnmaskError:  # the reader of texts says what is wrong
        return False
    return isinstance(source, Signal) or (isinstance(source, Path) and source.suffix.lower() in SUFFIXES)


def _is_long(path: Path) -> bool:
    """Whether an array has the shape of a record. Raises UnmaskError for one with more than two axes."""
    samples, leads = read(path, own_rate=1.0).samples.shape
    return bool(samples >= LONG * leads)


def is_record(path: Path) -> bool:
    """Whether a file is a record: by its suffix, or because it is a table of nothing but numbers."""
    if path.suffix.lower() in SURE:
        return path.suffix.lower() != ".dat" or wfdb.header_of(path) is not None
    if path.suffix.lower() not in TABLES or not path.is_file():
        return False
    try:
        read(path, own_rate=1.0)
    except UnmaskError:
        return False
    return True


def references_in(folder: Path) -> list[Path]:
    """The files of labels of a folder: REFERENCE.csv before REFERENCE-v2.csv, which corrects it."""
    found = [path for path in folder.iterdir() if path.is_file() and is_reference(path)]
    return sorted(found, key=lambda path: path.stem)


def of_folder(folder: Path, wanted: Wanted) -> Dataset:
    """The records of a folder and its subfolders, the first of each class, then the second ones, and so on.

    Raises UnmaskError if there are no records, and for records outside of a subfolder where the subfolders are the
    classes.
    """
    found, others = SIGNALS.files_in(folder)
    if not found:
        raise UnmaskError(f"{folder} has no records: files such as {SIGNALS.usual}, in it or in its subfolders.")
    if wanted.label is None and (loose := [path for path in found if path.parent == folder]):
        raise UnmaskError(
            f"{folder} must have a subfolder of records for each class, or a REFERENCE.csv, but "
            f"{visible(loose[0].name)} is in none of them ({plural(len(loose), 'such record')}); or give an expression "
            "for the names with --label."
        )
    find = {name: Pattern(given, f"--{name}") for name in ("label", "group") if (given := getattr(wanted, name))}
    rows = []
    for path in found:
        name, place = path.relative_to(folder).as_posix(), visible(str(path))
        values: dict[str, Any] = {role: pattern(name, place) for role, pattern in find.items()}
        own = {"label": class_of(path, folder)} | values
        rows.append(SignalRow(**own, id=path.stem, place=place, source=path, own_rate=wanted.rate))
    notes = SIGNALS.left_out(folder, others, () if wanted.label else {row.label for row in rows})
    columns = {"record": "files", "label": "names" if wanted.label else "folders"}
    return Dataset(folder, tuple(in_turns(rows)), columns, notes)


def of_references(folder: Path, references: Sequence[Path], wanted: Wanted) -> Dataset:
    """The records of a folder and its subfolders with the labels of some files, whose rows are "name,label": the first
    of each class, then the second ones, and so on. Later files correct earlier ones.

    Raises UnmaskError for a row of another form, and if none of the records is there.
    """
    by_name = {path.stem: path for path in reversed(SIGNALS.files_in(folder)[0])}
    group = None if wanted.group is None else Pattern(wanted.group, "--group")
    labels: dict[str, tuple[str, str]] = {}
    changed = 0
    for reference in references:
        for number, line in lines(reference):
            cells = next(csv.reader([line]), [])
            if not cells or (number == 1 and cells[0].strip() not in by_name and cells[0].lower() in SIGNALS.columns):
                continue
            if len(cells) < 2 or not cells[0].strip() or not cells[1].strip():
                raise UnmaskError(f"{reference}:{number} must be the name of a record, a comma, and its label.")
            name, label = cells[0].strip(), cells[1].strip()
            changed += labels.get(name, (label, ""))[0] != label
            labels[name] = label, f"{reference}:{number}"
    lost = [name for name in labels if name not in by_name]
    if len(lost) == len(labels):
        raise UnmaskError(f"{folder} has none of the records that {references[0].name} names, such as {lost[:1]}.")
    rows = []
    for name in labels.keys() - set(lost):
        label, place = labels[name]
        own = "" if group is None else group(name, place)
        row = SignalRow(label=label, group=own, id=name, place=place, source=by_name[name], own_rate=wanted.rate)
        rows.append(row)
    unlabelled = sorted(by_name.keys() - labels.keys())
    notes = [
        f"{said} ({listed(names, SHOWN)})"
        for said, names in (
            (f"{plural(len(lost), 'label')} of a record without a file", sorted(lost)),
            (f"{plural(len(unlabelled), 'record')} without a label, left out", unlabelled),
        )
        if names
    ]
    if changed:
        notes.append(f"{plural(changed, 'label')} corrected by a later file of labels")
    columns = {"record": "files", "label": ", ".join(one.name for one in references)}
    return Dataset(folder, tuple(in_turns(sorted(rows, key=lambda row: row.id))), columns, tuple(notes))


def of_table(path: Path, wanted: Wanted, *, encoding: str | None = None, labelled: bool = True) -> Dataset:
    """The records of a table; see `labelled`. Without a column of patients, the parts of one record have its name as
    their group.

    labelled  False: labels are not read
    """
    table = read_table(path, guess_format(path, encoding=encoding), encoding=encoding)
    record = SIGNALS.column(_names(table.columns), wanted.record, path)
    roles = {}
    if labelled and not is_pattern(wanted.label):
        roles["label"] = column_in(table.columns, wanted.label, SIGNALS.labels, "labels", path, option="--label")
    patients = column_of(table.columns, PATIENTS) if wanted.group is None else wanted.group
    if patients is not None and not is_pattern(patients):
        roles["group"] = column_in(table.columns, patients, (), "patients", path, option="--group")
    asked = {"label": wanted.label if labelled else None, "group": wanted.group}
    find = {role: Pattern(given, f"--{role}") for role, given in asked.items() if given and role not in roles}
    rates = column_of(table.columns, arrays.RATES)
    rows = []
    for number, cells in table.rows:
        place = f"{path}:{number}"
        rate = wanted.rate if rates is None else rate_in(cells, rates, place)
        source = _source(cells, record, path.parent, place, rate)
        begin, end = span_in(cells, place)
        name = str(cells.get(record) if isinstance(source, Path) else cells.get(record + PATH) or "")
        values: dict[str, Any] = {role: value_in(cells, column, place) for role, column in roles.items()}
        values |= {role: pattern(name, place) for role, pattern in find.items()}
        if (begin or end is not None) and name:
            values = {"group": name} | values
        rows.append(SignalRow(**values, id=name, place=place, source=source, begin=begin, end=end, own_rate=rate))
    return Dataset(path, tuple(rows), {"record": record, **roles, **dict.fromkeys(find, "names")})


def check_records_apart(train: Dataset, other: Dataset) -> None:
    """Raises UnmaskError for a record, or a patient, that is in two sets: its score would not measure
    generalisation."""
    groups = {row.group: row for row in train if row.group}
    digests = {row.digest: row for row in train if isinstance(row, SignalRow)}
    for row in other:
        mate = groups.get(row.group)
        if mate is not None:
            raise UnmaskError(
                f"{row.place} and {mate.place} are both of {row.group}, so {other.path} would not measure "
                "generalisation: give each patient, and all parts of a record, to one set."
            )
        if isinstance(row, SignalRow) and (mate := digests.get(row.digest)) is not None:
            raise UnmaskError(
                f"{row.place} has the samples of {mate.place}, so {other.path} would not measure generalisation: give "
                "each record to one set."
            )


def windows(samples: int, window: int, step: int) -> np.ndarray:
    """[W, 2] int64: the first sample, and that after the last one, of windows of a record, one after another by `step`.
    The last one ends with the record, so that every sample is read; a record that is shorter than a window is one."""
    if samples <= window:
        return np.array([[0, samples]], np.int64)
    begins = np.arange(0, samples - window + 1, step)
    if begins[-1] + window < samples:
        begins = np.append(begins, samples - window)
    return np.stack([begins, begins + window], 1)


def _names(names: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """The names of columns, without the parts that the hub adds."""
    whole = {name.removesuffix(BYTES).removesuffix(PATH): None for name in names}
    return list(whole | dict.fromkeys(names))


def _source(cells: Mapping[str, Any], column: str, folder: Path, place: str, rate: float | None) -> Source:
    """The record of a row: a file, with its suffix, or numbers. Raises UnmaskError for a row without one."""
    value = cells.get(column)
    if isinstance(value, list | np.ndarray):
        return of_numbers(value, rate, place)
    source = SIGNALS.source_in(cells, column, folder, place)
    return source if isinstance(source, bytes) else with_suffix(source)


def of_numbers(values: Any, rate: float | None, place: str) -> Signal:
    """A record from a list of numbers [N], or of lists [N, L] or [L, N]. Raises UnmaskError, which begins with `place`,
    for other values, and without a rate."""
    try:
        array = np.array(values, np.float32)
    except (TypeError, ValueError):
        raise UnmaskError(f"{place}: a record must be a list of numbers, or of equally long lists of them.") from None
    found = arrays.of_arrays({"": array}, place)
    if rate is None:
        raise UnmaskError(f"{place} does not say its samples a second: give --rate.")
    return Signal(found.samples, rate, found.leads, ("",) * len(found.leads))

"""Records with labels along them: the beats of WFDB annotations, or the labelled intervals of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unmask.data.files.cells import Pattern
from unmask.data.files.items import SHOWN, visible
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import listed
from unmask.data.signals import wfdb
from unmask.data.signals.decoding import has_annotations, header
from unmask.data.signals.reading import SIGNALS, SignalRow, Wanted, is_record, of_table
from unmask.errors import UnmaskError, plural


def tagged(path: Path, wanted: Wanted, *, encoding: str | None = None) -> Dataset:
    """A row for each record, with `marks` and `tags`.

    In a folder, or for a single record, the marks are the beats that are annotated beside the WFDB records, and the
    tags are their classes (`wfdb.BEATS`). A table without a begin and an end lists such records. A table with them has
    a labelled interval in each row.

    Raises UnmaskError for annotations that are damaged, if no record has any, and for intervals that overlap.
    """
    if path.is_dir():
        find = None if wanted.group is None else Pattern(wanted.group, "--group")
        files, _ = SIGNALS.files_in(path)
        names = {file: file.relative_to(path).as_posix() for file in files}
        groups = {file: "" if find is None else find(name, str(file)) for file, name in names.items()}
        rows = [SignalRow(group=groups[file], id=file.stem, place=str(file), source=file) for file in files]
        return _with_beats(Dataset(path, tuple(rows), {"record": "files"}))
    if is_record(path):
        return _with_beats(Dataset(path, (SignalRow(id=path.stem, place=str(path), source=path),), {"record": "file"}))
    records = of_table(path, wanted, encoding=encoding, labelled=False)
    if not any(isinstance(row, SignalRow) and (row.begin or row.end is not None) for row in records):
        return _with_beats(records)
    return _with_intervals(of_table(path, wanted, encoding=encoding))


def _with_beats(records: Dataset) -> Dataset:
    """The records that have annotated beats; notes name the others."""
    found, plain, empty = [], [], []
    for row in records:
        assert isinstance(row, SignalRow)
        if not has_annotations(row.source):
            plain.append(visible(row.id or row.place))
            continue
        rate = header(row.source, name=row.name).rate
        beats = row.annotations(rate).only(wfdb.BEATS)
        if not len(beats):
            empty.append(visible(row.id or row.place))
            continue
        times = (beats.samples / rate).tolist()
        found.append(replace(row, label="", marks=tuple((time, time) for time in times), tags=beats.symbols))
    if not found:
        raise UnmaskError(
            f"{records.path} has no annotated beats: give WFDB records with a file .atr beside each header, or a table "
            "with the begin, the end and the label of intervals."
        )
    notes = [
        f"{plural(len(names), 'record')} without {lacking}, left out ({listed(names, SHOWN)})"
        for names, lacking in ((plain, "annotations"), (empty, "annotated beats"))
        if names
    ]
    beats_in = f"{sum(len(row.tags) for row in found):,} beats"
    columns = {**{role: name for role, name in records.columns.items() if role != "label"}, "tags": beats_in}
    return replace(records, rows=tuple(found), columns=columns, notes=(*records.notes, *notes))


def _with_intervals(parts: Dataset) -> Dataset:
    """The rows of each record as one row, whose marks are their intervals."""
    of_record: dict[str, list[SignalRow]] = {}
    for row in parts:
        assert isinstance(row, SignalRow)
        of_record.setdefault(row.id or row.place, []).append(row)
    return replace(parts, rows=tuple(_joined(rows) for rows in of_record.values()))


def _joined(rows: Sequence[SignalRow]) -> SignalRow:
    first, ordered = rows[0], sorted(rows, key=lambda row: row.begin)
    seconds = header(first.source, own_rate=first.own_rate, name=first.name).seconds
    marks = [(row.begin, seconds if row.end is None else min(row.end, seconds)) for row in ordered]
    for i, row in enumerate(ordered):
        if marks[i][0] >= seconds:
            raise UnmaskError(f"{row.place}: the part begins at {row.begin:g} s, but the record has {seconds:.3f} s.")
        if i and marks[i][0] < marks[i - 1][1]:
            raise UnmaskError(f"{row.place} overlaps {ordered[i - 1].place}: a moment of a record has one label.")
    tags = tuple(row.label for row in ordered)
    return replace(first, label="", begin=0.0, end=None, marks=tuple(marks), tags=tags)

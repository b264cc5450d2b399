"""Labelled records: folders, REFERENCE.csv, tables, patients, and windows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.dataset import Dataset, hold_out_groups
from unmask.data.signals import wfdb
from unmask.data.signals.reading import (
    SignalRow,
    Wanted,
    are_signals,
    check_records_apart,
    is_record,
    labelled,
    of_numbers,
    windows,
)
from unmask.data.signals.signal import Annotations, Signal
from unmask.errors import UnmaskError


def record(path: Path, seed: int = 0, seconds: float = 2.0, rate: float = 100.0) -> Path:
    """Write a record of random numbers with a beat at 0.5 s and one at 1.5 s."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(seed).normal(size=(round(seconds * rate), 1)).astype(np.float32)
    beats = Annotations((np.array([0.5, 1.5]) * rate).astype(np.int64), ("N", "V"), ("", ""))
    wfdb.write(path, Signal(samples, rate, ("II",), ("mV",)), beats)
    return path


def test_a_folder_with_a_subfolder_for_each_class(tmp_path: Path) -> None:
    for number, name in enumerate(("af/a1", "af/a2", "normal/b1", "normal/b2", "normal/b3")):
        record(tmp_path / f"{name}.hea", number)
    (tmp_path / "af" / "about.txt").write_text("x")
    assert are_signals(tmp_path)
    found = labelled(tmp_path)
    assert [(row.label, row.id) for row in found] == [
        ("af", "a1"),
        ("normal", "b1"),
        ("af", "a2"),
        ("normal", "b2"),
        ("normal", "b3"),
    ]
    assert found.notes == ("Skipped 1 file that is no records: .txt (1)",)
    assert found[0].count(50) == 100
    assert found[0].signal(50).samples.shape == (100, 1)
    record(tmp_path / "loose.hea")
    with pytest.raises(UnmaskError, match=r"or a REFERENCE.csv, but loose\.hea is in none of them"):
        labelled(tmp_path)
    named = labelled(tmp_path, Wanted(label="([a-z]+)[0-9]?[.]hea", group="([a-z0-9]+)[.]hea"))
    assert {(row.label, row.group) for row in named} >= {("a", "a1"), ("a", "a2"), ("b", "b3"), ("loose", "loose")}
    with pytest.raises(UnmaskError, match="finds nothing in the name"):
        labelled(tmp_path, Wanted(label="^(x+)"))


def test_a_folder_with_labels_as_in_the_challenges(tmp_path: Path) -> None:
    for number, name in enumerate(("A1", "A2", "more/A3", "A4")):
        record(tmp_path / f"{name}.hea", number)
    (tmp_path / "REFERENCE.csv").write_text("A1,N\nA2,N\nA9,N\n")
    (tmp_path / "REFERENCE-v2.csv").write_text("record,label\nA2,A\nA3,~\n")
    (tmp_path / "RECORDS").write_text("A1\nA2\n")
    found = labelled(tmp_path)
    assert {row.id: row.label for row in found} == {"A1": "N", "A2": "A", "A3": "~"}
    assert "1 label corrected by a later file of labels" in found.notes
    assert "1 label of a record without a file (A9)" in found.notes
    assert "1 record without a label, left out (A4)" in found.notes
    alone = labelled(tmp_path / "REFERENCE-v2.csv")
    assert {row.id: row.label for row in alone} == {"A2": "A", "A3": "~"}
    assert are_signals(tmp_path)
    assert are_signals(tmp_path / "REFERENCE.csv")
    (tmp_path / "REFERENCE.csv").write_text("A1\n")
    with pytest.raises(UnmaskError, match=r"REFERENCE\.csv:1 must be the name of a record, a comma, and its label"):
        labelled(tmp_path)
    (tmp_path / "REFERENCE.csv").write_text("B1,N\n")
    with pytest.raises(UnmaskError, match="has none of the records"):
        labelled(tmp_path / "REFERENCE.csv")


def test_a_table_with_patients_and_parts(tmp_path: Path) -> None:
    record(tmp_path / "wave" / "one.hea")
    table = tmp_path / "rows.tsv"
    table.write_text("record\tlabel\tsubject\tbegin\tend\nwave/one\tN\tann\t0\t1\nwave/one.hea\tV\tann\t1\t\n")
    assert are_signals(table)
    first, second = labelled(table)
    assert (first.label, first.group, first.begin, first.end) == ("N", "ann", 0.0, 1.0)
    whole = SignalRow(source=first.source).signal(50).samples
    np.testing.assert_array_equal(np.concatenate([first.signal(50).samples, second.signal(50).samples]), whole)
    assert first.key != second.key
    assert first.digest == second.digest
    marks = second.annotations(50)
    assert (marks.samples.tolist(), marks.symbols) == ([25], ("V",))
    table.write_text("record\tlabel\tbegin\tend\nwave/one\tN\t0\t1\nwave/one\tV\t1\t\n")
    assert [row.group for row in labelled(table)] == ["wave/one", "wave/one"]  # the parts stay together
    table.write_text("record\tlabel\nwave/one\tN\nwave/gone\tV\n")
    rows = labelled(table)
    assert [row.group for row in rows] == ["", ""]
    with pytest.raises(UnmaskError, match=r"There is no file .*gone"):
        rows[1].signal(50)
    table.write_text("record\tlabel\nwave/one\t\n")
    with pytest.raises(UnmaskError, match=r"rows.tsv:2: the column 'label' is empty"):
        labelled(table)
    with pytest.raises(UnmaskError, match="has no column 'nurse'"):
        labelled(table, Wanted(group="nurse"))


def test_a_table_of_numbers(tmp_path: Path) -> None:
    place = tmp_path / "rows.jsonl"
    rows = [{"signal": [1, 2, 3.5], "label": "a", "fs": 10}, {"signal": [[1, 2, 3], [4, 5, 6]], "label": "b", "fs": 20}]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert are_signals(place)
    first, second = labelled(place)
    assert first.signal().samples.tolist() == [[1], [2], [3.5]]
    assert second.signal().samples.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert (first.signal().rate, second.count(20)) == (10.0, 3)
    for rate in (0, None, "x"):
        place.write_text(json.dumps({"signal": [1, 2], "label": "a", "fs": rate}) + "\n")
        with pytest.raises(UnmaskError, match="the column 'fs' must be samples a second"):
            labelled(place)
    place.write_text(json.dumps({"signal": [1, 2], "label": "a"}) + "\n")
    with pytest.raises(UnmaskError, match=r"rows\.jsonl:1 does not say its samples a second: give --rate"):
        labelled(place)
    assert labelled(place, Wanted(rate=5))[0].signal().rate == 5
    for values in ([[1, 2], [3]], ["x"], []):
        with pytest.raises(UnmaskError, match="row 7"):
            of_numbers(values, 5, "row 7")


@pytest.mark.parametrize(
    ("shape", "are"),
    [
        ((500,), True),
        ((500, 12), True),
        ((3, 48), True),
        ((3, 47), False),
        ((28, 28), False),
        ((100, 768), False),
        ((40, 9, 3), False),
    ],
)
def test_a_folder_of_arrays_has_records_if_they_are_long(shape: tuple[int, ...], are: bool, tmp_path: Path) -> None:
    for name in ("up", "down"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "1.npy", np.zeros(shape))
    assert are_signals(tmp_path) == are


def test_what_is_no_record(tmp_path: Path) -> None:
    for name, content in {
        "a.csv": "text,label\nfine,1\n",
        "b.tsv": "path\tlabel\na.png\tcat\n",
        "c.txt": "1 2 3",
    }.items():
        (tmp_path / name).write_text(content)
        assert not are_signals(tmp_path / name)
    assert not are_signals(tmp_path)
    folder = tmp_path / "numbers" / "up"
    folder.mkdir(parents=True)
    (folder / "1.csv").write_text("1,2\n3,4\n")
    assert are_signals(folder.parent)
    assert is_record(folder / "1.csv")
    assert not is_record(tmp_path / "a.csv")
    assert labelled(folder.parent, Wanted(rate=10))[0].signal().samples.tolist() == [[1, 2], [3, 4]]


def test_a_record_or_a_patient_in_two_sets_is_refused(tmp_path: Path) -> None:
    one, two = record(tmp_path / "one.hea", 1), record(tmp_path / "two.hea", 2)
    copy = record(tmp_path / "copy.hea", 1)

    def rows(*given: SignalRow) -> Dataset:
        return Dataset(tmp_path / "rows.tsv", given, {})

    train = rows(SignalRow(source=one, group="ann", place="t:1", end=1.0))
    check_records_apart(train, rows(SignalRow(source=two, group="bob", place="d:1")))
    with pytest.raises(UnmaskError, match="d:1 and t:1 are both of ann"):
        check_records_apart(train, rows(SignalRow(source=two, group="ann", place="d:1")))
    with pytest.raises(UnmaskError, match="d:1 has the samples of t:1"):
        check_records_apart(train, rows(SignalRow(source=copy, place="d:1", begin=1.0)))
    held, rest = hold_out_groups(
        rows(*(SignalRow(group=str(i // 2), place=str(i)) for i in range(8))), 2, np.random.default_rng(0)
    )
    assert len(held) == 2
    assert not {row.group for row in held} & {row.group for row in rest}


@given(st.integers(1, 500), st.integers(1, 60), st.integers(1, 60))
def test_windows_cover_a_record_with_equal_lengths(samples: int, window: int, step: int) -> None:
    step = min(step, window)
    found = windows(samples, window, step)
    covered = np.zeros(samples, bool)
    for first, last in found.tolist():
        assert last - first == min(window, samples)
        covered[first:last] = True
    assert covered.all()
    assert len(found) == max(1, -(-(samples - window) // step) + 1)
    assert (np.diff(found[:, 0]) > 0).all()

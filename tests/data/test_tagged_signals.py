"""Records with labels along them: beats of annotations, intervals of tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unmask.data.signals import synthetic, wfdb
from unmask.data.signals.reading import Wanted
from unmask.data.signals.signal import Annotations, Signal
from unmask.data.signals.tagged import tagged
from unmask.errors import UnmaskError

RATE = 100
MIT = Path(__file__).resolve().parents[3] / "shared" / "data" / "mitbih-sample"


def write(path, symbols, *, step=80):
    """A record whose beat i is at sample (i + 1) * step."""
    count = (len(symbols) + 1) * step
    signal = Signal(np.zeros((count, 1), np.float32), RATE, ("ECG",), ("mV",))
    places = np.arange(1, len(symbols) + 1, dtype=np.int64) * step
    path.parent.mkdir(parents=True, exist_ok=True)
    wfdb.write(path, signal, Annotations(places, tuple(symbols), ("",) * len(symbols)) if symbols else None)


def test_annotations_become_the_five_classes(tmp_path):
    write(tmp_path / "one.hea", "+NLRejaAJSVEF/fQ~|N")
    (row,) = tagged(tmp_path, Wanted())
    assert "".join(row.tags) == "NNNNN" + "SSSS" + "VV" + "F" + "QQQ" + "N"
    places = [i for i, symbol in enumerate("+NLRejaAJSVEF/fQ~|N", 1) if symbol not in "+~|"]
    assert row.marks == tuple((place * 80 / RATE,) * 2 for place in places)
    assert row.label == ""


def test_a_folder_a_record_and_a_table_name_the_same_beats(tmp_path):
    write(tmp_path / "a" / "one.hea", "NNV")
    write(tmp_path / "b" / "two.hea", "SN")
    write(tmp_path / "b" / "none.hea", "")
    write(tmp_path / "b" / "rhythms.hea", "+~")
    whole = tagged(tmp_path, Wanted(group="^(.)/"))
    assert {row.id: (row.group, row.tags) for row in whole} == {"one": ("a", ("N", "N", "V")), "two": ("b", ("S", "N"))}
    assert "1 record without annotations, left out (none)" in whole.description
    assert "1 record without annotated beats, left out (rhythms)" in whole.description
    assert "tags = 5 beats" in whole.description
    assert tagged(tmp_path / "a" / "one.hea", Wanted())[0].marks == whole[0].marks
    (tmp_path / "t.tsv").write_text("path\tlabel\tpatient\na/one.hea\tA\tp1\nb/two\tN\tp2\n")
    table = tagged(tmp_path / "t.tsv", Wanted())
    assert [(row.group, row.tags) for row in table] == [("p1", ("N", "N", "V")), ("p2", ("S", "N"))]
    with pytest.raises(UnmaskError, match="has no annotated beats: give WFDB records"):
        tagged(tmp_path / "b" / "none.hea", Wanted())


@pytest.fixture
def walk(tmp_path):
    np.savetxt(tmp_path / "s.csv", np.zeros((1_000, 2)), delimiter=",")

    def table(*lines):
        path = tmp_path / "t.tsv"
        path.write_text("\n".join(["path\tbegin\tend\tlabel", *lines]) + "\n")
        return tagged(path, Wanted(rate=RATE))

    return table


def test_the_intervals_of_a_record_become_one_row(walk):
    (row,) = walk("s.csv\t4\t7\trun", "s.csv\t0\t2.5\twalk", "s.csv\t7\t\twalk")
    assert row.marks == ((0.0, 2.5), (4.0, 7.0), (7.0, 10.0))
    assert row.tags == ("walk", "run", "walk")
    assert row.signal(RATE).samples.shape == (1_000, 2)


def test_intervals_that_overlap_or_lie_behind_the_end_are_refused(walk):
    with pytest.raises(UnmaskError, match=r"t.tsv:3 overlaps .*t.tsv:2: a moment of a record has one label"):
        walk("s.csv\t0\t5\twalk", "s.csv\t4\t7\trun")
    with pytest.raises(UnmaskError, match=r"t.tsv:2: the part begins at 12 s, but the record has 10.000 s"):
        walk("s.csv\t12\t14\twalk")
    with pytest.raises(UnmaskError, match="no column of labels"):
        tagged(_unlabelled(walk), Wanted(rate=RATE))


def _unlabelled(walk):
    path = walk("s.csv\t0\t5\twalk").path
    path.write_text("path\tbegin\tend\ns.csv\t0\t5\n")
    return path


def test_synthetic_records_have_beats_of_three_classes(tmp_path):
    synthetic.write(tmp_path / "made", rate=RATE, patients=6)
    rows = tagged(tmp_path / "made" / "train.tsv", Wanted())
    assert set(rows.labels) == {"N", "S", "V"}
    assert len({row.group for row in rows}) == 4


@pytest.mark.skipif(not MIT.is_dir(), reason="the record of MIT-BIH is not there")
def test_record_100_has_its_published_beats():
    (row,) = tagged(MIT, Wanted())
    assert {label: row.tags.count(label) for label in set(row.tags)} == {"N": 2_239, "S": 33, "V": 1}

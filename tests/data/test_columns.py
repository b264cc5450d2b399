"""Columns: several labels, rows without labels, damaged rows, and what a description says of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import read
from unmask.errors import UnmaskError


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def json_lines(folder, *rows, name="rows.jsonl"):
    return write(folder, name, "\n".join(map(json.dumps, rows)))


# ------------------------------------------------------------------------------------------------ several labels


def test_cells_with_a_separator_hold_several_labels(tmp_path):
    path = write(tmp_path, "rows.tsv", "text\tlabel\na\tred|round\nb\t\nc\t red | red |\n")
    found = read(path, several="|")
    assert [(row.label, row.labels) for row in found] == [("", ("red", "round")), ("", ()), ("", ("red",))]
    assert (found.several, found.labels, found.histogram()) == (True, ("red", "round"), {"red": 2, "round": 1})
    assert "labels = label" in found.description
    assert not read(write(tmp_path, "one.tsv", "text\tlabel\na\tred|round\n")).several


def test_go_emotions_is_read_as_it_is(tmp_path):
    path = write(tmp_path, "train.tsv", "My favourite food\t27\teebbqej\nWHY THE\t2,14\ted00q6i\n")
    assert [row.labels for row in read(path, text="1", label="2", several=",")] == [("27",), ("2", "14")]


def test_lists_of_labels_in_json(tmp_path):
    rows = [{"text": "a", "labels": ["x", 2]}, {"text": "b", "labels": []}, {"text": "c", "labels": ["x", "x"]}]
    found = read(json_lines(tmp_path, *rows))
    assert [row.labels for row in found] == [("x", "2"), (), ("x",)]
    first_empty = json_lines(tmp_path, rows[1], rows[0], name="empty.jsonl")
    assert [row.labels for row in read(first_empty)] == [(), ("x", "2")]


def test_lists_of_labels_in_parquet(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": []}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert [row.labels for row in read(tmp_path / "rows.parquet")] == [("x", "y"), ()]


TOXIC = "id,comment_text,toxic,obscene,threat\n0001,Explanation,0,0,0\n0002,You!,1,1,0\n"


def test_columns_of_0_and_1_are_a_label_each(tmp_path):
    found = read(write(tmp_path, "train.csv", TOXIC), label="toxic, obscene,threat")
    assert [(row.id, row.text, row.labels) for row in found] == [
        ("0001", "Explanation", ()),
        ("0002", "You!", ("toxic", "obscene")),
    ]
    assert found.notes == ("No row has the label threat.",)
    rows = [{"text": "a", "x": True, "y": 1.0}, {"text": "b", "x": False, "y": 0}]
    assert [row.labels for row in read(json_lines(tmp_path, *rows), label="x,y")] == [("x", "y"), ()]


def test_columns_of_0_and_1_are_proposed_together_as_they_can_be_given(tmp_path):
    path = write(tmp_path, "rows.csv", "text,red,round,maker\na,0,1,x\nb,1,1,y\n")
    with pytest.raises(
        UnmaskError,
        match=r"with --label \(label= in Python\): red, round, maker \(.* for each label: --label red,round\)\.",
    ):
        read(path)
    assert [row.labels for row in read(path, label="red,round")] == [("round",), ("red", "round")]
    with pytest.raises(UnmaskError, match=r"with --label \(label= in Python\): foo\."):
        read(write(tmp_path, "one.csv", "text,foo\na,1\n"))


def test_a_name_with_a_comma_is_one_column_where_there_is_one(tmp_path):
    path = write(tmp_path, "rows.tsv", "text\tgood,bad\na\tx\n")
    assert read(path, label="good,bad")[0].label == "x"


def test_a_separator_that_stands_nowhere_is_doubted(tmp_path):
    found = read(write(tmp_path, "rows.tsv", "text\tlabel\na\tred;round\nb\tred\n"), several="|")
    assert "No row has several labels: no cell of label" in found.description
    assert read(write(tmp_path, "two.tsv", "text\tlabel\na\tred|round\n"), several="|").notes == ()


def test_cells_that_look_like_several_labels_are_doubted_where_one_is_read(tmp_path):
    found = read(write(tmp_path, "rows.tsv", "text\tlabel\na\tred;round\nb\tround\nc\tbig; red\nd\tbig;round\n"))
    assert found.labels == ("big; red", "big;round", "red;round", "round")
    (note,) = found.notes
    assert "such as 'big;round' are read as one label, although 'round' is the label of other rows" in note
    assert "--task multilabel --several ';'" in note
    for text in ("a\tred, or so\nb\tred\n", "a\tred|green\nb\tred\n", "a\tred\nb\tround\n"):
        assert read(write(tmp_path, "rows.tsv", f"text\tlabel\n{text}")).notes == ()


def test_an_empty_cell_without_a_separator_names_the_way_to_read_none(tmp_path):
    with pytest.raises(UnmaskError, match=r"rows.csv:3 has no label: .* is empty; .* --task multilabel, .* --several"):
        read(write(tmp_path, "rows.csv", "text,labels\na,x;y\nb,\n"))


BAD_LABELS = {
    "flag": (
        TOXIC + "3,x,1,2,0\n",
        {"label": "toxic,obscene"},
        r"rows.csv:4: the column obscene must be 0 or 1, not '2'",
    ),
    "empty flag": (
        TOXIC + "3,x,1,,0\n",
        {"label": "toxic,obscene"},
        r":4: the column obscene must be 0 or 1, not empty",
    ),
    "unknown flag": (TOXIC, {"label": "toxic,obscen"}, "did you mean 'obscene'"),
    "separator": ("text,label\na,b\n", {"several": ""}, "at least one character"),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_bad_labels_name_file_row_and_column(tmp_path, case):
    text, options, message = BAD_LABELS[case]
    with pytest.raises(UnmaskError, match=message):
        read(write(tmp_path, "rows.csv", text), **options)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("x", r"rows.jsonl:2: the column labels must be a list of labels, not text"),
        (None, r"rows.jsonl:2: the column labels must be a list of labels, not missing"),
        (["x", {}], r"rows.jsonl:2: label 2 of the column labels must be text or a number, not an object"),
        (["x", None], r"rows.jsonl:2: label 2 of the column labels must be text or a number, not missing"),
    ],
)
def test_bad_lists_of_labels(tmp_path, labels, message):
    path = json_lines(tmp_path, {"text": "a", "labels": ["x"]}, {"text": "b", "labels": labels})
    with pytest.raises(UnmaskError, match=message):
        read(path)


def test_a_missing_cell_is_no_empty_set(tmp_path):
    path = json_lines(tmp_path, {"text": "a", "labels": "x|y"}, {"text": "b"})
    with pytest.raises(UnmaskError, match=r"rows.jsonl:2 has no labels: its column labels is missing"):
        read(path, several="|")


def test_labels_of_a_training_set_bind_the_others(tmp_path):
    train = read(write(tmp_path, "train.tsv", "text\tlabel\na\tx|y\nb\t\n"), several="|")
    dev = read(write(tmp_path, "dev.tsv", "text\tlabel\na\tx|z\n"), several="|")
    assert dataset.classes(train, train) == ("x", "y")
    with pytest.raises(UnmaskError, match=r"dev.tsv:2 has the label 'z'"):
        dataset.classes(train, dev)
    empty = read(write(tmp_path, "empty.tsv", "text\tlabel\na\t\n"), several="|")
    with pytest.raises(UnmaskError, match="has no labels: at least two are needed"):
        dataset.classes(empty)


WORD = st.text(alphabet=st.characters(categories=["L", "N"]), min_size=1)


@given(st.lists(st.lists(WORD, unique=True), min_size=1))
def test_any_labels_survive_a_cell_and_a_list(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    cells = write(folder, "rows.tsv", "text\tlabel\n" + "".join(f"a\t{'|'.join(labels)}\n" for labels in rows))
    assert [list(row.labels) for row in read(cells, several="|")] == rows
    lists = json_lines(folder, *({"text": "a", "label": labels} for labels in rows))
    assert [list(row.labels) for row in read(lists)] == rows


# ------------------------------------------------------------------------------------------------ without labels


def test_rows_to_be_answered_need_no_label(tmp_path):
    path = write(tmp_path, "test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n7\tc\td\n")
    with pytest.raises(UnmaskError, match="no column of labels"):
        read(path)
    found = read(path, labelled=False)
    assert [(row.id, row.text, row.pair, row.label) for row in found] == [("0", "a", "b", ""), ("7", "c", "d", "")]
    assert (found.labels, dict(found.columns)) == ((), {"text": "sentence1", "pair": "sentence2"})


def test_labels_are_not_looked_at_where_none_are_wanted(tmp_path):
    path = write(tmp_path, "rows.tsv", "text\tlabel\na\t1\nb\t\n")
    assert [row.label for row in read(path, labelled=False, label="nowhere")] == ["", ""]


def test_a_single_column_is_the_text(tmp_path):
    path = write(tmp_path, "rows.tsv", "frage\nWo?\nWann?\n")
    assert [row.text for row in read(path, labelled=False)] == ["Wo?", "Wann?"]
    with pytest.raises(UnmaskError, match="no column of texts"):
        read(path)


def test_words_without_tags(tmp_path):
    path = json_lines(tmp_path, {"id": 3, "tokens": ["a", "b"]})
    (row,) = read(path, labelled=False)
    assert (row.words, row.tags, row.id) == (("a", "b"), (), "3")
    with pytest.raises(UnmaskError, match="no list of tags"):
        read(path)


# ------------------------------------------------------------------------------------------------ damaged rows

DAMAGED = "text\tlabel\na\t1\nbroken\nb\t\nc\t0\nd\t0\tx\ne\t1\nf\t1\n"


def test_damaged_rows_are_left_out_and_told(tmp_path):
    path = write(tmp_path, "rows.tsv", DAMAGED)
    with pytest.raises(UnmaskError, match=r"rows.tsv:3 has 1 field,"):
        read(path)
    found = read(path, skip=True)
    assert [(row.text, row.place) for row in found] == [
        ("a", f"{path}:2"),
        ("c", f"{path}:5"),
        ("e", f"{path}:7"),
        ("f", f"{path}:8"),
    ]
    assert found.notes == (
        f"Rows left out with more or fewer fields than the first line: 2 ({path}:3, {path}:6).",
        f"Rows left out without a text or a valid label: 1 ({path}:4).",
    )
    assert found.description.endswith(f"4 rows (text = text, label = label). {'. '.join(n[:-1] for n in found.notes)}")
    assert (found[1:].notes, found.take([0]).notes) == (found.notes, found.notes)


def test_a_file_of_damage_is_of_another_kind(tmp_path):
    path = write(tmp_path, "rows.tsv", "text\tlabel\n" + "x\n" * 3 + "a\t1\n")
    with pytest.raises(UnmaskError, match=r"more damaged rows than valid ones; check its format.*: 3 \("):
        read(path, skip=True)


def test_rows_without_agreement_are_left_out_and_told(tmp_path):
    text = "gold_label\tsentence1\tsentence2\n-\ta\tb\nneutral\tc\td\n-\te\tf\n"
    path = write(tmp_path, "snli.tsv", text)
    found = read(path)
    assert [row.label for row in found] == ["neutral"]
    assert found.notes == (f"Rows left out without agreement on a label: 2 ({path}:2, {path}:4).",)
    assert len(read(path, labelled=False)) == 3
    other = write(tmp_path, "other.tsv", text.replace("gold_label", "label"))
    assert read(other).labels == ("-", "neutral")
    with pytest.raises(UnmaskError, match="agreed on no label"):
        read(write(tmp_path, "none.tsv", "gold_label\tsentence\n-\ta\n"))

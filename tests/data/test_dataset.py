"""Labelled rows: formats, columns by name, CoNLL, and errors that name file and line."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.files import lines, tables
from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset, Row, read
from unmask.errors import UnmaskError


def write(folder, name, text):
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


ROWS = [{"text": "a film, good", "label": 1}, {"text": 'he said "no"', "label": 0}]


def as_parquet(path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("compression", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.tsv", 'text\tlabel\na film, good\t1\nhe said "no"\t0\n'),
        ("rows.csv", 'text,label\n"a film, good",1\n"he said ""no""",0\n'),
        ("semicolons.csv", 'text;label\na film, good;1\n"he said ""no""";0\n'),
        ("rows.jsonl", "\n".join(map(json.dumps, ROWS))),
        ("rows.json", json.dumps(ROWS)),
        ("rows", 'text\tlabel\r\na film, good\t1\r\nhe said "no"\t0\r\n'),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path, name, text, compression):
    found = read(write(tmp_path, name + compression, text))
    assert [(row.text, row.label, row.pair) for row in found] == [
        ("a film, good", "1", None),
        ('he said "no"', "0", None),
    ]


def test_parquet(tmp_path):
    found = read(as_parquet(tmp_path / "rows.parquet"))
    assert [(row.text, row.label) for row in found] == [("a film, good", "1"), ('he said "no"', "0")]
    assert found[1].place.endswith("rows.parquet:2")


def test_a_quote_in_tsv_is_a_character(tmp_path):
    """A `"` that is never closed, as in GLUE, must not swallow the following lines."""
    path = write(tmp_path, "rows.tsv", 'sentence\tlabel\n"open\t1\nnext\t0\nlast"\t1\n')
    assert [row.text for row in read(path)] == ['"open', "next", 'last"']


def test_texts_of_a_tsv_that_stand_in_quotes_are_told_once(tmp_path):
    rows = 'text\tlabel\n"a ""good"" film"\t1\n"a plot"\t0\na film\t1\n'
    found = read(write(tmp_path, "rows.tsv", rows))
    assert found[1].text == '"a plot"'
    assert len(found.notes) == 1
    assert found.notes[0].startswith('Most cells of text are in quotes (")')
    assert found.notes[0].endswith("save the table as CSV.")
    assert read(write(tmp_path, "rows.csv", rows.replace("\t", ","))).notes == ()
    for plain in ('text\tlabel\n"a ""good"" film"\t1\na plot\t0\n', 'text\tlabel\n"a film"\t1\n"a plot"\t0\n'):
        assert read(write(tmp_path, "rows.tsv", plain)).notes == ()


def test_csv_rows_are_named_by_the_line_they_begin_on(tmp_path):
    path = write(tmp_path, "rows.csv", 'text,label\n"two\nlines",1\nthree,0\n')
    assert [row.place.rpartition(":")[2] for row in read(path)] == ["2", "4"]


@pytest.mark.parametrize(
    ("head", "picked"),
    [
        ("sentence1\tsentence2\tlabel", ("sentence1", "sentence2", "label")),
        ("index\tpremise\thypothesis\tgold_label", ("premise", "hypothesis", "gold_label")),
        ("question\tsentence\tlabel", ("question", "sentence", "label")),
        ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", ("#1 String", "#2 String", "Quality")),
        ("is_duplicate\tquestion1\tquestion2", ("question1", "question2", "is_duplicate")),
        ("id\tdocument\tlabel", ("document", None, "label")),
        ("Review\tSentiment", ("Review", None, "Sentiment")),
        ("score\tsentence1\tsentence2", ("sentence1", "sentence2", "score")),
    ],
)
def test_usual_columns_are_found_and_stated(tmp_path, head, picked):
    n = head.count("\t") + 1
    found = read(write(tmp_path, "rows.tsv", f"{head}\n" + "\t".join(map(str, range(n))) + "\n"))
    assert (found.columns["text"], found.columns.get("pair"), found.columns["label"]) == picked
    for name in filter(None, picked):
        assert f"= {name}" in found.description
    values = head.split("\t")
    assert (found[0].text, found[0].label) == (str(values.index(picked[0])), str(values.index(picked[2])))


def test_columns_by_name_win_and_numbers_mean_no_header(tmp_path):
    path = write(tmp_path, "rows.tsv", "sentence1\tsentence2\tlabel\tother\na\tb\t1\tx\n")
    found = read(path, text="sentence2", label="other")
    assert (found[0].text, found[0].pair, found[0].label) == ("b", None, "x")
    cola = write(tmp_path, "cola.tsv", "gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tHe the.\n")
    assert [(row.text, row.label) for row in read(cola, text="4", label="2")] == [
        ("The sailors rode.", "1"),
        ("He the.", "0"),
    ]


def test_nested_json_has_dotted_columns_and_whole_numbers_are_one_label(tmp_path):
    rows = [{"text": "a", "labels": {"x": 1.0}}, {"text": "b", "labels": {"x": 1}}, {"text": "c", "labels": {"x": 0.5}}]
    found = read(write(tmp_path, "rows.json", json.dumps(rows)), label="labels.x")
    assert [row.label for row in found] == ["1", "1", "0.5"]
    assert dataset.scores(found) == [1.0, 1.0, 0.5]


def test_utf16_and_bom(tmp_path):
    text = "text\tlabel\n영화\t1\n"
    for name, data in (("a.tsv", text.encode("utf-16")), ("b.tsv", text.encode("utf-8-sig"))):
        assert read(write(tmp_path, name, data))[0].text == "영화"


def test_conll_columns(tmp_path):
    text = "-DOCSTART- -X- O\n\nEU NNP I-ORG\nrejects VBZ O\n\n\nPeter NNP I-PER\n"
    found = read(write(tmp_path, "eng.train", text))
    assert [row.words for row in found] == [("EU", "rejects"), ("Peter",)]
    assert [row.tags for row in found] == [("I-ORG", "O"), ("I-PER",)]
    assert [row.place.rpartition(":")[2] for row in found] == ["3", "7"]
    assert found.labels == ("O", "I-ORG", "I-PER")
    assert read(write(tmp_path, "x.conll", text), label="2")[0].tags == ("NNP", "VBZ")


def test_conll_with_tabs_keeps_blanks_and_hashes_as_words(tmp_path):
    text = "## Korean\tcomment\n# id\nA\tB-X\n \tO\n#tag\tO\n#\tO\n\nB\tO\n"
    found = read(write(tmp_path, "ner.tsv", text), format="conll")
    assert found[0].words == ("A", " ", "#tag", "#")
    spaced = read(write(tmp_path, "ner.conll", "# NN O\nx NN O\n"))
    assert spaced[0].words == ("#", "x")


def test_conllu(tmp_path):
    def line(number, form, tag):
        return "\t".join([number, form, "_", tag, *["_"] * 6])

    text = "# sent_id = 1\n" + "\n".join(
        [line("1-2", "vámonos", "_"), line("1", "vamos", "VERB"), line("2", "nos", "PRON")]
    )
    found = read(write(tmp_path, "es.conllu.gz", text + "\n\n"))
    assert (found[0].words, found[0].tags) == (("vamos", "nos"), ("VERB", "PRON"))


def test_tagged_sentences_as_lists(tmp_path):
    rows = [{"id": 0, "tokens": ["a", "b"], "ner_tags": [0, 3]}]
    found = read(write(tmp_path, "rows.jsonl", json.dumps(rows[0])))
    assert (found.tagged, found[0].words, found[0].tags) == (True, ("a", "b"), ("0", "3"))


BAD = {
    "missing": (None, {}, "no file"),
    "empty": ("rows.tsv", {}, "is empty"),
    "blank": ("rows.tsv", {}, "is empty"),
    "header only": ("rows.tsv", {}, "no rows"),
    "unknown column": ("rows.tsv", {"label": "lable"}, "did you mean 'label'"),
    "no label": ("rows.tsv", {}, "no column of labels"),
    "no text": ("rows.tsv", {}, "no column of texts"),
    "ragged": ("rows.tsv", {}, r"rows.tsv:3 has 1 field, but the first line has 2; TSV is read without quoting"),
    "ragged csv": ("rows.csv", {}, r"rows.csv:3 has 3 fields, but the first line has 2; quote fields"),
    "empty label": ("rows.tsv", {}, r"rows.tsv:3 has no label: .* empty"),
    "twice": ("rows.tsv", {}, "two columns called 'label'"),
    "pair alone": ("rows.tsv", {"pair": "label"}, "give the column of the first"),
    "bad json": ("rows.jsonl", {}, r"rows.jsonl:2 is not valid JSON"),
    "json list": ("rows.jsonl", {}, r"rows.jsonl:1 must be a JSON object"),
    "json lacks label": ("rows.jsonl", {}, r"rows.jsonl:2 has no label: .* missing"),
    "text is a number": ("rows.jsonl", {}, r"rows.jsonl:1: the column text must be text, not a number"),
    "words and tags": ("rows.jsonl", {}, r"rows.jsonl:1 has 2 words but 1 tag\."),
    "no tags": ("rows.jsonl", {}, "no list of tags"),
    "conll ragged": ("rows.conll", {}, r"rows.conll:2 has 3 columns"),
    "conll one column": ("rows.conll", {}, "only one column"),
    "conll column": ("rows.conll", {"label": "5"}, "no column 5"),
    "conll name": ("rows.conll", {"label": "tag"}, "give a number"),
    "conll no sentence": ("rows.conll", {}, "no sentences"),
    "conll is a table": ("rows.conll", {}, "it is a table"),
    "open quote": ("rows.csv", {}, r"rows.csv:2 is not valid CSV"),
    "not text": ("rows.tsv", {}, r"rows.tsv:2 is not UTF-8"),
    "unclear": ("rows.xyz", {}, "no recognisable columns"),
    "unknown format": ("rows.tsv", {"format": "tvs"}, "did you mean 'tsv'"),
    "not gzip": ("rows.tsv.gz", {}, "damaged or cut short"),
    "not parquet": ("rows.parquet", {}, "damaged or not Parquet"),
}
CONTENT = {
    "blank": "\n \n",
    "header only": "text\tlabel\n",
    "unknown column": "text\tlabel\na\t1\n",
    "no label": "text\tfoo\na\t1\n",
    "no text": "foo\tlabel\na\t1\n",
    "ragged": "text\tlabel\na\t1\nb\n",
    "ragged csv": "text,label\na,1\nb,c,1\n",
    "empty label": "text\tlabel\na\t1\nb\t\n",
    "twice": "text\tlabel\tlabel\na\t1\t1\n",
    "pair alone": "text\tlabel\na\t1\n",
    "bad json": '{"text": "a", "label": 1}\n{"text": \n',
    "json list": "[1]\n",
    "json lacks label": '{"text": "a", "label": 1}\n{"text": "b"}\n',
    "text is a number": '{"text": 3, "label": 1}\n',
    "words and tags": '{"words": ["a", "b"], "tags": ["O"]}\n',
    "no tags": '{"words": ["a", "b"], "foo": 1}\n',
    "conll ragged": "a O\nb x O\n",
    "conll one column": "a\nb\n\nc\n",
    "conll column": "a O\n",
    "conll name": "a O\n",
    "conll no sentence": "-DOCSTART-\n",
    "conll is a table": "sentence\tlabel\na film\t1\n",
    "open quote": 'text,label\n"a,1\n',
    "not text": b"text\tlabel\n\xff\xfe\xfa\t1\n",
    "unclear": "one line\nanother\n",
    "unknown format": "text\tlabel\na\t1\n",
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(tmp_path, case):
    name, columns, message = BAD[case]
    if name == "rows.parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / (name or "nowhere.tsv")
    if name is not None:
        content = CONTENT.get(case, "" if case == "empty" else "nonsense")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UnmaskError, match=message) as error:
        read(path, **columns)
    assert "\n" not in str(error.value)


def make(labels, texts=None):
    rows = tuple(
        Row(t, None, label, place=f"x:{i}") for i, (label, t) in enumerate(zip(labels, texts or labels, strict=True))
    )
    return Dataset("x", rows, {"text": "text", "label": "label"})


def test_labels_are_ordered_as_numbers_or_text():
    assert make(["10", "9", "10"]).labels == ("9", "10")
    assert make(["b", "a", "10"]).labels == ("10", "a", "b")
    assert make(["10", "9", "10"]).histogram() == {"10": 2, "9": 1}


def test_label_checks():
    assert dataset.classes(make("ab"), make("b")) == ("a", "b")
    with pytest.raises(UnmaskError, match="single label, 'a'"):
        dataset.classes(make("aa"))
    with pytest.raises(UnmaskError, match="x:1 has the label 'c'"):
        dataset.classes(make("ab"), make("ac"))
    for wrong in ("nan", "inf", "x"):
        with pytest.raises(UnmaskError, match="x:1: the score"):
            dataset.scores(make(["1", wrong]))


def test_overlap_ignores_capitals_and_spaces_and_is_refused_where_it_is_large():
    train = make("ab" * 50, [f"Text  {i}" for i in range(100)])
    dev = make("ab" * 10, [f"text {i}" for i in range(99, 119)])
    assert [row.text for row in dataset.overlap(train, dev)] == ["text 99"]
    assert len(dataset.check_apart(train, dev)) == 1
    with pytest.raises(UnmaskError, match="shares 3 of its 20 rows"):
        dataset.check_apart(train, make("ab" * 10, [f"text {i}" for i in range(97, 117)]))
    paired = Dataset("x", (Row("text 1", "b", "a"),), {})
    assert dataset.overlap(train, paired) == []


def test_slices_and_take():
    rows = make("abc")
    assert rows[1:].labels == ("b", "c")
    assert [row.label for row in rows.take([2, 0])] == ["c", "a"]


def held_out(labels, count, seed=0):
    rows = make(labels, [str(i) for i in range(len(labels))])
    dev, train = dataset.hold_out(rows, count, np.random.default_rng(seed), stratified=True)
    assert sorted(int(row.text) for part in (dev, train) for row in part) == list(range(len(labels)))
    return dev


def test_each_class_gives_its_share_of_the_rows_held_out():
    labels = ["a"] * 35 + ["b"] * 24 + ["c"]
    draws = [held_out(labels, 6, seed) for seed in range(20)]
    assert all(dev.histogram() == {"a": 4, "b": 2} for dev in draws)
    assert held_out(labels, 6, 3) == draws[3]
    assert len({tuple(row.text for row in dev) for dev in draws}) > 10
    assert held_out("aab" * 10 + "c" * 30, 6).histogram() == {"c": 3, "a": 2, "b": 1}


def test_the_last_row_of_a_class_is_held_out_only_where_there_is_no_other():
    assert held_out([*"bcdefghij", "a", "a"], 1).labels == ("a",)
    assert sorted(held_out([*"bcdefghij", "a", "a"], 2).histogram().values()) == [1, 1]
    assert len(held_out("abcdefghij", 1)) == 1


@given(
    st.lists(
        st.tuples(
            st.text(alphabet=st.characters(exclude_characters="\t\n\r\ufeff", exclude_categories=["Cs"])), st.integers()
        ),
        min_size=1,
    )
)
def test_any_text_survives_tsv(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "rows.tsv"
    path.write_bytes(("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)).encode())
    assert [(row.text, row.label) for row in read(path)] == [(text, str(label)) for text, label in rows]


def test_formats_by_name():
    from pathlib import Path

    assert tables.guess_format(Path("a.TSV.GZ")) == "tsv"
    assert tables.guess_format(Path("a.conllu.zst")) == "conll"


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("EU B-ORG\nrejects O\n\nPeter B-PER\n", "conll"),
        ("-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\n", "conll"),
        ("# sent_id = 1 of many words\n1\tEU\t_\n2\trejects it\t_\n\n", "conll"),
        ("text\tlabel\na film\t1\n", "tsv"),
        ('text,label\n"a film, good",1\n"b, c, d",0\n"a ""quoted"", one",1\n', "csv"),
        ("text,label\na film,1\nno film,0\n", "csv"),
        ('{"text": "a"}\n\n{"text": "b"}\n', "jsonl"),
        ("A film, good.\n\nBetter than the last one, and longer, too.\n\nNo.\n", None),
        ("A short film.\n\nA long film.\n\nNo.\n", None),
        ("A film.\nBetter than the last one, and longer.\nNo.\n", None),
        ("one\nword\n\na\nline\n", None),
        ("It was, as they say, a film.\nIt was not.\nWas it?\n", None),
    ],
)
def test_formats_by_the_first_lines(tmp_path, text, format):
    path = write(tmp_path, "rows.txt", text)
    assert tables.guess_format(path, otherwise="plain text") == (format or "plain text")
    if format is None:
        with pytest.raises(UnmaskError, match=r"has no recognisable columns: .* text and label"):
            read(path)


def test_names_of_formats_do_not_depend_on_capitals(tmp_path):
    assert read(write(tmp_path, "ROWS.TSV.gz", "text\tlabel\na\t1\n").rename(tmp_path / "ROWS.TSV.GZ"))[0].text == "a"


def test_labelled_rows_are_never_repaired(tmp_path):
    wide = write(tmp_path, "wide.tsv", "\ufefftext\tlabel\na\t1\n".encode("utf-16-le") + b"\x00\xd8")
    with pytest.raises(UnmaskError, match="is not utf-16 text"):
        read(wide)
    assert read(write(tmp_path, "nul.tsv", "text\tlabel\na\0b\t1\n"))[0].text == "a\0b"
    with pytest.raises(UnmaskError, match=r"quoted.csv:2 is not valid CSV"):
        read(write(tmp_path, "quoted.csv", 'text,label\n"a"b,1\n'))


def test_a_json_array_may_stand_on_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 100)
    monkeypatch.setattr(tables, "LONGEST_JSON", 1000)
    found = read(write(tmp_path, "rows.json", json.dumps(ROWS * 10)))
    assert (len(found), found[19].place.rpartition(":")[2]) == (20, "20")
    with pytest.raises(UnmaskError, match=r"rows.json:1 is longer than 1,000 characters"):
        read(write(tmp_path, "rows.json", json.dumps(ROWS * 20)))


def test_lone_carriage_returns_in_tsv(tmp_path):
    assert read(write(tmp_path, "rows.tsv", "text\tlabel\na\rb\t1\n"))[0].text == "a\rb"
    with pytest.raises(UnmaskError, match="CR only"):
        read(write(tmp_path, "mac.tsv", "text\tlabel\ra\t1\r"))

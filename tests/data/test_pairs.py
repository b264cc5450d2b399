"""Pairs and triplets: which kind a file has, triplets from labelled pairs, and errors that name row and column."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled import pairs
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row, Triplet
from unmask.errors import UnmaskError


def write(folder, text, name="rows.tsv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def table(folder, head, *rows):
    return write(folder, "\n".join("\t".join(row.split("|")) for row in (head, *rows)) + "\n")


@pytest.mark.parametrize(
    ("head", "row", "picked"),
    [
        ("sentence1|sentence2|score", "a|b|4.5", ("sentence1", "sentence2", "score")),
        ("genre|filename|year|id|score|sentence1|sentence2", "g|f|2012|1|4.5|a|b", ("sentence1", "sentence2", "score")),
        (
            "pair_ID|sentence_A|sentence_B|relatedness_score|entailment_judgment",
            "1|a|b|4.5|NEUTRAL",
            ("sentence_A", "sentence_B", "relatedness_score"),
        ),
    ],
)
def test_scores(tmp_path, head, row, picked):
    found = pairs.read(table(tmp_path, head, row))
    assert [(row.text, row.pair, row.label) for row in found] == [("a", "b", "4.5")]
    assert found.columns == {"kind": pairs.SCORED, **dict(zip(("text", "pair", "label"), picked, strict=True))}
    assert "kind = pairs with scores" in found.description


def test_nested_scores(tmp_path):
    row = {"sentence1": "a", "sentence2": "b", "labels": {"label": 3.7, "real-label": 3.71, "binary-label": 1}}
    found = pairs.read(write(tmp_path, json.dumps([row]), "klue.json"))
    assert (found[0].label, found.columns["kind"]) == ("3.7", pairs.SCORED)


@pytest.mark.parametrize("head", ["question|passage", "Question|Sentence", "query|document", "anchor|positive"])
def test_pairs_that_belong_together(tmp_path, head):
    found = pairs.read(table(tmp_path, f"id|{head}|url", "7|a|b|x", "8|c|d|y"))
    assert [(row.id, row.text, row.pair, row.label) for row in found] == [("7", "a", "b", ""), ("8", "c", "d", "")]
    text, pair = head.split("|")
    assert found.columns == {"kind": pairs.POSITIVES, "text": text, "pair": pair}
    assert found.notes == ("Columns that are not used: url.",)


@pytest.mark.parametrize("head", ["anchor|positive|negative", "query|positive|negative", "sent0|sent1|hard_neg"])
def test_triplets_of_a_file(tmp_path, head):
    found = pairs.read(table(tmp_path, head, "a|b|c"))
    assert isinstance(found[0], Triplet)
    assert (found[0].text, found[0].pair, found[0].negative) == ("a", "b", "c")
    assert found.columns["kind"] == pairs.TRIPLETS


def test_columns_by_name_or_number(tmp_path):
    path = table(tmp_path, "x|y|z|score", "a|b|c|3")
    found = pairs.read(path, text="y", pair="x", negative="z")
    assert (found[0].text, found[0].pair, found[0].negative) == ("b", "a", "c")
    assert pairs.read(path, text="y", pair="z").columns["label"] == "score"
    bare = pairs.read(table(tmp_path, "a|b|4", "c|d|5"), text="1", pair="2", label="3")
    assert [(row.text, row.pair, row.label) for row in bare] == [("a", "b", "4"), ("c", "d", "5")]
    anchored = table(tmp_path, "anchor|positive|negative|score", "a|b|c|1")
    assert pairs.read(anchored, label="score").columns["kind"] == pairs.SCORED


def test_empty_texts_are_left_out_and_counted(tmp_path):
    path = table(tmp_path, "question|passage", "a|b", " |c", "d|", "e|f")
    found = pairs.read(path)
    assert [row.text for row in found] == ["a", "e"]
    assert found.notes == (f"Rows left out with an empty text: 2 ({path}:3, {path}:4).",)
    negative = pairs.read(table(tmp_path, "anchor|positive|negative", "a|b| ", "a|b|c"))
    assert len(negative) == 1


@pytest.mark.parametrize("head", ["question|passage", "sentence1|sentence2|score", "anchor|positive|negative"])
def test_damaged_rows_are_left_out_where_asked(tmp_path, head):
    names = head.split("|")
    whole = dict.fromkeys(names, "1")
    lines = "\n".join(map(json.dumps, [whole, {**whole, names[1]: None}, whole]))
    path = write(tmp_path, lines, "rows.jsonl")
    with pytest.raises(UnmaskError, match=rf"rows.jsonl:2: the column {names[1]} must be text, not missing"):
        pairs.read(path)
    found = pairs.read(path, skip=True)
    assert len(found) == 2
    assert found.notes[0].startswith("Rows left out without a text")
    assert f"1 ({path}:2)." in found.notes[0]
    cells = ["1"] * len(names)
    ragged = table(tmp_path, head, "1", "|".join(cells), "|".join([*cells, "1"]), "|".join(cells))
    found = pairs.read(ragged, skip=True)
    assert len(found) == 2
    assert found.notes == (f"Rows left out with more or fewer fields than the first line: 2 ({ragged}:2, {ragged}:4).",)


def test_labels(tmp_path):
    path = table(tmp_path, "gold_label|sentence1|sentence2", "neutral|a|b", "-|a|c", "entailment|a|d")
    found = pairs.read(path)
    assert [row.label for row in found] == ["neutral", "entailment"]
    assert found.columns["kind"] == pairs.LABELLED
    assert found.notes == (f"Rows left out without agreement on a label: 1 ({path}:3).",)


def test_numbers_of_labels_need_names(tmp_path):
    rows = [{"premise": "a", "hypothesis": "b", "label": n} for n in (0, 2, -1)]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "snli.jsonl")
    with pytest.raises(UnmaskError, match="numbers without a known meaning"):
        pairs.read(path)
    found = pairs.read(path, names=("entailment", "neutral", "contradiction"))
    assert [row.label for row in found] == ["entailment", "contradiction"]
    assert (found.columns["kind"], len(found.notes)) == (pairs.LABELLED, 1)
    with pytest.raises(UnmaskError, match=r"snli.jsonl:2 has the label '2', but only 0 to 1 have names"):
        pairs.read(path, names=("no", "yes"))


# ------------------------------------------------------------------------------------------------ triplets


def labelled(*rows):
    made = tuple(Row(text, pair, label, place=f"x:{i}") for i, (text, pair, label) in enumerate(rows, 1))
    return Dataset(Path("x"), made, {"kind": pairs.LABELLED, "text": "p", "pair": "h", "label": "l"})


def test_triplets_join_entailed_with_contradicted_texts():
    found = pairs.triplets(
        labelled(
            ("p", "yes", "entailment"),
            ("p", "no", "contradiction"),
            ("q", "alone", "entailment"),
            (" p ", "also", "ENTAILMENT"),
            ("p", "maybe", "neutral"),
            ("p", "still", "Entailment"),
            ("p", "yes", "entailment"),
            ("p", "never", "contradiction"),
            ("r", "against", "contradiction"),
            ("p", "both", "contradiction"),
            ("p", "both", "entailment"),
        )
    )
    assert [(row.text, row.pair, row.negative, row.place) for row in found] == [
        ("p", "yes", "no", "x:1"),
        (" p ", "also", "never", "x:4"),
        ("p", "still", "no", "x:6"),
    ]
    assert found.columns == {"kind": pairs.TRIPLETS, "text": "p", "pair": "h"}
    assert found.notes == (
        "Rows without a partner, which are in no triplet: 2 contradiction, 3 entailment, 1 neutral.",
    )


LABELS = st.sampled_from(["entailment", "neutral", "contradiction"])


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from("abcdef"), LABELS), max_size=30))
def test_triplets_are_those_of_their_premise(rows):
    """Beside a plain enumeration: which texts a premise entails and contradicts."""
    of = {
        label: {(text, pair) for text, pair, given in rows if given == label}
        for label in ("entailment", "contradiction")
    }
    entailed, contradicted = of["entailment"] - of["contradiction"], of["contradiction"] - of["entailment"]
    wanted = {(text, pair) for text, pair in entailed if any(text == premise for premise, _ in contradicted)}
    if not wanted:
        with pytest.raises(UnmaskError, match="no text with both"):
            pairs.triplets(labelled(*rows))
        return
    found = pairs.triplets(labelled(*rows))
    assert {(row.text, row.pair) for row in found} == wanted
    assert len(found) == len(wanted)
    assert all((row.text, row.negative) in contradicted for row in found)
    used = {(row.text, row.negative) for row in found}
    for premise in {text for text, _ in wanted}:  # taken in turn: as many different negatives as there can be
        counts = [sum(text == premise for text, _ in rows) for rows in (wanted, contradicted, used)]
        assert counts[2] == min(counts[0], counts[1])


# ------------------------------------------------------------------------------------------------ errors

BAD = {
    "empty": ("", {}, "it is empty"),
    "no rows": ("question\tpassage\n", {}, "rows.tsv has no rows"),
    "ragged": ("question\tpassage\na\tb\nc\n", {}, "rows.tsv:3 has 1 field,"),
    "unknown names": ("x\ty\na\tb\n", {}, r"no columns of pairs .* with --text and --pair .* x, y"),
    "unknown column": ("question\tpassage\na\tb\n", {"text": "queston", "pair": "passage"}, "did you mean 'question'"),
    "text alone": ("question\tpassage\na\tb\n", {"text": "question"}, r"second text with --pair \(pair= in Python\)"),
    "pair alone": ("question\tpassage\na\tb\n", {"pair": "passage"}, r"first text with --text \(text= in Python\)"),
    "label and negative": (
        "question\tpassage\tx\ty\na\tb\tc\td\n",
        {"negative": "x", "label": "y"},
        "Triplets have no labels",
    ),
    "score and word": (
        "sentence1\tsentence2\tscore\na\tb\t1\nc\td\tx\n",
        {},
        "rows.tsv:3: the score 'x' is not a number",
    ),
    "score and nan": ("sentence1\tsentence2\tscore\na\tb\t1\nc\td\tnan\n", {}, "rows.tsv:3: the score 'nan'"),
    "no score": ("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t\n", {}, "rows.tsv:3 has no label"),
    "all undecided": ("sentence1\tsentence2\tgold_label\na\tb\t-\n", {}, "agreed on no label"),
    "all empty": (
        "question\tpassage\n \tb\n",
        {},
        "more damaged rows than valid ones; .* Rows left out with an empty text: 1",
    ),
    "unknown format": ("question\tpassage\na\tb\n", {"format": "tvs"}, "did you mean 'tsv'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(tmp_path, case):
    text, options, message = BAD[case]
    with pytest.raises(UnmaskError, match=message) as error:
        pairs.read(write(tmp_path, text), **options)
    assert "\n" not in str(error.value)


def test_other_bad_files(tmp_path):
    with pytest.raises(UnmaskError, match="There is no file"):
        pairs.read(tmp_path / "nowhere.tsv")
    with pytest.raises(UnmaskError, match="looks like conll"):
        pairs.read(write(tmp_path, "a O\nb O\n\n", "rows"))
    number = write(tmp_path, '{"anchor": "a", "positive": "b"}\n{"anchor": "a", "positive": 1}\n', "rows.jsonl")
    with pytest.raises(UnmaskError, match=r"rows.jsonl:2: the column positive must be text, not a number"):
        pairs.read(number)


SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.mark.parametrize(
    ("name", "count", "kind"),
    [
        ("stsb/dev.tsv.gz", 1500, pairs.SCORED),
        ("sick/SICK_trial.txt.gz", 500, pairs.SCORED),
        ("korsts/sts-dev.tsv.gz", 1500, pairs.SCORED),
        ("snli/dev.tsv.gz", 1179, pairs.LABELLED),
        ("squad-sentences/train_10k.tsv.gz", 10000, pairs.POSITIVES),
    ],
)
def test_published_files(name, count, kind):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the published file {name} is not at hand")
    found = pairs.read(path)
    assert (len(found), found.columns["kind"]) == (count, kind)

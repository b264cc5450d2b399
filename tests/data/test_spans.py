"""Character spans of annotation tools as tagged words; spans that words cannot tell are listed, never guessed."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled import dataset
from unmask.data.labelled.schemes import spans as spans_of
from unmask.data.labelled.words import split_words
from unmask.errors import UnmaskError

TEXT = "Ada Lovelace met Babbage, in London."
SPANS = [(0, 12, "PER"), (17, 24, "PER"), (29, 35, "LOC")]
WORDS = ("Ada", "Lovelace", "met", "Babbage", ",", "in", "London", ".")
TAGS = ("B-PER", "I-PER", "O", "B-PER", "O", "O", "B-LOC", "O")


@pytest.fixture
def read(tmp_path):
    def write(rows, name="rows.jsonl", **options):
        whole = json.dumps(rows) if name.endswith(".json") else "\n".join(map(json.dumps, rows))
        (tmp_path / name).write_text(whole, encoding="utf-8")
        return dataset.read(tmp_path / name, **options)

    return write


def objects(begin="start", end="end", kind="label"):
    return [{begin: a, end: b, kind: c} for a, b, c in SPANS]


def studio(*annotations):
    """A task as Label Studio exports it; an annotation is a list of spans, or None where it was cancelled."""
    found = []
    for spans in annotations:
        values = [{"start": a, "end": b, "text": TEXT[a:b], "labels": [kind]} for a, b, kind in spans or SPANS[:1]]
        results = [{"type": "labels", "to_name": "text", "value": value} for value in values]
        results.append({"type": "relation", "from_id": "a", "to_id": "b"})
        results.append({"type": "choices", "value": {"choices": ["good"]}})
        found.append({"result": results, "was_cancelled": spans is None})
    return {"id": 1, "data": {"text": TEXT}, "annotations": found}


WRITTEN = {
    "doccano": {"id": 1, "text": TEXT, "label": SPANS},
    "doccano, older": {"id": 1, "text": TEXT, "labels": SPANS, "meta": {"x": 1}},
    "doccano with relations": {
        "text": TEXT,
        "entities": objects("start_offset", "end_offset"),
        "relations": [{"id": 0, "from_id": 1, "to_id": 2}],
    },
    "spaCy": {"text": TEXT, "entities": SPANS},
    "spaCy Doc.to_json": {"text": TEXT, "ents": objects(), "tokens": [{"id": 0, "start": 0, "end": 3}]},
    "Prodigy": {"text": TEXT, "spans": objects(), "tokens": [{"text": "Ada", "start": 0, "end": 3, "id": 0}]},
    "Label Studio": studio(None, SPANS, SPANS[:1]),
    "Label Studio, small": {"text": TEXT, "label": [{**one, "labels": [one.pop("label")]} for one in objects()]},
    "out of order, twice": {"text": TEXT, "spans": [*SPANS[::-1], SPANS[0]]},
    "blanks at the ends": {"text": TEXT, "spans": [(0, 13, "PER"), (16, 24, "PER"), (28, 35, "LOC")]},
}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
@pytest.mark.parametrize("tool", WRITTEN)
def test_every_tool_gives_the_same_words(read, tool, name):
    found = read([WRITTEN[tool]], name)
    assert (found[0].words, found[0].tags, found[0].text) == (WORDS, TAGS, TEXT)
    assert found.tagged
    assert found.notes == ()
    assert found[0].place.endswith(f"{name}:1")


def test_parquet(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist([{"text": TEXT, "spans": objects()}]), tmp_path / "rows.parquet")
    assert dataset.read(tmp_path / "rows.parquet")[0].tags == TAGS


def test_columns_by_name(read):
    row = {"body": TEXT, "marks": SPANS, "entities": [[0, 3, "X"]]}
    found = read([row], text="body", label="marks")
    assert (found[0].tags, found.columns) == (TAGS, {"words": "body", "tags": "marks"})
    with pytest.raises(UnmaskError, match=r"no column of texts .* body, marks, entities"):
        read([row])
    with pytest.raises(UnmaskError, match="did you mean 'body'"):
        read([row], text="bodi")


def test_rows_without_spans_are_outside(read):
    found = read([{"text": "Nothing here.", "label": []}, {"text": TEXT, "label": SPANS}])
    assert found[0].tags == ("O", "O", "O")


def test_lists_of_labels_are_no_spans(read):
    assert read([{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": []}]).columns.get("labels") == "labels"
    assert read([{"words": ["a", "b"], "tags": ["O", "B-X"]}])[0].tags == ("O", "B-X")
    assert not read([{"text": TEXT, "entities": SPANS}], labelled=False).tagged


def test_what_words_cannot_tell_is_left_out_and_listed(read):
    rows = [
        {"text": TEXT, "label": SPANS},
        {"text": TEXT, "label": [[0, 6, "PER"]]},
        {"text": "Ada's", "label": [[0, 3, "PER"]]},
        {"text": TEXT, "label": [[0, 12, "PER"], [4, 12, "NAME"]]},
        {"text": TEXT, "label": [[0, 3, "A"], [0, 3, "B"]]},
        {"text": TEXT, "label": [[12, 13, "PER"]]},
        {"text": TEXT, "label": [[30, 37, "LOC"]]},
        {"text": TEXT, "label": [[3, 3, "LOC"]]},
        {"text": TEXT, "label": [{"start": 4, "end": 12, "text": "Ada", "label": "PER"}]},
        {"text": " ", "label": []},
        {"text": "A ,", "label": [[0, 3, "X"]]},
    ]
    found = read(rows)
    assert [row.place.rpartition(":")[2] for row in found] == ["1", "11"]
    path = found.path
    assert found.notes == (
        f"Rows left out, as a span cuts words: 2 ({path}:2 0-6 'Ada Lo' of 'Lovelace', {path}:3 0-3 'Ada' of "
        '"Ada\'s").',
        f"Rows left out, as two spans share a word: 2 ({path}:4 4-12 'Lovelace', {path}:5 0-3 'Ada').",
        f"Rows left out, as a span covers no word: 1 ({path}:6 12-13 ' ').",
        f"Rows left out, as a span is empty or ends beyond its text: 2 ({path}:7 30-37 of 36 characters, "
        f"{path}:8 3-3 of 36 characters).",
        f"Rows left out, as a span holds another text than is said: 1 ({path}:9 4-12 'Lovelace' for 'Ada').",
        f"Rows left out, as their text has no words: 1 ({path}:10).",
    )
    assert found.rows[1].tags == ("B-X", "I-X")


BAD = {
    "nothing left": ({"text": TEXT, "label": [[0, 6, "PER"]]}, r"No row of .* cuts words: 1 .*:1 0-6 .* Mark whole"),
    "two numbers": (
        {"text": TEXT, "label": [[0, 3, "PER"], [0, 3]]},
        r"rows.jsonl:1, in 'label': a span must .* \[0, 3\]",
    ),
    "no kind": ({"text": TEXT, "label": [[0, 3, " "]]}, r"rows.jsonl:1, in 'label': a span must"),
    "two kinds": ({"text": TEXT, "label": [{"start": 0, "end": 3, "labels": ["A", "B"]}]}, "one kind"),
    "no end": ({"text": TEXT, "spans": [[0, 3, "A"], {"start": 0, "label": "A"}]}, "rows.jsonl:1, in 'spans': a span"),
    "half a number": ({"text": TEXT, "spans": [[0, 3, "A"], [0.5, 3, "A"]]}, "a span must"),
    "true": ({"text": TEXT, "spans": [[0, 3, "A"], [False, True, "A"]]}, "a span must"),
    "a word": ({"text": TEXT, "spans": [[0, 3, "A"], "PER"]}, "a span must .* not 'PER'"),
    "text is a number": ({"text": 3, "spans": SPANS}, "rows.jsonl:1: the column text must be text, not a number"),
    "text is missing": ({"text": None, "spans": SPANS}, "the column text must be text, not missing"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_one_sentence(read, case):
    row, message = BAD[case]
    with pytest.raises(UnmaskError, match=message) as error:
        read([row])
    assert "\n" not in str(error.value)


def test_a_row_must_say_that_it_has_no_spans(read):
    with pytest.raises(
        UnmaskError, match=r"rows.jsonl:2: the column label must be .* not missing; write an empty list"
    ):
        read([{"text": TEXT, "label": SPANS}, {"text": TEXT}])


words = st.lists(st.text("abé한", min_size=1, max_size=4), min_size=1, max_size=12)


@given(words, st.data())
def test_spans_on_whole_words_come_back(tmp_path_factory, given, data):
    """Any choice of stretches of words, written in characters, is what the tags say."""
    text = " ".join(given)
    places = [place for _, place in split_words(text)]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(places)))))
    chosen = [(a, b, data.draw(st.sampled_from("XY"))) for a, b in pairwise(cuts)]
    chosen = [span for span in chosen if data.draw(st.booleans())]
    row = {"text": text, "spans": [[places[a][0], places[b - 1][1], kind] for a, b, kind in chosen]}
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps({"text": TEXT, "spans": SPANS}), encoding="utf-8")
    found = dataset.read(path)
    assert found[0].words == tuple(given)
    assert spans_of(found[0].tags) == chosen

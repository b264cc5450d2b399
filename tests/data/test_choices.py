"""Multiple choice: the layouts of published files, labels of every kind, damaged rows, and errors that name them."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled import choices
from unmask.data.labelled.choice_tables import inline
from unmask.errors import UnmaskError


def write(folder, value, name="rows.jsonl"):
    """A file of this text; of these rows, where it is a list: CSV or JSON lines as the name says."""
    if isinstance(value, list) and ".csv" in name:
        with io.StringIO() as stream:
            csv.writer(stream).writerows(value)
            value = stream.getvalue()
    elif isinstance(value, list):
        value = "\n".join(json.dumps(row) for row in value)
    data = value.encode()
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def seen(found):
    return [(row.text, row.pair, row.choices, row.label, row.id) for row in found]


SWAG = [
    ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source", *(f"ending{i}" for i in range(4))],
    ["0", "lsmdc1", "18313", "A man walks. He", "A man walks.", "He", "gold", "sits, down.", "runs.", "eats.", "is."],
    ["1", "lsmdc1", "18314", "A dog barks. It", "A dog barks.", "It", "gen", "flies.", "sleeps.", "sings.", "reads."],
]  # fmt: skip
LABELLED_SWAG = [[*SWAG[0], "label"], [*SWAG[1], "0"], [*SWAG[2], "1"]]


@pytest.mark.parametrize("name", ["train.csv", "train.csv.gz"])
def test_swag(tmp_path, name):
    found = choices.read(write(tmp_path, LABELLED_SWAG, name))
    assert seen(found) == [
        ("A man walks.", "He", ("sits, down.", "runs.", "eats.", "is."), "0", ""),
        ("A dog barks.", "It", ("flies.", "sleeps.", "sings.", "reads."), "1", ""),
    ]
    assert found.columns == {"text": "sent1", "pair": "sent2", "choices": "ending0 … ending3", "label": "label"}
    assert "choices = ending0 … ending3" in found.description
    assert found[1].place.endswith(f"{name}:3")
    assert found.notes == ()


def test_swag_labels_count_from_0_even_where_none_is_0(tmp_path):
    rows = [LABELLED_SWAG[0], [*SWAG[1], "3"], [*SWAG[2], "1"]]
    assert [row.label for row in choices.read(write(tmp_path, rows, "train.csv"))] == ["3", "1"]
    rows[1][-1] = "4"
    with pytest.raises(choices.DamagedRow, match=r"train.csv:2 has the label '4', which is none of its 4 choices"):
        choices.read(write(tmp_path, rows, "train.csv"))


OFFICIAL_ARC = [
    ["questionID", "originalQuestionID", "AnswerKey", "isMultipleChoiceQuestion", "question", "subject"],
    ["Mercury_1", "1", "C", "1", "What is vitamin (A)? (A) rock (B) gas (C) a (B) vitamin (D) both (A) and (C)", ""],
    ["MCAS_2", "2", "2", "1", "Ice is (1) hot (2) cold (3) dry (4) loud (5) far", ""],
    ["TIMSS_3", "3", "A", "1", "Rain falls (A) down (B) up", ""],
]  # fmt: skip


def test_official_arc(tmp_path):
    found = choices.read(write(tmp_path, OFFICIAL_ARC, "ARC-Easy-Train.csv"))
    assert [(row.id, row.text, len(row.choices), row.choices[int(row.label)]) for row in found] == [
        ("Mercury_1", "What is vitamin (A)?", 4, "a (B) vitamin"),
        ("MCAS_2", "Ice is", 5, "cold"),
        ("TIMSS_3", "Rain falls", 2, "down"),
    ]
    assert found[0].choices[3] == "both (A) and (C)"


ARC = [
    ["What causes fever?", "rest", "bacteria, many", "viruses", "food", "B"],
    ["What is hot?", "ice", "fire", "snow", "", "b"],
    ["What is wet?", "water", "sand", "", "", "1"],
]


def test_arc_without_header(tmp_path):
    found = choices.read(write(tmp_path, ARC, "easy.csv.gz"))
    assert [(row.text, row.choices, row.label) for row in found] == [
        ("What causes fever?", ("rest", "bacteria, many", "viruses", "food"), "1"),
        ("What is hot?", ("ice", "fire", "snow"), "1"),
        ("What is wet?", ("water", "sand"), "0"),
    ]
    assert found[0].place.endswith("easy.csv.gz:1")
    assert found.notes == ("The numbers of its labels count from 1.",)


def stem(id, key, marks="ABC"):
    listed = [{"text": f"choice {mark}", "label": mark} for mark in marks]
    return {"id": id, "question": {"stem": "Which?", "choices": listed}, "answerKey": key}


def exported(id, key, marks="ABC"):
    return {
        "id": id,
        "question": "Which?",
        "choices": {"text": [f"choice {mark}" for mark in marks], "label": list(marks)},
        "answerKey": key,
    }


@pytest.mark.parametrize("form", [stem, exported])
def test_arc_as_json(tmp_path, form):
    found = choices.read(write(tmp_path, [form("a", "B"), form("b", "1", "1234"), form("c", "E", "ABCDE")]))
    assert [(row.id, row.text, row.pair, row.choices[int(row.label)], len(row.choices)) for row in found] == [
        ("a", "Which?", None, "choice B", 3),
        ("b", "Which?", None, "choice 1", 4),
        ("c", "Which?", None, "choice E", 5),
    ]


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.Table.from_pylist([exported("a", "B"), exported("b", "C")]), tmp_path / "rows.parquet")
    assert [row.label for row in choices.read(tmp_path / "rows.parquet")] == ["1", "2"]


DREAM = [
    [["M: Hi.", "W: Hello."], [{"question": "Who?", "choice": ["He.", "She.", "They."], "answer": "She."}], "5-510"],
    [
        ["W: Bye."],
        [
            {"question": "What?", "choice": ["1", "2", "3"], "answer": "2"},
            {"question": "Why?", "choice": ["B", "A", "B"], "answer": "B"},
        ],
        "4-1",
    ],
]


@pytest.mark.parametrize("indent", [None, 2])
def test_dream(tmp_path, indent):
    found = choices.read(write(tmp_path, json.dumps(DREAM, indent=indent), "dev.json"))
    assert seen(found) == [
        ("M: Hi.\nW: Hello.", "Who?", ("He.", "She.", "They."), "1", "5-510-1"),
        ("W: Bye.", "What?", ("1", "2", "3"), "1", "4-1-1"),
        ("W: Bye.", "Why?", ("B", "A", "B"), "0", "4-1-2"),
    ]
    assert found[2].place.endswith("dev.json:2, question 2")


RACE = {
    "id": "high1.txt",
    "article": "A long article.",
    "questions": ["Who?", "He said _ ."],
    "options": [["he", "she", "it", "they"], ["yes", "no"]],
    "answers": ["D", "B"],
}


@pytest.mark.parametrize(
    ("name", "value"), [("1.txt", [RACE]), ("all.jsonl", [RACE]), ("1.json", json.dumps(RACE, indent=1))]
)
def test_race(tmp_path, name, value):
    assert seen(choices.read(write(tmp_path, value, name))) == [
        ("A long article.", "Who?", ("he", "she", "it", "they"), "3", "high1.txt-1"),
        ("A long article.", "He said _ .", ("yes", "no"), "1", "high1.txt-2"),
    ]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"text": "t", "choices": ["a", "b"], "label": 1}, ("t", None, ("a", "b"), "1")),
        ({"context": "t", "question": "q", "choices": ["a", "b"], "label": 1.0}, ("t", "q", ("a", "b"), "1")),
        ({"context": "t", "question": "", "choices": ["a", "b", "c"], "label": "C"}, ("t", None, ("a", "b", "c"), "2")),
        ({"question": "q", "options": ["x y", "z"], "answer": " x  y "}, ("q", None, ("x y", "z"), "0")),
        ({"question": "q", "options": {"A": "x", "B": "y"}, "answer": "(b)"}, ("q", None, ("x", "y"), "1")),
        ({"premise": "p", "choice1": "x", "choice2": "y", "question": "?", "label": 0}, ("p", "?", ("x", "y"), "0")),
        ({"sentence": "a _", "option1": "x", "option2": "y", "answer": "2"}, ("a _", None, ("x", "y"), "1")),
        ({"goal": "g", "sol1": "x", "sol2": "y", "label": 0}, ("g", None, ("x", "y"), "0")),
        ({"ctx_a": "a", "ctx_b": "b", "ctx": "a b", "endings": ["x", "y"], "label": "0"}, ("a", "b", ("x", "y"), "0")),
        (
            {"context": "c", "question": "q", "answerA": "x", "answerB": "y", "answerC": "z", "label": "3"},
            ("c", "q", ("x", "y", "z"), "2"),
        ),
        ({"dialogue": ["a", "b"], "question": "q", "choice": ["x", "y"], "answer": "y"}, ("a\nb", "q", ("x", "y"), "1"))
    ],
)  # fmt: skip
def test_other_layouts(tmp_path, row, expected):
    (found,) = choices.read(write(tmp_path, [row]))
    assert (found.text, found.pair, found.choices, found.label) == expected


def test_rows_may_differ_in_their_number_of_choices(tmp_path):
    header = ["question", "choice1", "choice2", "choice3", "label"]
    found = choices.read(write(tmp_path, [header, ["q", "a", "b", "c", "0"], ["r", "d", "e", " ", "1"]], "rows.csv"))
    assert [row.choices for row in found] == [("a", "b", "c"), ("d", "e")]


@pytest.mark.parametrize(
    ("labels", "numbers", "note"),
    [
        ([0, 2], "02", None),
        (["0", "2"], "02", None),
        ([1, 3], "02", "The numbers of its labels count from 1."),
        (["1", "3"], "02", "The numbers of its labels count from 1."),
        (["A", "c"], "02", None),
        (["A", "2"], "01", "The numbers of its labels count from 1."),
        (["b", "a c"], "12", None),
        ([1, 2], "12", "The numbers of its labels are read as counting from 0, but none is 0."),
    ],
)
def test_labels_are_of_one_kind_in_a_file(tmp_path, labels, numbers, note):
    listed = ["x", "b", "a c"]
    found = choices.read(write(tmp_path, [{"text": "t", "choices": listed, "label": label} for label in labels]))
    assert "".join(row.label for row in found) == numbers
    assert found.notes == ((note,) if note else ())


def test_first_settles_what_numbers_mean(tmp_path):
    rows = [{"text": "t", "choices": ["a", "b", "c"], "label": n} for n in (1, 2)]
    path = write(tmp_path, rows)
    assert [row.label for row in choices.read(path, first=1)] == ["0", "1"]
    with pytest.raises(UnmaskError, match="must be 0 or 1, not 2"):
        choices.read(path, first=2)


@given(
    st.lists(st.tuples(st.integers(2, 6), st.integers(0, 5)), min_size=1), st.sampled_from(["number", "letter", "text"])
)
def test_every_kind_of_label_names_the_same_choice(tmp_path_factory, drawn, kind):
    rows, right = [], []
    for count, number in drawn:
        number %= count
        label = {"number": number, "letter": "ABCDEF"[number], "text": f"choice {number}"}[kind]
        rows.append({"text": "t", "choices": [f"choice {i}" for i in range(count)], "label": label})
        right.append(number)
    first = 0 if kind == "number" else None
    found = choices.read(write(tmp_path_factory.mktemp("choices"), rows), first=first)
    assert [int(row.label) for row in found] == right
    assert [row.choices[n] for row, n in zip(found, right, strict=True)] == [f"choice {n}" for n in right]


@given(st.text(alphabet="ab ()", max_size=8), st.lists(st.text(alphabet="xyz", min_size=1), min_size=2, max_size=26))
def test_choices_inside_a_question_are_taken_apart(text, listed):
    marked = "".join(f" ({chr(65 + i)}) {choice}" for i, choice in enumerate(listed))
    assert inline(text + marked) == (text.strip(), tuple(listed), tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(listed)]))


# ------------------------------------------------------------------------------------------------ without labels


def test_rows_without_labels_can_be_predicted(tmp_path):
    found = choices.read(write(tmp_path, SWAG, "test.csv"), labelled=False)
    assert [row.label for row in found] == ["", ""]
    assert "label" not in found.columns
    with pytest.raises(UnmaskError, match=r"test.csv has no column of labels; .* can only be predicted"):
        choices.read(write(tmp_path, SWAG, "test.csv"))
    odd = write(tmp_path, [{"text": "t", "choices": ["a", "b"], "label": [-1]}])
    assert [row.label for row in choices.read(odd, labelled=False)] == [""]


# ------------------------------------------------------------------------------------------------ damage


def row_of(listed, label=0):
    return {"text": "t", "choices": listed, "label": label}


SOUND = [row_of(["a", "b"]), row_of(["a", "b"], 1)]
DAMAGED = {
    "an empty choice": (row_of(["a", " ", "c"]), "has an empty choice, number 2 of 3"),
    "fewer than 2 choices": (row_of(["a"]), "has one choice, but at least 2 are needed"),
    "more than 26 choices": (row_of(["a"] * 27), "has 27 choices, but at most 26 are allowed"),
    "a label that is not a choice": (row_of(["a", "b"], -1), "has the label '-1', which is none of its 2 choices"),
    "no label": (row_of(["a", "b"], ""), "has no label"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_rows_are_errors_or_left_out_and_counted(tmp_path, kind):
    row, message = DAMAGED[kind]
    path = write(tmp_path, [SOUND[0], row, SOUND[1]])
    with pytest.raises(choices.DamagedRow, match=rf"rows.jsonl:2 {message}; correct the row, or leave out such rows"):
        choices.read(path)
    found = choices.read(path, skip=True)
    assert [row.label for row in found] == ["0", "1"]
    assert found.notes == (f"Rows left out with {kind}: 1 ({path}:2).",)
    with pytest.raises(UnmaskError, match=rf"has more damaged rows than valid ones; .* Rows left out with {kind}: 1 "):
        choices.read(write(tmp_path, [row]), skip=True)


def test_ragged_lines_are_errors_or_left_out_and_counted(tmp_path):
    path = write(tmp_path, [LABELLED_SWAG[0], SWAG[1], LABELLED_SWAG[2]], "train.csv")
    with pytest.raises(UnmaskError, match=r"train.csv:2 has 11 fields, but the first line has 12"):
        choices.read(path)
    found = choices.read(path, skip=True)
    assert [row.label for row in found] == ["1"]
    assert found.notes == (f"Rows left out with more or fewer fields than the first line: 1 ({path}:2).",)


def test_one_wrong_label_does_not_change_what_the_others_mean(tmp_path):
    rows = [[*row[:-1], label] for row, label in zip(ARC, ["B", "?", "E"], strict=True)]
    found = choices.read(write(tmp_path, [ARC[0], *rows], "easy.csv"), skip=True)
    assert [row.label for row in found] == ["1", "1"]
    assert found.notes[0].startswith("Rows left out with a label that is not a choice: 2 (")


def test_26_choices_are_allowed(tmp_path):
    found = choices.read(write(tmp_path, [row_of(list("abcdefghijklmnopqrstuvwxyz"), "Z"), row_of(["0", "1"], "A")]))
    assert [row.label for row in found] == ["25", "0"]


BAD = {
    "no rows": ("question,choice1,choice2,label\n", "rows.csv", "rows.csv has no rows"),
    "empty": ("", "rows.csv", "it is empty"),
    "ragged": ("question,choice1,choice2,label\nq,a,b,0\nq,a,b\n", "rows.csv", "rows.csv:3 has 3 fields"),
    "no choices": ([{"text": "t", "label": 0}], "rows.jsonl", "no columns of choices .* it has: text, label"),
    "a gap": ([{"text": "t", "choice0": "a", "choice2": "b", "label": 0}], "rows.jsonl", "no columns of choices"),
    "unknown header": ("one,two,three,four\na,b,c,d\n", "rows.csv", "no columns of choices"),
    "no text": ([{"choices": ["a", "b"], "label": 0}], "rows.jsonl", "no columns of choices"),
    "text is missing": ([SOUND[0], {"choices": ["a", "b"], "label": 0}], "rows.jsonl", "rows.jsonl:2 has no 'text'"),
    "text is a number": ([{**SOUND[0], "text": 1}], "rows.jsonl", "rows.jsonl:1: 'text' must be text, not a number"),
    "choices are missing": ([SOUND[0], {"text": "t", "label": 0}], "rows.jsonl", "rows.jsonl:2 has no list 'choices'"),
    "a choice is a number": ([row_of(["a", 2])], "rows.jsonl", r"rows.jsonl:1: 'choices\[1\]' .* text, not a number"),
    "a choice is missing": ([row_of(["a", None])], "rows.jsonl", r"'choices\[1\]' must be text, not missing"),
    "label is a list": ([row_of(["a", "b"], [0])], "rows.jsonl", "rows.jsonl:1: 'label' must be text or a whole"),
    "label is true": ([row_of(["a", "b"], True)], "rows.jsonl", "'label' must be text or a whole number, not true"),
    "marks and texts": (
        [{"question": "q", "choices": {"text": ["a", "b"], "label": ["A"]}, "answerKey": "A"}],
        "rows.jsonl",
        "rows.jsonl:1 is ragged: 2 choices, but 1 label of",
    ),
    "ragged RACE": (
        [{**RACE, "answers": ["A"]}],
        "rows.jsonl",
        "rows.jsonl:1 is ragged: 2 questions, 2 options, 1 answers",
    ),
    "RACE of text": ([{**RACE, "options": "x"}], "rows.jsonl", "rows.jsonl:1: 'options' must be a list, not text"),
    "DREAM of two": ("[[[], []]]", "rows.json", r"rows.json:1 must be \[turns, questions, id\]"),
    "DREAM of text": ('[[[], ["x"], "1"]]', "rows.json", "rows.json:1, question 1 must be an object"),
    "a number": ("[1]", "rows.json", "rows.json:1 must be an object, not a number"),
    "two columns": ("question,choice1,choice1,label\nq,a,b,0\n", "rows.csv", "two columns called 'choice1'"),
    "conll": ("a O\n", "rows.conll", "cannot have choices"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(tmp_path, case):
    value, name, message = BAD[case]
    path = write(tmp_path, value, name)
    with pytest.raises(UnmaskError, match=message) as error:
        choices.read(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_unknown_files_and_formats(tmp_path):
    with pytest.raises(UnmaskError, match="There is no file"):
        choices.read(tmp_path / "nowhere.csv")
    with pytest.raises(UnmaskError, match="no format 'cvs'; did you mean 'csv'"):
        choices.read(write(tmp_path, ARC, "rows.csv"), "cvs")
    assert len(choices.read(write(tmp_path, ARC, "rows.csv").rename(tmp_path / "rows.data"), "csv")) == 3


SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.mark.parametrize(
    ("name", "count", "out"),
    [("arc/easy_dev.csv.gz", 549, 21), ("arc/challenge_train.csv.gz", 1096, 23), ("dream/dev.json.gz", 2040, 0)],
)
def test_published_files(name, count, out):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the published file {name} is not at hand")
    found = choices.read(path, skip=True)
    assert len(found) == count
    assert all(0 <= int(row.label) < len(row.choices) for row in found)
    assert [note.partition(" (")[0] for note in found.notes] == (
        [f"Rows left out with no choice at all: {out}"] if out else []
    )


ARC_ROWS = """\
Which gas do plants take in?,oxygen,carbon dioxide,helium,neon,B
"Rocks are told apart by how they form, or",,,,,3
Which is a liquid?,ice,water,steam,,B
"How many legs, all in all, has a spider?",four,six,eight,ten,C
A tablet that settles the stomach holds,,,,,1
Which is a star?,Mars,the Moon,the Sun,Venus,C
"""


def test_rows_of_arc_without_any_choice_are_left_out_and_named(tmp_path):
    """A copy of ARC that lost the choices of the rows whose keys are numbers; others have three choices, or four."""
    path = tmp_path / "easy.csv"
    path.write_text(ARC_ROWS)
    found = choices.read(path)
    assert [len(row.choices) for row in found] == [4, 3, 4, 4]
    assert [row.choices[int(row.label)] for row in found] == ["carbon dioxide", "water", "eight", "the Sun"]
    assert found.notes == (f"Rows left out with no choice at all: 2 ({path}:2, {path}:5).",)
    with pytest.raises(choices.DamagedRow, match=r"easy.csv:2 has no choices"):  # an answer is wanted for each
        choices.read(path, labelled=False)
    path.write_text(ARC_ROWS + ",,,,,A\n" * 5)
    with pytest.raises(UnmaskError, match="more damaged rows than valid ones"):
        choices.read(path)
    path.write_text(ARC_ROWS.replace("Mars,", ","))
    with pytest.raises(choices.DamagedRow, match=r"easy.csv:6 has an empty choice, number 1 of 4; .* .--skip yes"):
        choices.read(path)

"""SQuAD files: both forms, answers that index their context, places that are mended, and errors that name them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.files import tables
from unmask.data.labelled import squad
from unmask.errors import UnmaskError

CONTEXT = "임종석은 1989년 평양축전에 임수경을 보냈다. 😀 The 😀 envoy was Lim Su-kyung, not Lim."


def answer(text, begin=None, context=CONTEXT):
    return {"text": text, "answer_start": context.index(text) if begin is None else begin}


def asked(id, *answers, **more):
    return {"id": id, "question": f"{id}?", "answers": list(answers), **more}


def nested(*qas, context=CONTEXT):
    return {"version": "1.1", "data": [{"title": "Lim", "paragraphs": [{"context": context, "qas": list(qas)}]}]}


def write(folder, value, name="dev.json", **options):
    data = value if isinstance(value, (str, bytes)) else json.dumps(value, ensure_ascii=False, **options)
    data = data.encode() if isinstance(data, str) else data
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


PLAUSIBLE = {"is_impossible": True, "plausible_answers": [answer("Lim")]}
QUESTIONS = (asked("q1", answer("임수경"), answer("Lim")), asked("q2", **PLAUSIBLE))


def flat(context=CONTEXT):
    """The same questions as the `datasets` library exports them."""
    return [
        {
            "id": qa["id"],
            "title": "Lim",
            "context": context,
            "question": qa["question"],
            "answers": {name: [a[name] for a in qa["answers"]] for name in ("text", "answer_start")},
        }
        for qa in QUESTIONS
    ]


def check(found):
    assert [(row.id, row.text, row.pair, row.possible) for row in found] == [
        ("q1", "q1?", CONTEXT, True),
        ("q2", "q2?", CONTEXT, False),
    ]
    assert found[0].answers == ((CONTEXT.index("임수경"), "임수경"), (CONTEXT.index("Lim"), "Lim"))
    assert found[0].golds == ("임수경", "Lim")
    assert found[1].answers == found[1].golds == found.notes == ()
    assert found[1].place == f"{found.path}: question q2"


@pytest.mark.parametrize("name", ["dev.json", "dev.json.gz", "dev-v2.0"])
@pytest.mark.parametrize("indent", [None, 1])
def test_published_form(tmp_path, name, indent):
    check(squad.read(write(tmp_path, nested(*QUESTIONS), name, indent=indent)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dev.jsonl", "\n".join(map(json.dumps, flat()))),
        ("lines.json", "\n".join(map(json.dumps, flat()))),
        ("array.json", json.dumps(flat(), indent=2)),
        ("under_data.json", json.dumps({"version": "x", "data": flat()})),
        (
            "listed.jsonl",
            "\n".join(json.dumps({**row, "answers": qa["answers"]}) for row, qa in zip(flat(), QUESTIONS, strict=True)),
        ),
    ],
)
def test_flat_forms(tmp_path, name, text):
    check(squad.read(write(tmp_path, text, name)))


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.Table.from_pylist(flat()), tmp_path / "dev.parquet")
    check(squad.read(tmp_path / "dev.parquet"))


def test_zstandard(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    data = zstandard.ZstdCompressor().compress(json.dumps(nested(*QUESTIONS)).encode())
    check(squad.read(write(tmp_path, data, "dev.json.zst")))


def test_the_description_says_what_was_taken(tmp_path):
    assert (
        "2 rows (text = question, pair = context, label = answers)"
        in squad.read(write(tmp_path, nested(*QUESTIONS))).description
    )


def test_klue_calls_an_id_guid(tmp_path):
    value = nested({"guid": "klue-1", "question": "누구?", "answers": [answer("임수경")], "is_impossible": False})
    assert [row.id for row in squad.read(write(tmp_path, value))] == ["klue-1"]


def test_flat_rows_without_an_id_are_called_by_their_number(tmp_path):
    rows = [{**row, "id": None} for row in flat()]
    assert [row.id for row in squad.read(write(tmp_path, rows))] == ["1", "2"]


# ------------------------------------------------------------------------------------------------ places


def utf16(text, place):
    return len(text[:place].encode("utf-16-le")) // 2


def utf8(text, place):
    return len(text[:place].encode())


@pytest.mark.parametrize("count", [utf16, utf8])
def test_places_counted_in_other_units_are_mended(count):
    """The second of three, which is not the nearest: only the units tell that it is meant."""
    context = "😀" * 8 + " Lim Lim " + "Lim"
    place = context.index("Lim", 12)
    wrong = count(context, place)
    assert wrong != place
    assert not context.startswith("Lim", wrong)
    assert squad.locate(context, "Lim", wrong) == (place, "Lim")


@pytest.mark.parametrize(
    ("context", "text", "begin", "found"),
    [
        ("a b c", "b", 2, (2, "b")),
        ("a b c", "b", 4, (2, "b")),
        ("a b c", "b", -1, (2, "b")),
        ("a b c", "c", -1, (4, "c")),  # not the character before the end
        ("b" + " " * 100 + "b", "b", 99, (101, "b")),
        ("b" + " " * 100 + "b", "b", 50, None),  # one is as far as the other
        ("b" + " " * 500 + "xb", "xb", 0, (501, "xb")),  # far away, but the only one
        ("aaaaa", "aa", 9, (3, "aa")),  # places overlap
        ("New\n York", "New York", 0, (0, "New\n York")),
        ("in New York", " New York ", 2, (3, "New York")),
        ("a+b (c)", "a+b (c) ", 5, (0, "a+b (c)")),
        ("a b c", "d", 0, None),
        ("a b c", "B", 2, None),
        ("a b c", "", 2, None),
        ("a b c", " ", 1, None),
        ("\ud83d b", "b", 9, (2, "b")),  # half a surrogate pair, which JSON can spell
    ],
)
def test_locate(context, text, begin, found):
    assert squad.locate(context, text, begin) == found


@given(st.text(), st.text(max_size=4), st.integers(-5, 40))
def test_what_is_located_stands_there(context, text, begin):
    found = squad.locate(context, text, begin)
    if found is not None:
        place, kept = found
        assert place >= 0
        assert context[place : place + len(kept)] == kept
        assert kept.split() == text.split()
    else:
        assert not text.strip() or text not in context or context.index(text) != context.rindex(text)


@given(st.text(), st.text(min_size=1).filter(str.strip), st.text(), st.sampled_from([utf16, utf8, lambda text, n: n]))
def test_an_answer_is_found_again_in_any_unit(before, text, after, count):
    context = before + text + after
    found = squad.locate(context, text, count(context, len(before)))
    if found is None:  # only among several, where the units point elsewhere
        assert context.count(text) != 1
    else:
        assert found[1] == text
        if count(context, len(before)) == len(before):
            assert found[0] == len(before)


@given(st.lists(st.tuples(st.text(min_size=1), st.integers(0, 30), st.integers(1, 8), st.integers(-3, 3)), min_size=1))
def test_every_kept_answer_indexes_its_context(tmp_path_factory, drawn):
    qas = []
    for i, (context, begin, size, slip) in enumerate(drawn):
        context = f"{context} ."
        text = context[begin : begin + size] or "."
        qas.append({"context": context, **asked(str(i), {"text": text, "answer_start": begin + slip})})
    value = {"data": [{"paragraphs": [{"context": qa["context"], "qas": [qa]} for qa in qas]}]}
    path = write(tmp_path_factory.mktemp("squad"), json.dumps(value))
    found = squad.read(path, scoring=True)
    assert len(found) == len(drawn)
    for row, qa in zip(found, qas, strict=True):
        assert row.pair == qa["context"]
        assert len(row.golds) == 1
        assert all(row.pair[begin : begin + len(text)] == text for begin, text in row.answers)


def test_repairs_are_counted_and_listed(tmp_path):
    path = write(
        tmp_path,
        nested(
            asked("exact", answer("임수경")),
            asked("moved", answer("임수경", 0), answer("Lim Su-kyung")),
            asked("half", answer("Im Su-kyung", 3), answer("임수경")),
            asked("gone", answer("Im Su-kyung", 3), answer("", 0)),
        ),
    )
    found = squad.read(path)
    assert [row.id for row in found] == ["exact", "moved", "half"]
    assert found[1].answers == ((CONTEXT.index("임수경"), "임수경"), (CONTEXT.index("Lim Su"), "Lim Su-kyung"))
    assert (found[2].unplaced, found[2].golds) == (("Im Su-kyung",), ("임수경", "Im Su-kyung"))
    assert found.notes == (
        f"Answers that were not at their positions and were moved: 1 ({path}: question moved).",
        f"Answers that are not in their contexts: 3 ({path}: question half, {path}: question gone).",
        f"Questions left out, because no answer is in the context: 1 ({path}: question gone).",
    )


def test_a_question_whose_answers_were_moved_is_listed_once(tmp_path):
    off = [answer("임수경", 0), answer("Lim Su-kyung", 0), answer("평양축전", 0)]
    path = write(tmp_path, nested(asked("q1", *off), asked("q2", answer("Lim")), asked("q3", answer("임수경", 0))))
    assert squad.read(path).notes == (
        f"Answers that were not at their positions and were moved: 4 ({path}: question q1, {path}: question q3).",
    )


def test_places_that_are_nearly_all_off_are_said_to_count_something_else(tmp_path):
    off = [asked(f"q{i}", answer("임수경", 0)) for i in range(18)]
    (note,) = squad.read(write(tmp_path, nested(*off, asked("a", answer("Lim")), asked("b", answer("Lim"))))).notes
    assert ": 18 of 20; the positions in the file seem to count something other than characters" in note
    assert "question" not in note
    (note,) = squad.read(write(tmp_path, nested(*off[:9]))).notes
    assert note.endswith("question q2, …).")


def test_scoring_keeps_what_cannot_be_learned(tmp_path):
    path = write(tmp_path, nested(asked("gone", answer("Im", 3)), asked("q", answer("Lim"))))
    found = squad.read(path, scoring=True)
    assert [(row.id, row.possible, row.golds, len(row.answers)) for row in found] == [
        ("gone", True, ("Im",), 0),
        ("q", True, ("Lim",), 1),
    ]
    assert found.notes[-1].startswith("Questions kept only for scores")


# ------------------------------------------------------------------------------------------------ labels


def test_questions_without_answers_can_be_predicted(tmp_path):
    bare = [{"id": "a", "question": "Who?"}, {"id": "b", "question": "When?", "answers": []}]
    path = write(tmp_path, nested(*bare))
    found = squad.read(path, labelled=False)
    assert [(row.id, row.answers, row.possible) for row in found] == [("a", (), True), ("b", (), True)]
    assert "label" not in found.columns
    with pytest.raises(UnmaskError, match="question a has no 'answers'"):
        squad.read(path)
    with pytest.raises(UnmaskError, match=r"No question of .* has an answer; .* can only be predicted"):
        squad.read(write(tmp_path, nested(bare[1])))


def test_a_file_of_marked_impossible_questions_has_labels(tmp_path):
    assert not squad.read(write(tmp_path, nested(asked("q", **PLAUSIBLE))))[0].possible


BAD = {
    "empty": ("", "dev.json cannot be read as text: it is empty"),
    "cut short": ('{"data": [', r"dev.json:1 is not valid JSON"),
    "cut short later": ('{"data":\n [', r"dev.json:2 is not valid JSON"),
    "a list of numbers": ([1], r"dev.json:1 must be an object, not a number"),
    "a number": (3, r"dev.json:1 must be an object"),
    "another object": ({"paragraphs": []}, "dev.json:1 has neither 'data' nor 'context'"),
    "no articles": ({"data": []}, "dev.json has no questions"),
    "data is text": ({"data": "x"}, r"dev.json: 'data' must be a list, not text"),
    "article is text": ({"data": ["x"]}, "article 1 has no 'paragraphs'"),
    "no context": ({"data": [{"paragraphs": [{"qas": []}]}]}, "article 1, paragraph 1 has no 'context'"),
    "no qas": ({"data": [{"paragraphs": [{"context": "c"}]}]}, "article 1, paragraph 1 has no 'qas'"),
    "no id": (nested({"question": "Who?"}), "article 1, paragraph 1, question 1 has no 'id'"),
    "id is a list": (nested({"id": [1]}), "question 1: 'id' must be text or a number"),
    "no question": (nested({"id": "a", "answers": []}), "question a has no 'question'"),
    "question is a number": (nested({"id": "a", "question": 1}), "question a: 'question' must be text, not a number"),
    "empty context": (nested(asked("a"), context=" "), "question a has an empty context"),
    "no answer_start": (nested(asked("a", {"text": "Lim"})), "question a, in 'answers', has no 'answer_start'"),
    "no text": (nested(asked("a", {"answer_start": 1})), "question a, in 'answers', has no 'text'"),
    "answer_start is text": (
        nested(asked("a", {"text": "Lim", "answer_start": "1"})),
        "'answer_start' must be a whole number, not text",
    ),
    "answers are text": (nested({"id": "a", "question": "?", "answers": "x"}), "'answers' must be a list"),
    "unequal lists": (
        [{"id": "a", "context": "c", "question": "?", "answers": {"text": ["c"], "answer_start": []}}],
        "question a has 1 answer, but 0 values of answer_start",
    ),
    "impossible with answers": (nested(asked("a", answer("Lim"), is_impossible=True)), "question a is marked as imp"),
    "possible without answers": (nested(asked("a", is_impossible=False)), "question a is marked as possible but"),
    "impossible is text": (nested(asked("a", is_impossible="no")), "'is_impossible' must be true or false"),
    "ids twice": (
        nested(*[asked(id, answer("Lim")) for id in "abacbb"]),
        r"has 2 ids more than once: 'a', 'b'; give each question its own",
    ),
    "answers elsewhere": (
        nested(asked("a", answer("Kim", 3))),
        "No answer is in its context for 1 of the 1 question of ",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(tmp_path, case):
    value, message = BAD[case]
    path = write(tmp_path, value)
    with pytest.raises(UnmaskError, match=message) as error:
        squad.read(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_files_of_another_kind(tmp_path):
    with pytest.raises(UnmaskError, match="There is no file"):
        squad.read(tmp_path / "nowhere.json")
    with pytest.raises(UnmaskError, match="cannot have questions on contexts"):
        squad.read(write(tmp_path, "a\tb\n", "dev.tsv"))
    with pytest.raises(UnmaskError, match="damaged or cut short"):
        squad.read(write(tmp_path, gzip.compress(b"{}" * 99)[:-9], "cut.json.gzip").rename(tmp_path / "cut.json.gz"))
    with pytest.raises(UnmaskError, match=r"lines.json:2 is not valid JSON"):
        squad.read(write(tmp_path, json.dumps(flat()[0]) + "\n{", "lines.json"))


def test_a_json_file_that_is_too_large_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "LONGEST_JSON", 200)
    with pytest.raises(UnmaskError, match="too large"):
        squad.read(write(tmp_path, nested(*QUESTIONS), indent=0))


SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.mark.parametrize(
    ("name", "count", "impossible"),
    [("squad2/dev_part", 944, 487), ("squadshifts/reddit_dev", 789, 0), ("korquad/KorQuAD_v1.0_dev", 5774, 0)],
)
def test_published_files(name, count, impossible):
    path = SHARED / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"the published file {name} is not at hand")
    found = squad.read(path)
    assert (len(found), sum(not row.possible for row in found), found.notes) == (count, impossible, ())
    assert all(row.pair[begin:].startswith(text) for row in found for begin, text in row.answers)

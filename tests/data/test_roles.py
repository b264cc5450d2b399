"""Semantic roles: a row for each marked predicate, from brackets and from tags."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.roles import read_roles
from unmask.data.labelled.schemes import to_tags
from unmask.errors import UnmaskError


@pytest.fixture
def read(tmp_path):
    def write(text, name="a.conll", **columns):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read_roles(tmp_path / name, **columns)

    return write


def told(found):
    return [(row.words[row.predicate], row.tags) for row in found.rows]


CONLL2005 = """The      -       *        (A0*
luxury   -       *        *
auto     -       *        *
maker    -       *        *)
sold     sell    (V*)     *
(        -       (A1*)    *
that     -       *        *
wants    want    *        (V*)
cars     -       *        (A1*)
up       -       (C-V*)   *

Nothing  -

It       -       (A0*)
rains    rain    (V*)
"""


def test_conll_2005(read):
    found = read(CONLL2005)
    assert told(found) == [
        ("sold", ("O", "O", "O", "O", "B-V", "B-A1", "O", "O", "O", "B-C-V")),
        ("wants", ("B-A0", "I-A0", "I-A0", "I-A0", "O", "O", "O", "B-V", "B-A1", "O")),
        ("rains", ("B-A0", "B-V")),
    ]
    assert [row.place.rpartition(":")[2] for row in found.rows] == ["5", "8", "15"]
    assert found.columns == {"words": "column 1", "predicate": "column 2", "tags": "column 3 on"}
    path = found.rows[0].place.rpartition(":")[0]
    assert found.notes == (f"Sentences without a predicate: 1 ({path}:12).",)
    assert found.rows[0].text.startswith("The luxury auto")


CONLL2012 = """#begin document (bc/cctv/00); part 000
bc/cctv/00  0  0  He     PRP  (TOP(S*  -    -   -  A  *          (ARG0*)  *  (5)
bc/cctv/00  0  1  says   VBZ  (VP*     say  01  1  A  *          (V*)     *  -
bc/cctv/00  0  2  rules  NNS  *        rule -   1  A  (PERSON*)  (ARG1*   (ARG1*)  -
bc/cctv/00  0  3  bind   VB   *))      bind 01  -  A  *          *)       (V*)  (7

bc/cctv/00  0  0  Yes    UH   *        -    -   -  A  *          -
#end document
"""


def test_conll_2012_is_known_by_its_columns(read):
    found = read(CONLL2012)
    assert told(found) == [("says", ("B-ARG0", "B-V", "B-ARG1", "I-ARG1")), ("bind", ("O", "O", "B-ARG1", "B-V"))]
    assert found.columns == {"words": "column 4", "predicate": "column 8", "tags": "column 12 on"}
    assert len(found.notes) == 1


@pytest.mark.parametrize("marks", ["- sell -", "0 1 0", "O V O", "_ sell.01 _", "* B-V *"])
@pytest.mark.parametrize(
    "tags", ["B-A0 B-V B-A1", "I-A0 I-V I-A1", "S-A0 S-V S-A1", "U-A0 U-V U-A1", "(A0*) (V*) (A1*)"]
)
def test_a_block_for_each_predicate(read, marks, tags):
    columns = zip(("He", "sold", "it"), marks.split(), tags.split(), strict=True)
    block = "".join("\t".join(fields) + "\n" for fields in columns)
    found = read(f"{block}\nNo\t{marks[0]}\tO\n\n{block}")
    assert told(found) == [("sold", ("B-A0", "B-V", "B-A1"))] * 2
    assert [row.predicate for row in found.rows] == [1, 1]


def test_columns_by_number(read):
    text = "1 He PRP (NP*) 01 - (A0*)\n2 ran VBD * 01 run (V*)\n"
    assert told(read(text, word="2", predicate="6")) == [("ran", ("B-A0", "B-V"))]
    other = "1 (A0*) He -\n2 (V*) ran run\n"
    with pytest.raises(
        UnmaskError, match=r"1 predicate in column 4 .line 2., but 0 columns of arguments, starting with column 5"
    ):
        read(other, word="3", predicate="4")
    assert told(read("He - x (A0*)\nran run y (V*)\n", arguments="4")) == [("ran", ("B-A0", "B-V"))]


BAD = {
    "too few columns": ("a see (V*)\nb run *\n", r"a.conll:1: .* 2 predicates in column 2 .line 1, 2., but 1 column "),
    "too many columns": ("a -  * *\nb run (V*) *\n", r"a.conll:1: .* 1 predicate .* 2 columns of arguments"),
    "arguments of nothing": ("\na - *\nb - (A1*)\n", r"a.conll:2: the sentence has 0 predicates"),
    "not closed": ("\na - (A0*\nb run *\n", r"a.conll:2 opens A0 in column 3, which .* put \*\)"),
    "not opened": ("a - *)\nb run (V*)\n", r"a.conll:1 has '\*\)' in column 3, but there is nothing to close"),
    "within another": ("a - (A0*\nb run (V*)\nc - *)\n", r"a.conll:2 has .* but A0 of line 1 is not closed"),
    "no bracket": ("a - (A0*)\nb run V\n", r"a.conll:2 has 'V' in column 3, which is not a bracket"),
    "no tag": ("a - B-A0\nb run verb\n", r"a.conll:2 has 'verb' in column 3; arguments must be tags"),
    "other order": (
        "a see * (V*)\nb run (V*) *\n",
        r"a.conll:2 has the V of column 3, but its predicate 'a' .* line 1",
    ),
    "ragged": ("a - (A0*)\nb run\n", r"a.conll:2 has 2 columns, but the lines before it have 3"),
    "one column": ("a\nb\n", r"a.conll:1 has 1 column; there is no column 2"),
    "no predicates": ("a - O\n\nb - O\n", r"a.conll has no predicates: its column 2 marks no word; give the column"),
    "empty": ("", "it is empty"),
    "no sentences": ("\n\n", "a.conll has no sentences"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_sentence_with_the_line(read, case):
    text, message = BAD[case]
    with pytest.raises(UnmaskError, match=message) as error:
        read(text)
    assert "\n" not in str(error.value)


def test_columns_have_numbers(read):
    with pytest.raises(UnmaskError, match="give a number, counted from 1, instead of 'verb'"):
        read("a - O\n", predicate="verb")


@st.composite
def sentences(draw):
    """Words of which some are predicates, and spans for each of these."""
    length = draw(st.integers(1, 8))
    predicates = sorted(draw(st.sets(st.integers(0, length - 1), min_size=1)))
    columns = []
    for _ in predicates:
        cuts = sorted(draw(st.sets(st.integers(0, length))))
        spans = [(a, b, draw(st.sampled_from(["A0", "AM-TMP", "C-A1"]))) for a, b in pairwise(cuts)]
        columns.append([span for span in spans if draw(st.booleans())])
    return length, predicates, columns


@given(st.lists(sentences(), min_size=1, max_size=3))
def test_brackets_that_are_written_are_read(tmp_path_factory, written):
    path = tmp_path_factory.getbasetemp() / "any.props"
    blocks = []
    for length, predicates, columns in written:
        lines = []
        for i in range(length):
            opening = [next((f"({kind}" for a, _, kind in spans if a == i), "") for spans in columns]
            closing = [")" if any(b == i + 1 for _, b, _ in spans) else "" for spans in columns]
            brackets = [f"{a}*{b}" for a, b in zip(opening, closing, strict=True)]
            lines.append(" ".join([f"w{i}", "run" if i in predicates else "-", *brackets]))
        blocks.append("\n".join(lines) + "\n")
    path.write_text("\n".join(blocks))
    expected = [
        (f"w{predicate}", to_tags(spans, length))
        for length, predicates, columns in written
        for predicate, spans in zip(predicates, columns, strict=True)
    ]
    assert told(read_roles(path)) == expected

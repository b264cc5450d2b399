"""Scores of trees beside PYEVALB, and beside a reading of brackets as `evalb` does it."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.bitext import trees
from unmask.errors import UnmaskError
from unmask.metrics import parsing

ROWS = json.loads((Path(__file__).parents[1] / "fixtures" / "evalb.json").read_text())["rows"]
STAGED = Path(__file__).resolve().parents[3] / "shared" / "data" / "treebank-sample" / "dev.mrg.gz"


def line(bracketed: str) -> str:
    tree = trees.plain(trees.parse(bracketed))
    assert tree is not None
    return trees.linear(tree)


def test_counts_are_those_of_pyevalb():
    for row in ROWS:
        found = parsing.matches([line(row["test"])], [line(row["gold"])])
        assert [found.common, found.written, found.true] == row["counts"], row
    both = [[line(row[side]) for row in ROWS] for side in ("test", "gold")]
    common, written, true = (sum(row["counts"][i] for row in ROWS) for i in range(3))
    assert parsing.parsing("f1", *both).value == pytest.approx(200 * common / (written + true))
    assert parsing.parsing("precision", *both).value == pytest.approx(100 * common / written)
    assert parsing.parsing("recall", *both).value == pytest.approx(100 * common / true)


DELETED = ("TOP", "-NONE-", ",", ":", "``", "''", ".")  # DELETE_LABEL of COLLINS.prm


def brackets(text: str) -> list[tuple[str, int, int]]:
    """The brackets of a tree as evalb reads them: character by character, words with a deleted tag left out."""
    found, waiting, words = [], [], 0
    for opened, label, word, closed in re.findall(r"(\()([^\s()]*)(?:\s+([^\s()]+)\s*\))?|(\))", text):
        if word:
            words += label not in DELETED
        elif opened:
            waiting.append((label, words))
        elif closed:
            name, begin = waiting.pop()
            name = re.split("[-=]", name)[0]
            if begin < words and name not in (*DELETED, ""):
                found.append(("ADVP" if name == "PRT" else name, begin, words))
    return found


def common(first: list, second: list) -> int:
    """Greedy matches: each bracket of the second is used once."""
    left, count = list(second), 0
    for one in first:
        if one in left:
            left.remove(one)
            count += 1
    return count


LABELS = st.sampled_from(["S", "NP", "NP-SBJ", "VP", "PRT", "ADVP", "NP=2"])
TAGS = ["NN", "VB", ",", ".", ":", "``", "$", "-NONE-"]


@st.composite
def two_trees(draw) -> tuple[str, str]:
    """Two trees over the same words and tags."""
    words = [f"({draw(st.sampled_from(TAGS))} w{i})" for i in range(draw(st.integers(1, 7)))] + ["(NN last)"]

    def tree(some: list[str], depth: int) -> str:
        if len(some) == 1 and depth and draw(st.booleans()):
            return some[0]
        if len(some) == 1:
            return f"({draw(LABELS)} {some[0]})"
        cut = draw(st.integers(1, len(some) - 1))
        inside = f"{tree(some[:cut], depth + 1)} {tree(some[cut:], depth + 1)}"
        return f"({draw(LABELS)} {inside})"

    return f"( {tree(words, 0)})", f"( {tree(words, 0)})"


@given(two_trees())
def test_counts_are_those_of_brackets_read_as_evalb_does(pair):
    test, gold = pair
    found = parsing.matches([line(test)], [line(gold)])
    read = [brackets(one) for one in (test, gold)]
    assert (found.common, found.written, found.true) == (common(*read), len(read[0]), len(read[1]))


def test_a_worked_tree():
    gold = line("((S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat)) (PP (IN in) (NP (NN town)))) (. .)))")
    text = "(S (NP XX XX )NP (VP XX (NP (NP XX XX )NP (PP XX (NP XX )NP )PP )NP )VP . )S"
    found = parsing.matches([text], [gold])
    assert (found.common, found.written, found.true) == (6, 7, 6)  # one NP too many
    assert (found.precision, found.recall, found.complete, found.sound) == (6 / 7, 1, 0, 1)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("(S (NP XX )NP (VP XX XX", (3, 3)),  # open brackets end with the text, and the third word is dropped
        ("(S (NP XX )NP (VP XX )VP )S )S", (3, 3)),
        ("(S (NP XX )VP (VP XX )NP )S", (3, 3)),  # the label of the opening bracket counts
        ("(S (NP XX )NP (VP XX )VP XX )S", (3, 3)),
        ("(S (NP XX )NP )S", (1, 2)),  # the missing word is in no constituent
        ("", (0, 0)),
    ],
)
def test_a_text_that_is_no_tree_is_repaired_and_counted(text, counts):
    found = parsing.matches([text], ["(S (NP XX )NP (VP XX )VP )S"])
    assert (found.common, found.written) == counts
    assert found.sound == 0


def test_an_unknown_kind_is_named():
    with pytest.raises(UnmaskError, match="did you mean 'recall'"):
        parsing.parsing("recal", ["(S XX )S"], ["(S XX )S"])


@pytest.mark.skipif(not STAGED.is_file(), reason="the sample of the Penn Treebank is not beside this checkout")
def test_real_trees_have_the_brackets_that_evalb_reads():
    with gzip.open(STAGED, "rt") as file:
        rows = file.read().splitlines()
    lines = [line(row) for row in rows]
    found = parsing.matches(lines, lines)
    assert found.true == found.common == sum(len(brackets(row)) for row in rows)
    assert found.complete == found.sound == 1

"""Scores of code beside sacrebleu and Python's own compiler; distinct n-grams by hand and by brute force."""

from __future__ import annotations

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from unmask.metrics.code import code_bleu, parsable, parses
from unmask.metrics.diversity import distinct

LINES = [
    "if x in self . names :",
    "elif not y : ",
    "else :",
    "try :",
    "except ( KeyError , ValueError ) as error :",
    "finally :",
    "for i , one in enumerate ( rows ) :",
    "with open ( path ) as file :",
    "def f ( self , * rest ) :",
    "class A ( B ) :",
    "@ cache",
    "return x [ 1 : ]",
    "yield",
    "continue",
    "pass",
    "import a . b as c",
    "s = 'a\\d'",
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_a_program_parses(line):
    assert parses(line)


@pytest.mark.parametrize(
    "line", ["", "   ", "if x", "x = ", ")", "for x :", "else", "a b", "x = '", "\0", "(" * 5000, "@"]
)
def test_other_lines_do_not(line):
    assert not parses(line)


@given(st.text(max_size=30))
def test_a_line_that_python_compiles_parses(line):
    line = " ".join(line.split())
    try:
        compile(line, "line", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return
    assert parses(line) == bool(line and not line.startswith("#"))


def test_the_share_of_lines_that_parse():
    assert parsable(["x = 1", "x = "], ["x = 1", "x = 2"]).value == 50


def test_bleu_of_code_does_not_depend_on_spaces():
    said, true = ["self . name = name [ 1 : ]", "return x + 1"], ["self.name = name[2:]", "return x+1"]
    found = code_bleu(said, true)
    tokens = [["self . name = name [ 1 : ]", "return x + 1"], ["self . name = name [ 2 : ]", "return x + 1"]]
    assert found.value == pytest.approx(
        sacrebleu.corpus_bleu(tokens[0], [tokens[1]], tokenize="none", force=True).score
    )
    assert "tok:code" in found.signature
    assert code_bleu(said, said).value == pytest.approx(100)


def test_distinct_words_of_a_small_example():
    texts = ["I do not know .", "I do not know what you mean ."]
    assert distinct(1, texts, texts).value == pytest.approx(100 * 8 / 13)
    assert distinct(2, texts, texts).value == pytest.approx(100 * 8 / 13)
    assert distinct(2, ["", "a"], ["x", "y"]).value == 0


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), min_size=1, max_size=5))
def test_distinct_pairs_by_brute_force(rows):
    texts = [" ".join(row) for row in rows]
    pairs = {(row[i], row[i + 1]) for row in rows for i in range(len(row) - 1)}
    assert distinct(2, texts, texts).value == pytest.approx(100 * len(pairs) / sum(map(len, rows)))

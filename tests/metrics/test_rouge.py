"""ROUGE beside the values of `rouge-score`, and by brute force."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.metrics import rouge

ROWS = json.loads((Path(__file__).parents[1] / "fixtures" / "rouge.json").read_text())["rows"]


@pytest.mark.parametrize("kind", rouge.KINDS)
def test_scores_are_those_of_the_reference_implementation(kind):
    for row in ROWS:
        found = rouge.rouge(kind, [row["summary"]], [[one] for one in row["references"]])
        precision, recall, f1 = row[kind]
        assert found.details["precision"] == pytest.approx(100 * precision)
        assert found.details["recall"] == pytest.approx(100 * recall)
        assert found.value == pytest.approx(100 * f1)


def test_the_score_of_several_summaries_is_their_mean():
    rows = [row for row in ROWS if len(row["references"]) == 1]
    found = rouge.rouge("rouge2", [row["summary"] for row in rows], [row["references"][0] for row in rows])
    assert found.value == pytest.approx(100 * sum(row["rouge2"][2] for row in rows) / len(rows))
    assert found.name == "ROUGE-2"


def test_the_example_of_the_paper():
    """Lin 2004, section 3.1: the same words in another order have the same ROUGE-2, but not the same ROUGE-L."""
    reference, first, second = "police killed the gunman", "police kill the gunman", "the gunman kill police"
    assert [rouge.of_sequences(one, reference).recall for one in (first, second)] == [0.75, 0.5]
    assert rouge.of_ngrams(first, reference, 2) == rouge.of_ngrams(second, reference, 2)


@given(st.text("ab", max_size=7), st.text("ab", max_size=7))
def test_the_common_subsequence_is_a_longest_one(a, b):
    places = rouge.common_places(a, b)[::-1]
    subsequences = ({"".join(x) for n in range(len(text) + 1) for x in combinations(text, n)} for text in (a, b))
    common = set.intersection(*subsequences)
    assert "".join(a[place] for place in places) in common
    assert len(places) == max(map(len, common))


def test_letters_of_any_script_are_words():
    assert rouge.words("Ein Café, über_all 한국어") == ["ein", "café", "über", "all", "한국어"]
    assert rouge.of_ngrams("고양이 자다", "고양이 자다", 1).f1 == 1


def test_nothing_to_score_is_refused():
    with pytest.raises(UnmaskError, match="no hypotheses"):
        rouge.rouge("rouge1", [], [])
    assert rouge.rouge("rougeLsum", [""], [""]).value == 0

"""Entries on text to text: their numbers by hand."""

from __future__ import annotations

import pytest

from unmask.runs.lectures import texts


def test_one_constituent_too_many():
    shown = texts.tree_scores.show(True)
    sequences, constituents = shown.tables
    assert sequences.rows[0][1] == "(S (NP XX XX )NP (VP XX (NP XX XX )NP (PP XX (NP XX )NP )PP )VP . )S"
    wrong = [row[:2] for row in constituents.rows if row[2] != row[3]]
    assert wrong == [("NP", "a cat in town")]
    assert "6 of the 7 constituents are right, and the reference has 6: precision 0.857, recall 1.000" in shown.finding


def test_distinct_words_are_counted_over_all_answers():
    [table] = texts.distinct_words.show(True).tables
    one, three = (row[1:] for row in table.rows)
    assert one == pytest.approx((5 / 15, 4 / 15))
    assert three == pytest.approx((15 / 17, 14 / 17))  # "." stands three times


def test_lines_in_the_middle_of_a_statement_parse():
    shown = texts.lines_of_code.show(True)
    assert [row[1] for row in shown.tables[0].rows] == ["yes"] * 5 + ["no"] * 2
    assert shown.finding.startswith("5 of the 7")

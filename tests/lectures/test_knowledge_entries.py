"""Entries on knowledge, prompts and captions: their numbers, recomputed where that is quick."""

from __future__ import annotations

import numpy as np

from unmask.data.pictures import compositions
from unmask.runs.lectures import knowledge


def test_facts_are_in_every_form_and_the_city_is_left_out():
    found = knowledge._facts(["Dunia"], ["Baville"])
    assert [target for _, target in found] == ["Baville"] * 3
    assert all("blank" in text and "Dunia" in text and "Baville" not in text for text, _ in found)


def test_names_differ():
    names = knowledge._names(50, "nia", np.random.default_rng(0))
    assert len(set(names)) == 50


def test_closed_book_compares_three_models():
    (table,) = knowledge.closed_book.show(True).tables
    assert [row[0] for row in table.rows] == ["none", "other capitals", "true"]
    assert all(0 <= share <= 1 for row in table.rows for share in row[1:])


def test_a_prompt_has_as_many_examples_as_shots():
    (table,) = knowledge.in_context.show(True).tables
    for shots, prompt, candidates in table.rows:
        assert prompt.count(" =") == shots + 1
        assert prompt.endswith(" =")
        assert candidates == "' bad' or ' good'"
        assert prompt.count("warm and funny") == 1  # the row to answer is not among its examples


def test_captions_are_shown_with_each_word():
    shown = knowledge.captions.show(True)
    (gallery,) = shown.figures
    words = [len(target.replace(",", " ,").split()) + 1 for target in compositions.pairs(5, seed=1).targets[:1]]
    assert len(gallery.pictures) == 1 + sum(words)
    assert [row[0] for row in shown.tables[0].rows] == [2, 4]


def test_share_counts_whole_texts():
    assert knowledge.share(["a", "b"], [("x", "a"), ("y", "c")]) == 0.5

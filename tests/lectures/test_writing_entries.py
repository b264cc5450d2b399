"""Writing: the lattice beside all of its texts, and what is copied."""

from __future__ import annotations

import torch

from unmask.runs.lectures import writing


def texts(word: str) -> dict[tuple[str, ...], float]:
    """Every text after a word, and its probability."""
    if word == "</s>":
        return {(): 1.0}
    return {(x, *rest): p * of for x, p in writing.NEXT[word].items() for rest, of in texts(x).items()}


def test_the_beam_finds_the_best_text_of_the_lattice_and_greedy_does_not():
    every = texts("<s>")
    assert abs(sum(every.values()) - 1) < 1e-12
    best = max(every, key=lambda text: every[text])
    [table] = writing.beam_of_two.show(True).tables
    finished = {(width, tuple(text.split())): p for width, _, text, p, fate in table.rows if fate == "finished"}
    for (_, text), p in finished.items():
        assert abs(every[text] - p) < 1e-6
    assert (2, best) in finished
    assert (1, best) not in finished


def test_a_copy_is_counted_when_every_letter_is_right():
    batch = writing.copies(3, 4, torch.Generator().manual_seed(0))
    assert (batch.tokens[:, 1:] == batch.source.tokens[:, :-1]).all()
    assert (batch.source.tokens[:, -1] == writing.END).all()
    model = writing.copier("general", 60, 1)
    assert writing.copied(model, 1, 50) > 0.5 > writing.copied(model, 6, 5)  # it has seen single letters alone


def test_both_models_are_shown_by_length():
    [table] = writing.copying.show(True).tables
    assert [row[0] for row in table.rows] == [1, 2, 3, 4]
    assert all(0 <= share <= 1 for row in table.rows for share in row[1:])

"""Entries on recurrent networks and translation beside torch.nn, sacrebleu and formulas."""

from __future__ import annotations

import math

import pytest
import torch

from unmask.runs.lectures import sequences


def test_the_cell_is_the_number_of_open_brackets():
    [table] = sequences.counting.show(True).tables
    text = table.title
    for t, (letter, *_, cell) in enumerate(table.rows):
        assert letter == text[t]
        assert cell == pytest.approx(text[: t + 1].count("(") - text[: t + 1].count(")"), abs=1e-3)


def test_perplexity_is_the_exponential_and_falls_with_the_order():
    [table] = sequences.perplexity.show(True).tables
    for _, nats, perplexity in table.rows:
        assert perplexity == pytest.approx(math.exp(nats))
    found = [row[2] for row in table.rows]
    assert found == sorted(found, reverse=True)
    assert table.rows[0][2] == 7  # six words and the end


def test_the_scores_by_their_equations():
    shown = sequences.alignment_scores.show(True)
    assert [row[1] for row in shown.tables[0].rows] == [0, 16 * 16, 2 * 16 * 16 + 16]
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(1, 8, 16, generator=generator)
    queries = states + 0.3 * torch.randn(1, 8, 16, generator=generator)
    wanted = torch.softmax(torch.einsum("btq,bsq->bts", queries, states), -1)[0]
    torch.testing.assert_close(torch.tensor(shown.figures[0].values), wanted)
    for figure in shown.figures:
        assert torch.tensor(figure.values).sum(1) == pytest.approx(torch.ones(8), abs=1e-5)


def test_distances_of_reversed_sources():
    [table] = sequences.reversed_sources.show(True).tables
    in_order, reversed_ = table.rows
    for i in range(8):
        read = [*range(8), *(f"out {j}" for j in range(8))]
        turned = [*reversed(range(8)), *(f"out {j}" for j in range(8))]
        assert in_order[i + 1] == read.index(f"out {i}") - read.index(i)
        assert reversed_[i + 1] == turned.index(f"out {i}") - turned.index(i)


def test_bleu_is_that_of_sacrebleu():
    sacrebleu = pytest.importorskip("sacrebleu")
    [table] = sequences.bleu.show(True).tables
    for candidate, *_, found in table.rows:
        wanted = sacrebleu.corpus_bleu([candidate], [[table.title]], smooth_method="none", tokenize="none")
        assert found == pytest.approx(wanted.score)

"""Entries on pre-training beside formulas and plain recomputations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unmask.runs.lectures import pretraining


def test_the_mix_that_is_learned_is_the_one_that_made_the_vectors():
    [table] = pretraining.layer_mix.show(True).tables
    assert table.rows[0][1:] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])
    assert table.rows[-1][1:] == pytest.approx([0, 0.7, 0.3, 2], abs=0.05)


def test_each_layer_reaches_one_memory_further():
    [table] = pretraining.memory_reach.show(True).tables
    assert [row[2] for row in table.rows] == [4 * (layers + 1) for layers in (1, 2, 3, 4)]


def test_four_terms_add_up_by_their_formula():
    [table] = pretraining.relative_scores.show(True).tables
    *terms, whole = (np.array(row[1:]) for row in table.rows)
    np.testing.assert_allclose(sum(terms), whole, atol=1e-5)


def test_pairs_are_of_both_kinds_and_keep_their_documents():
    pairs, shares = pretraining.sentence_pairs.show(True).tables
    river, trees = (set(" ".join(story).split()) for story in pretraining.STORIES)
    for objective, pair, answer in pairs.rows:
        first, second = (set(part.split()) - {"[CLS]"} for part in pair.split(" [SEP]")[:2])
        together = any(first | second <= story for story in (river, trees))
        assert together == (answer != "random"), (objective, pair)
    assert all(0.3 < share < 0.7 for row in shares.rows for share in row[1:])


def test_new_masks_reach_all_tokens():
    [table] = pretraining.dynamic_masking.show(True).tables
    for epochs, one, ten, new, wanted in table.rows:
        assert one == pytest.approx(0.15, abs=0.01)
        assert ten == pytest.approx(1 - 0.85 ** min(epochs, 10), abs=0.06)
        assert new == pytest.approx(wanted, abs=0.06)


def test_the_counts_by_their_formula_and_near_the_paper():
    [table] = pretraining.albert_sizes.show(True).tables
    for name, layers, dim, *_, found in table.rows:
        block = 4 * (dim**2 + dim) + 2 * dim * 4 * dim + 4 * dim + dim + 4 * dim  # attention, feed-forward, two norms
        narrow = 128 if name.startswith("ALBERT") else dim
        embeddings = (30_000 + 512 + 2 + 2) * narrow + (narrow * dim + dim if narrow != dim else 0)
        blocks = block * (1 if narrow != dim else layers)
        assert found == pytest.approx((embeddings + blocks + dim**2 + dim) / 1e6)
    millions = {row[0]: row[-1] for row in table.rows}
    for name, wanted in (("ALBERT base", 12), ("ALBERT large", 18), ("ALBERT xlarge", 60)):
        assert millions[name] == pytest.approx(wanted, rel=0.03)


def test_draws_follow_the_generator():
    figure, draws = pretraining.replaced_tokens.show(True).tables
    assert figure.rows[-1][1:] == ("original", "original", "replaced", "original", "original")
    for *_, p, share in draws.rows:
        assert share == pytest.approx(p, abs=4 * (p * (1 - p) / 200) ** 0.5)


def test_the_example_of_t5():
    shown = pretraining.span_corruption.show(True)
    [table] = shown.tables
    assert table.rows[0][1:] == ("Thank you <X> me to your party <Y> week", "<X> for inviting <Y> last <Z>")
    assert "15.0% are removed, in spans of 3.0" in shown.finding


def test_buckets_by_their_formula():
    [table] = pretraining.buckets.show(True).tables

    def wanted(distance: int, buckets: int) -> int:
        exact = buckets // 2
        wide = exact + math.log(max(distance, 1) / exact) / math.log(128 / exact) * (buckets - exact)
        return distance if distance < exact else min(int(wide + 1e-6), buckets - 1)

    for distance, before, after, decoder in table.rows:
        assert before == wanted(distance, 16)
        assert after == wanted(distance, 16) + (16 if distance else 0)
        assert decoder == wanted(distance, 32)

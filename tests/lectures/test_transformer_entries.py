"""Entries on the Transformer beside torch.nn.functional, torch.nn and formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.runs.lectures import transformer


def test_attention_by_hand_is_that_of_torch():
    [table] = transformer.three_tokens.show(True).tables
    q, k, v = torch.tensor([[2.0, 0], [0, 2], [1, 1]]), torch.tensor([[1.0, 0], [0, 1], [1, 1]]), None
    v = torch.tensor([[10.0, 0], [0, 10], [5, 5]])
    wanted = F.scaled_dot_product_attention(q[None], k[None], v[None])[0]
    found = torch.tensor([[float(x) for x in row[-1].split()] for row in table.rows])
    torch.testing.assert_close(found, wanted, atol=0.006, rtol=0)


def test_heads_change_no_count_of_parameters():
    [table] = transformer.heads.show(True).tables
    assert {row[2] for row in table.rows} == {4 * 64 * 64 + 4 * 64}
    assert all(1 <= row[3] <= row[0] for row in table.rows)


def test_masks_count_what_may_be_seen():
    [table] = transformer.masks.show(True).tables
    assert [row[1] for row in table.rows] == [8 * 6, 8 * 9 // 2, 16 + 9 + 1, 1 + 2 + 6 * 3]


def test_gradients_of_the_last_layers_are_large_with_post_norm_alone():
    [table] = transformer.pre_norm.show(True).tables
    post, pre = table.rows
    assert post[3] > 1.5 > 1 > pre[3]
    assert post[2] > pre[2]


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 9))
def test_norms_are_those_of_torch(B, D, seed):
    x = torch.randn(B, D, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(transformer.normalised(x, 1), F.layer_norm(x, (D,)))
    torch.testing.assert_close(transformer.normalised(x, 0), F.batch_norm(x, None, None, training=True))


def test_only_a_batch_norm_depends_on_the_batch():
    [table] = transformer.layer_norm.show(True).tables
    assert table.rows[0][-1] == 0 < 0.1 < table.rows[1][-1]


def test_the_rate_of_the_paper():
    [table] = transformer.warm_up.show(True).tables
    for step, rate, *_ in table.rows:
        assert rate == pytest.approx(512**-0.5 * min(step**-0.5, step * 4_000**-1.5))


def test_the_lowest_loss_of_smoothed_labels():
    [table] = transformer.label_smoothing.show(True).tables
    for smoothing, best, wanted, loss in table.rows:
        assert abs(best - wanted) < 0.03
        q = [1 - smoothing + smoothing / 100] + 99 * [smoothing / 100]
        entropy = -sum(x * math.log(x) for x in q if x)  # the cross-entropy of a distribution with itself
        assert entropy - 1e-6 <= loss < entropy + 0.01


def test_the_penalty_of_the_paper_decides():
    [table] = transformer.length_penalty.show(True).tables
    for alpha, short, long, best in table.rows:
        wanted = (-4.0 / ((5 + 5) / 6) ** alpha, -6.5 / ((5 + 12) / 6) ** alpha)
        assert (short, long) == pytest.approx(wanted)
        assert best == ("short" if wanted[0] > wanted[1] else "long")
    assert {row[-1] for row in table.rows} == {"short", "long"}


def test_shortlists_by_their_definitions():
    [table] = transformer.sampling.show(True).tables
    _, plain, cold, top_k, top_p = zip(*table.rows, strict=True)
    squares = [p**2 for p in plain]
    assert cold == pytest.approx([s / sum(squares) for s in squares])
    assert top_k[:3] == pytest.approx([p / sum(plain[:3]) for p in plain[:3]])
    assert not any(top_k[3:])
    kept = next(n for n in range(1, 9) if sum(plain[:n]) >= 0.8)
    assert [p > 0 for p in top_p] == [i < kept for i in range(8)]


def test_parameters_are_those_of_the_model_and_near_the_paper():
    [table] = transformer.transformer_sizes.show(True).tables
    for name, *_, counted, model in table.rows:
        assert counted == model
        assert model == pytest.approx({"base": 65e6, "big": 213e6}[name], rel=0.04)

"""Back-propagation through time by its equations, beside autograd."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.runs.lectures import recurrence


@settings(max_examples=20)
@given(st.integers(1, 7), st.integers(1, 4), st.integers(1, 5), st.integers(2, 4), st.integers(0, 99))
def test_the_five_gradients_are_those_of_autograd(T, D, H, V, seed):
    rng = np.random.default_rng(seed)
    weights = recurrence.drawn(rng, D=D, H=H, V=V)
    x, y, counted = rng.normal(size=(T, D)), rng.integers(V, size=T), rng.random(T) < 0.7
    counted[-1] = True
    ours, _ = recurrence.gradients(weights, x, y, counted)
    for found, wanted in zip(ours, recurrence.by_autograd(weights, x, y, counted), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_the_gradient_of_a_state_is_the_slope_of_the_loss():
    """By differences: the first state is moved by way of the bias at the first step alone, which is an extra input."""
    rng, small = np.random.default_rng(0), 1e-6
    weights = recurrence.drawn(rng, D=4, H=3, V=2)
    weights = weights._replace(U=np.concatenate([weights.U, np.eye(3)], 1))
    x, y, counted = np.pad(rng.normal(size=(5, 4)), ((0, 0), (0, 3))), rng.integers(2, size=5), np.ones(5, bool)

    def loss(moved):
        o = recurrence.states(weights, moved)[1:] @ weights.V.T + weights.c
        return -(o - np.log(np.exp(o).sum(1, keepdims=True)))[np.arange(5), y].sum()

    _, of_h = recurrence.gradients(weights, x, y, counted)
    h = recurrence.states(weights, x)[1]
    for unit in range(3):
        more, less = x.copy(), x.copy()
        more[0, 4 + unit] += small
        less[0, 4 + unit] -= small
        slope = (loss(more) - loss(less)) / (2 * small)
        np.testing.assert_allclose(slope, (1 - h[unit] ** 2) * of_h[0, unit], rtol=1e-5)


def test_gradients_vanish_with_small_weights():
    left, differences = recurrence.through_time.show(True).tables
    assert left.rows[0][2] < 1e-6 < left.rows[1][2]
    assert all(value < 1e-10 for row in differences.rows for value in row[1:])


def test_the_forms_of_a_gru_begin_alike_and_part():
    [table] = recurrence.gru.show(True).tables
    torch_form, cho, chung = (row[1:] for row in table.rows)
    assert torch_form[0] == cho[0] != chung[0]
    assert torch_form[1] != cho[1]

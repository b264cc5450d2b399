"""Attention of one state to others: the published equations written out, padding, keys kept once, weights recorded."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.nn import AdditiveAttention, DotAttention, GeneralAttention, record_attention

B, T, S, E = 3, 4, 5, 6
KINDS = {"dot": DotAttention, "general": GeneralAttention, "additive": AdditiveAttention}
kinds = pytest.mark.parametrize("kind", list(KINDS))


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def built(kind):
    part = KINDS[kind](E, E).double()
    with torch.no_grad():
        for i, parameter in enumerate(part.parameters()):
            parameter.copy_(noise(*parameter.shape, seed=10 + i))
    return part


def written_out(kind, part, query, states):
    """Context of one query over the states of one source, number by number."""
    scores = []
    for state in states:
        if kind == "dot":
            scores.append(sum(q * s for q, s in zip(query, state, strict=True)))
        elif kind == "general":
            scores.append(query @ (part.key.weight @ state))
        else:
            scores.append(part.energy.weight[0] @ torch.tanh(part.query.weight @ query + part.key.weight @ state))
    powers = [score.exp() for score in scores]
    weights = [power / sum(powers) for power in powers]
    return sum(weight * state for weight, state in zip(weights, states, strict=True)), torch.stack(weights)


@kinds
def test_equals_the_equations(kind):
    part, query, states = built(kind), noise(B, T, E), noise(B, S, E, seed=1)
    lengths = torch.tensor([5, 2, 1])
    with record_attention(part) as maps:
        context = part(query, part.keys(states, lengths))
    assert maps[0].weights.shape == (B, 1, T, S)
    for b, size in enumerate(lengths.tolist()):
        for t in range(T):
            expected, weights = written_out(kind, part, query[b, t], states[b, :size])
            torch.testing.assert_close(context[b, t], expected)
            torch.testing.assert_close(maps[0].weights[b, 0, t, :size], weights)
            assert maps[0].weights[b, 0, t, size:].abs().sum() == 0
    assert part.recorder is None


@kinds
@settings(max_examples=30)
@given(lengths=st.lists(st.integers(1, S), min_size=1, max_size=4))
def test_padding_is_neutral(kind, lengths):
    part, states = built(kind), noise(len(lengths), S, E)
    query = noise(len(lengths), T, E, seed=1)
    for b, size in enumerate(lengths):
        states[b, size:] = 1e3
    context = part(query, part.keys(states, torch.tensor(lengths)))
    for b, size in enumerate(lengths):
        alone = part(query[b : b + 1], part.keys(states[b : b + 1, :size]))
        torch.testing.assert_close(context[b], alone[0])


@kinds
def test_hypotheses_share_the_keys_of_their_source(kind):
    part, states, width = built(kind), noise(B, S, E), 2
    lengths = torch.tensor([5, 2, 3])
    keys = part.keys(states, lengths)
    queries = noise(B * width, E, seed=1)
    repeated = part.keys(states.repeat_interleave(width, 0), lengths.repeat_interleave(width))
    torch.testing.assert_close(part.step(queries, keys), part(queries[:, None], repeated)[:, 0])
    left = keys.select(torch.tensor([2, 0]))
    assert len(left) == 2
    torch.testing.assert_close(part.step(queries[[4, 5, 0, 1]], left), part.step(queries, keys)[[4, 5, 0, 1]])


def test_a_dot_product_keeps_the_states_once():
    keys = built("dot").keys(noise(B, S, E))
    assert keys.keys is keys.values
    left = keys.select(torch.tensor([1]))
    assert left.keys is left.values


@kinds
def test_a_source_of_padding_gives_zero_and_finite_gradients(kind):
    part, states = built(kind), noise(2, S, E).requires_grad_()
    context = part(noise(2, T, E, seed=1), part.keys(states, torch.tensor([0, 3])))
    assert context[0].abs().sum() == 0
    context.sum().backward()
    assert states.grad.isfinite().all()
    assert states.grad[0].abs().sum() == 0


def test_a_dot_product_needs_equal_widths():
    with pytest.raises(UnmaskError, match="use general attention"):
        DotAttention(4, 6)
    assert (
        GeneralAttention(4, 6)(noise(1, 1, 4).float(), GeneralAttention(4, 6).keys(noise(1, 2, 6).float())).shape[-1]
        == 6
    )

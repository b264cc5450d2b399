"""Mask and Bias: values that say who sees whom."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.nn import Bias, Mask


def drawn(mask: Mask, T: int, S: int) -> list[str]:
    visible = mask.tensor(T, S)
    assert visible is not None
    return ["".join(".x"[v] for v in row) for row in visible.reshape(-1, S).tolist()]


def test_causal():
    assert drawn(Mask(causal=True), 4, 4) == ["x...", "xx..", "xxx.", "xxxx"]


def test_queries_are_the_last_places():
    assert drawn(Mask(causal=True), 2, 4) == ["xxx.", "xxxx"]
    assert drawn(Mask(causal=True, window=2), 2, 4) == [".xx.", "..xx"]
    assert drawn(Mask(documents=torch.tensor([[1, 1, 2, 2]])), 2, 4) == ["..xx", "..xx"]


def test_window_looks_to_both_sides_and_back_only_with_causal():
    assert drawn(Mask(window=2), 4, 4) == ["xx..", "xxx.", ".xxx", "..xx"]
    assert drawn(Mask(window=1), 2, 2) == ["x.", ".x"]
    assert drawn(Mask(window=2, causal=True), 4, 4) == ["x...", "xx..", ".xx.", "..xx"]


def test_lengths():
    assert drawn(Mask(lengths=torch.tensor([2, 0])), 2, 3) == ["xx.", "xx.", "...", "..."]


def test_documents_and_padding():
    documents = torch.tensor([[1, 1, 2, 0, 0]])
    assert drawn(Mask(documents=documents), 5, 5) == ["xx...", "xx...", "..x..", "...xx", "...xx"]


def test_shapes():
    assert Mask(causal=True, window=2).tensor(3, 3).shape == (3, 3)
    assert Mask(lengths=torch.tensor([1, 2])).tensor(3, 4).shape == (2, 1, 3, 4)
    assert Mask(documents=torch.ones(2, 4).long(), causal=True).tensor(3, 4).shape == (2, 1, 3, 4)


def test_nothing_hidden_is_none():
    assert Mask().tensor(3, 3) is None
    assert Mask(causal=True).tensor(1, 7) is None  # the newest token sees everything
    assert Mask().bias(3, 3).tensor is None
    assert not Mask().bias(3, 3).causal


def test_only_plain_causal_is_kept_as_a_word():
    assert Mask(causal=True).bias(4, 4).causal
    for mask, T, S in [
        (Mask(causal=True), 2, 4),
        (Mask(causal=True, window=2), 4, 4),
        (Mask(causal=True, lengths=torch.tensor([3])), 4, 4),
        (Mask(causal=True, documents=torch.ones(1, 4).long()), 4, 4),
    ]:
        bias = mask.bias(T, S)
        assert not bias.causal
        assert torch.equal(bias.tensor, mask.tensor(T, S))


@st.composite
def masks(draw, B: int = 2, S: int = 5) -> Mask:
    def rows(low: int, high: int, *shape: int) -> torch.Tensor:
        n = math.prod(shape)
        return torch.tensor(draw(st.lists(st.integers(low, high), min_size=n, max_size=n))).reshape(shape)

    return Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, S)),
        lengths=draw(st.just(None) | st.builds(lambda: rows(0, S, B))),
        documents=draw(st.just(None) | st.builds(lambda: rows(0, 3, B, S))),
    )


def by_hand(mask: Mask, T: int, S: int, B: int = 2) -> torch.Tensor:
    """The definition, one pair of tokens at a time."""
    visible = torch.zeros(B, 1, T, S, dtype=torch.bool)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                query = S - T + t
                visible[b, 0, t, s] = (
                    (not mask.causal or s <= query)
                    and (mask.window is None or abs(s - query) < mask.window)
                    and (mask.lengths is None or s < mask.lengths[b])
                    and (mask.documents is None or bool(mask.documents[b, s] == mask.documents[b, query]))
                )
    return visible


def full(mask: Mask, T: int, S: int) -> torch.Tensor:
    visible = mask.tensor(T, S)
    return torch.ones(2, 1, T, S, dtype=torch.bool) if visible is None else visible.expand(2, 1, T, S)


@settings(max_examples=60, deadline=None)
@given(masks(), st.integers(1, 5))
def test_tensor_is_the_definition(mask, T):
    assert torch.equal(full(mask, T, 5), by_hand(mask, T, 5))


@settings(max_examples=60, deadline=None)
@given(masks(), masks(), st.integers(1, 5))
def test_and_is_visible_in_both(a, b, T):
    assert torch.equal(full(a & b, T, 5), full(a, T, 5) & full(b, T, 5))
    assert torch.equal(full(b & a, T, 5), full(a & b, T, 5))
    assert torch.equal(full(a & Mask(), T, 5), full(a, T, 5))


def test_and_of_two_of_a_kind():
    first, second = torch.tensor([[0, 1, 1, 2]]), torch.tensor([[1, 0, 1, 0]])
    assert drawn(Mask(documents=first) & Mask(documents=second), 4, 4) == ["x...", ".x..", "..x.", "...x"]
    assert drawn(Mask(documents=first) & Mask(documents=first), 4, 4) == ["x...", ".xx.", ".xx.", "...x"]
    lengths = (Mask(lengths=torch.tensor([1, 3])) & Mask(lengths=torch.tensor([2, 2]))).lengths
    assert lengths.tolist() == [1, 2]
    assert (Mask(window=3) & Mask(window=2)).window == 2


def test_masks_and_biases_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Mask().causal = True
    with pytest.raises(dataclasses.FrozenInstanceError):
        Bias().causal = True


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_without_the_token_itself_is_refused(window):
    with pytest.raises(UnmaskError, match="at least 1"):
        Mask(window=window)


def test_bias_adds_up():
    added = torch.randn(2, 3, 3)
    assert torch.equal(Bias().plus(added).tensor, added)
    assert torch.equal(Bias(added).plus(added).tensor, 2 * added)
    hidden = torch.ones(3, 3).triu(1).bool()
    causal = Bias(causal=True).plus(added)
    assert not causal.causal
    assert torch.equal(causal.tensor, added.masked_fill(hidden, -math.inf))
    assert torch.equal(Bias(~hidden).plus(added).tensor, causal.tensor)
    assert Bias(~hidden).plus(None).tensor.dtype is torch.bool
    assert torch.equal(Bias(~hidden).added(torch.bfloat16), torch.zeros(3, 3).masked_fill(hidden, -math.inf).bfloat16())
    assert torch.equal(Bias(added).added(torch.bfloat16), added.bfloat16())
    assert Bias(causal=True).added(torch.float32) is None


def test_causal_beside_a_tensor_is_refused():
    with pytest.raises(UnmaskError, match="causal"):
        Bias(torch.zeros(2, 2), causal=True)

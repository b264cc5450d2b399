"""Caches: what continues from a cache is what a forward over all tokens says; hypotheses see their own past alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.nn import (
    ALiBi,
    Attention,
    Block,
    FeedForward,
    KeyValues,
    Mask,
    Position,
    Residual,
    Rotary,
    Stack,
    T5Bias,
    TransformerXL,
)

D, H, S = 16, 4, 5


def randomised(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(0.0, 0.3, generator=generator)
    return module.double().eval().requires_grad_(False)


def stack(*, position: Position | None = None, own: Position | None = None, order: list[int] | None = None) -> Stack:
    def block() -> Block:
        return Block(
            Residual(Attention(D, H, kv_heads=2, position=own), before=nn.LayerNorm(D)),
            Residual(FeedForward(D, 24, F.relu), before=nn.LayerNorm(D)),
            Residual(Attention(D, H), before=nn.LayerNorm(D)),
        )

    made = randomised(Stack([block(), block()], order=order, position=position, norm=nn.LayerNorm(D)))
    assert isinstance(made, Stack)
    return made


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_a_sequence_continued_in_pieces_is_the_sequence(pieces: list[int]) -> None:
    parts = stack()
    x, memory = random(3, sum(pieces), D), random(3, S, D, seed=2)
    mask = Mask(lengths=torch.tensor([5, 1, 3]))
    whole = parts(x, mask=Mask(causal=True), memory=memory, memory_mask=mask)
    cache = parts.begin(memory, memory_mask=mask)
    same(torch.cat([parts(piece, cache=cache) for piece in x.split(pieces, 1)], 1), whole)
    assert cache.length == sum(pieces)


@pytest.mark.parametrize("order", [None, [0, 0, 1]])
@pytest.mark.parametrize(
    ("shared", "own"),
    [
        (T5Bias(H, causal=True), None),
        (None, Rotary(D // H)),
        (None, TransformerXL(D, H)),
        (ALiBi(H), None),
        (None, ALiBi(H)),
    ],
)
def test_every_position_scheme_goes_on(shared: Position | None, own: Position | None, order: list[int] | None) -> None:
    if isinstance(own, TransformerXL):
        own.double()
    parts = stack(position=shared, own=own, order=order)
    x, memory = random(2, 7, D), random(2, S, D, seed=2)
    cache = parts.begin(memory)
    pieces = [parts(piece, cache=cache) for piece in x.split([3, 1, 1, 2], 1)]
    same(torch.cat(pieces, 1), parts(x, mask=Mask(causal=True), memory=memory))


@settings(max_examples=20)
@given(st.sampled_from(["rotary", "t5", "alibi"]), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10_000))
def test_hypotheses_that_are_repeated_reordered_and_dropped_keep_their_own_past(
    scheme: str, B: int, W: int, seed: int
) -> None:
    """Also where the Stack adds to the scores what the distance of two tokens says."""
    shared = {"t5": lambda: T5Bias(H, 8, 16, causal=True), "alibi": lambda: ALiBi(H)}
    parts = stack(position=shared[scheme]()) if scheme in shared else stack(own=Rotary(D // H))
    generator = torch.Generator().manual_seed(seed)
    memory = random(B, S, D, seed=seed + 1)
    lengths = torch.randint(1, S + 1, (B,), generator=generator)
    cache = parts.begin(memory, memory_mask=Mask(lengths=lengths), width=W)
    source = torch.arange(B).repeat_interleave(W)  # of each hypothesis
    past = torch.zeros(B * W, 0, D, dtype=torch.float64)
    for step in range(25):
        x = random(len(source), D, seed=seed + step)
        past = torch.cat([past, x[:, None]], 1)
        said = parts(x.view(-1, W, D), cache=cache).flatten(0, 1)
        if step % 6 == 0:
            mask = Mask(lengths=lengths[source])
            same(said, parts(past, mask=Mask(causal=True), memory=memory[source], memory_mask=mask)[:, -1])
        groups = torch.randperm(len(source) // W, generator=generator)
        if step % 4 == 0 and len(groups) > 1:
            groups = groups[1:]
        rows = (groups[:, None] * W + torch.randint(W, (len(groups), W), generator=generator)).flatten()
        cache.select(rows)
        source, past = source[rows], past[rows]


def test_the_past_is_neither_copied_for_each_token_nor_held_twice() -> None:
    kept = KeyValues()
    places = set()
    for _ in range(300):
        kept.extend(torch.ones(2, 1, 1, 4), torch.ones(2, 1, 1, 4))
        places.add(kept.keys.data_ptr())
    assert len(places) <= 6  # each twice the one before
    parts = stack()
    cache = parts.begin(random(2, S, D), width=3)
    parts(random(2, 3, D), cache=cache)
    before = [block.own.keys.data_ptr() for block in cache.blocks]
    cache.select(torch.tensor([2, 2, 0, 5, 5, 5]))  # another beam of the same sources: no key moves
    assert [block.own.keys.data_ptr() for block in cache.blocks] == before
    assert all(block.memory is not None and block.memory.keys.shape == (2, H, S, D // H) for block in cache.blocks)


def test_a_memory_is_projected_once() -> None:
    attention = randomised(Attention(D, H))
    assert isinstance(attention, Attention)
    x, memory = random(2, 3, D), random(2, S, D, seed=2)
    same(attention(x, attention.project(memory)), attention(x, memory))


def test_what_cannot_be_continued_is_refused() -> None:
    parts = stack()
    cache = parts.begin(random(2, S, D), width=3)
    with pytest.raises(UnmaskError, match="Each of the 3 hypotheses of a source needs one token, but 2 were given"):
        parts(random(2, 2, D), cache=cache)
    with pytest.raises(UnmaskError, match="neither a mask"):
        parts(random(2, 3, D), cache=cache, mask=Mask(causal=True))
    with pytest.raises(UnmaskError, match="none was given"):
        parts(random(2, 1, D), cache=parts.begin())
    for scheme in (ALiBi(H), T5Bias(H), TransformerXL(D, H)):
        with pytest.raises(UnmaskError, match="several hypotheses"):
            stack(own=scheme).begin(random(2, S, D), width=2)
    with pytest.raises(UnmaskError, match="at least one hypothesis"):
        parts.begin(random(2, S, D), width=0)
    with pytest.raises(UnmaskError, match="have no positions"):
        Attention(D, H, position=Rotary(D // H)).project(torch.zeros(1, S, D))

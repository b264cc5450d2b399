"""Pairing: batches equal those written out by hand; steps of equal size, of pairs of similar lengths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.bitext.batching import PairRows, PairSource, collate_pairs, pairs, source_batch
from unmask.errors import UnmaskError
from unmask.types import Kind

PAD, START, END = 0, 1, 2

sentences = st.lists(st.integers(3, 99), max_size=7)


def pairs_of(count, rng, longest=30):
    sizes = rng.integers(0, longest, count)
    sources = [rng.integers(3, 99, n) for n in sizes]
    return sources, [rng.integers(3, 99, max(0, n + d)) for n, d in zip(sizes, rng.integers(-3, 4, count), strict=True)]


def test_a_batch_by_hand():
    batch = collate_pairs([[5], [6, 7]], [[8, 9, 10], [11]], PAD, START, END)
    assert batch.tokens.tolist() == [[1, 8, 9, 10], [1, 11, 0, 0]]
    assert batch.documents.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch.source.tokens.tolist() == [[5, 2, 0], [6, 7, 2]]
    assert batch.source.documents.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.source.lengths.tolist() == [2, 3]
    target = batch.targets["next"]
    assert target.places.tolist() == [0, 1, 2, 3, 4, 5]
    assert target.values.tolist() == [8, 9, 10, 2, 11, 2]
    assert (batch.tokens.dtype, target.places.dtype, target.values.dtype) == (torch.int64,) * 3


def test_no_documents_without_padding():
    batch = collate_pairs([[5, 6], [7, 8]], [[9], [10, 11]], PAD, START, END)
    assert batch.source.documents is None
    assert batch.documents is not None
    assert collate_pairs([[5], []], [[9], [10]], PAD, START, END).documents is None


@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8))
def test_a_batch_gives_back_its_pairs(both):
    sources, targets = (list(side) for side in zip(*both, strict=True))
    batch = collate_pairs(sources, [np.array(t, np.int64) for t in targets], PAD, START, END)
    for part, expected in ((batch.source, [[*s, END] for s in sources]), (batch, [[START, *t] for t in targets])):
        real = torch.ones_like(part.tokens) if part.documents is None else part.documents
        assert [row[keep > 0].tolist() for row, keep in zip(part.tokens, real, strict=True)] == expected
        assert (part.tokens[real == 0] == PAD).all()
        assert (part.documents is None) == bool((real == 1).all())
    target = batch.targets["next"]
    assert target.values.tolist() == [y for t in targets for y in (*t, END)]
    assert (target.places.diff() > 0).all()
    width = batch.tokens.shape[1]
    inside = target.places[target.values != END]  # the token after a place is its target
    assert torch.equal(batch.tokens.flatten()[inside + 1], target.values[target.values != END])
    assert (target.places // width).bincount().tolist() == [len(t) + 1 for t in targets]
    read = source_batch(sources, PAD, END)
    assert torch.equal(read.tokens, batch.source.tokens)
    assert (read.documents is None) == (batch.source.documents is None)


def load(sources, targets, tokens=256, **options):
    return pairs(PairSource(sources, targets), tokens, PairRows(PAD, START, END), **options)


def test_steps_are_of_equal_size_and_cut_into_micro_batches():
    data = load(*pairs_of(1000, np.random.default_rng(0)), seed=3, window=300, at_once=128)
    steps = [step.batches for step in itertools.islice(data.batches(), data.steps())]
    sizes = [sum(len(batch.targets["next"].values) for batch in step) for step in steps]
    assert max(abs(size - 256) for size in sizes) <= 35
    assert min(len(step) for step in steps) > 1  # micro-batches
    assert max(max(batch.tokens.numel(), batch.source.tokens.numel()) for step in steps for batch in step) < 256


def test_steps_do_not_come_by_length():
    order = load(*pairs_of(1000, np.random.default_rng(0))).blocks.order
    longest = [order.source.longer[order.units(0, i)].max() for i in range(order.blocks)]
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.4
    assert max(order.source.longer) == max(longest)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_have_as_many_micro_batches_as_each_other(ranks):
    """A sharded model is put together once for each of them, by all ranks: none may be waited for in vain."""
    sources, targets = pairs_of(400, np.random.default_rng(2))
    shares = [load(sources, targets, 300, at_once=64, rank=r, ranks=ranks).batches() for r in range(ranks)]
    counts = [[len(next(share)[0]) for share in shares] for _ in range(40)]
    assert all(len(set(each)) == 1 for each in counts)
    assert max(max(counts)) > 1


def padding(data):
    """Share of the cells of the first epoch, of both sides, that hold no token."""
    batches = [batch for step in itertools.islice(data.batches(), data.steps()) for batch in step.batches]
    cells = sum(batch.tokens.numel() + batch.source.tokens.numel() for batch in batches)
    return 1 - sum(batch.real_tokens for batch in batches) / cells


def test_padding_is_small():
    sources, targets = pairs_of(20_000, np.random.default_rng(4), longest=25)
    assert padding(load(sources, targets, 2048)) < 0.05
    assert padding(load(sources, targets, 2048, window=1)) > 0.3  # without sorting


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 3), st.integers(1, 200))
def test_every_rank_always_has_a_pair_or_there_is_an_error(sizes, ranks, tokens):
    targets = [[3] * n for n in sizes]
    if min(tokens, sum(sizes) + len(sizes)) < ranks * (max(sizes) + 1):
        with pytest.raises(UnmaskError, match="leave the longest rows out"):
            load(targets, targets, tokens, ranks=ranks)
        return
    order = load(targets, targets, tokens, ranks=ranks).blocks.order
    counts = [len(order.units(epoch, i)) for epoch in range(2) for i in range(order.blocks)]
    assert min(counts) >= ranks
    assert sum(counts) == 2 * len(sizes)


@pytest.mark.parametrize(
    ("sources", "targets", "more", "message"),
    [
        ([], [], {}, "no pairs"),
        ([[3]], [], {}, "1 sources but 0 targets"),
        ([[3]], [[3]], {"tokens": 0}, "at least 1 token, not 0"),
        ([[3]] * 2, [[3]] * 2, {"rank": 2, "ranks": 2}, "rank 2 of 2"),
        ([[3]], [[3]], {"seed": -1}, "must be 0 or more, not -1"),
        ([[3]], [[3] * 5000], {"tokens": 4096}, "Steps of 4,096 tokens cannot .* up to 5,001"),
    ],
)
def test_errors(sources, targets, more, message):
    with pytest.raises(UnmaskError, match=message):
        load(sources, targets, **more)
    with pytest.raises(UnmaskError, match="1 sources but 2 targets"):
        collate_pairs([[3]], [[3], [4]], PAD, START, END)


def test_sources_may_be_vectors():
    vectors = np.random.default_rng(0).normal(size=(9, 1, 4)).astype(np.float32)
    targets = [list(range(3, 3 + n)) for n in range(9)]
    batch = collate_pairs(list(vectors[:3]), targets[:3], PAD, START, END)
    assert batch.source.documents is None
    assert batch.real_tokens == 3 + 3 + 0 + 1 + 2  # vectors, starts, tokens
    assert (batch.source.tokens == Kind.SIGNAL).all()
    assert torch.equal(batch.source.signal.values, torch.from_numpy(vectors[:3, 0]))
    assert torch.equal(batch.tokens, collate_pairs([[]] * 3, targets[:3], PAD, START, END).tokens)
    assert torch.equal(source_batch(list(vectors), PAD, END).signal.values, torch.from_numpy(vectors[:, 0]))
    data = load(list(vectors), targets, 12)
    seen = []
    for micro, _ in itertools.islice(data.batches(), data.steps()):
        for one in micro:
            for row, length in zip(one.source.signal.values, (one.tokens != PAD).sum(1).tolist(), strict=True):
                assert torch.equal(row, torch.from_numpy(vectors[length - 1, 0]))  # still with its own target
                seen.append(length - 1)
    assert sorted(seen) == list(range(9))

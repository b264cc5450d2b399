"""Pairing: batches equal those written out by hand; every pair once an epoch, exact resume, equal steps, all ranks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.data import pairing
from unmask.data.pairing import Pairs, collate_pairs, source_batch
from unmask.errors import UnmaskError
from unmask.types import Kind

PAD, START, END = 0, 1, 2
SPECIAL = {"pad": PAD, "start": START, "end": END}

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
def test_a_batch_gives_back_its_pairs(pairs):
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
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


def rows(batches):
    """(source, target) of every row of some micro-batches, as tuples."""
    found = []
    for batch in batches:
        own, source = batch.lengths, batch.source.lengths
        for i in range(len(batch.tokens)):
            t = batch.tokens[i] if own is None else batch.tokens[i, : own[i]]
            s = batch.source.tokens[i] if source is None else batch.source.tokens[i, : source[i]]
            found.append((tuple(s[:-1].tolist()), tuple(t[1:].tolist())))
    return found


def test_every_pair_once_an_epoch_in_steps_of_equal_size(monkeypatch):
    monkeypatch.setattr(Pairs, "window", 300)
    monkeypatch.setattr(Pairs, "at_once", 128)
    sources, targets = pairs_of(1000, np.random.default_rng(0))
    data = Pairs(sources, targets, 256, **SPECIAL, seed=3)
    expected = sorted((tuple(s.tolist()), tuple(t.tolist())) for s, t in zip(sources, targets, strict=True))
    stream, epochs = data.batches(None), []
    for _ in range(2):
        steps = [next(stream)[0] for _ in range(data.steps_per_epoch)]
        assert sorted(row for step in steps for row in rows(step)) == expected
        sizes = [sum(len(batch.targets["next"].values) for batch in step) for step in steps]
        assert max(abs(size - 256) for size in sizes) <= 35
        assert min(len(step) for step in steps) > 1  # micro-batches
        assert max(max(batch.tokens.numel(), batch.source.tokens.numel()) for step in steps for batch in step) < 256
        epochs.append([rows(step) for step in steps])
    assert epochs[0] != epochs[1]


def test_steps_do_not_come_by_length():
    sources, targets = pairs_of(1000, np.random.default_rng(0))
    data = Pairs(sources, targets, 256, **SPECIAL)
    longest = [data.longer[data.step(i)].max() for i in range(data.steps_per_epoch)]
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.4
    assert max(data.longer) == max(longest)


def test_resuming_anywhere_is_exact():
    sources, targets = pairs_of(300, np.random.default_rng(1))
    data = Pairs(sources, targets, 400, **SPECIAL, seed=5)
    taken = list(itertools.islice(data.batches(None), 2 * data.steps_per_epoch + 3))
    for cut in (0, 1, data.steps_per_epoch - 1, data.steps_per_epoch, len(taken) - 2):
        fresh = Pairs(sources, targets, 400, **SPECIAL, seed=5)
        again = list(itertools.islice(fresh.batches(taken[cut][1]), len(taken) - cut - 1))
        assert [rows(b) for b, _ in again] == [rows(b) for b, _ in taken[cut + 1 :]]
        assert [position for _, position in again] == [position for _, position in taken[cut + 1 :]]
    other = Pairs(sources, targets, 400, **SPECIAL, seed=6)
    assert rows(next(other.batches())[0]) != rows(taken[0][0])


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_steps_of_one(ranks):
    sources, targets = pairs_of(400, np.random.default_rng(2))
    alone = Pairs(sources, targets, 300, **SPECIAL).batches()
    shares = [Pairs(sources, targets, 300, **SPECIAL, rank=r, ranks=ranks).batches() for r in range(ranks)]
    for _ in range(40):
        parts = [rows(next(share)[0]) for share in shares]
        assert all(parts)
        assert sorted(row for part in parts for row in part) == sorted(rows(next(alone)[0]))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_have_as_many_micro_batches_as_each_other(ranks, monkeypatch):
    """A sharded model is put together once for each of them, by all ranks: none may be waited for in vain."""
    monkeypatch.setattr(Pairs, "at_once", 64)
    sources, targets = pairs_of(400, np.random.default_rng(2))
    shares = [Pairs(sources, targets, 300, **SPECIAL, rank=r, ranks=ranks).batches() for r in range(ranks)]
    counts = [[len(next(share)[0]) for share in shares] for _ in range(40)]
    assert all(len(set(each)) == 1 for each in counts)
    assert max(max(counts)) > 1


def test_padding_is_small_and_counted_as_it_is(monkeypatch):
    sources, targets = pairs_of(20_000, np.random.default_rng(4), longest=25)
    data = Pairs(sources, targets, 2048, **SPECIAL)
    batches = [b for step, _ in itertools.islice(data.batches(), data.steps_per_epoch) for b in step]
    cells = sum(b.tokens.numel() + b.source.tokens.numel() for b in batches)
    assert data.padding == pytest.approx(1 - sum(b.real_tokens for b in batches) / cells)
    assert data.padding < 0.05
    monkeypatch.setattr(Pairs, "window", 1)
    assert Pairs(sources, targets, 2048, **SPECIAL).padding > 0.3  # without sorting


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 3), st.integers(1, 200))
def test_every_rank_always_has_a_pair_or_there_is_an_error(sizes, ranks, tokens):
    targets = [[3] * n for n in sizes]
    if min(tokens, sum(sizes) + len(sizes)) < ranks * (max(sizes) + 1):
        with pytest.raises(UnmaskError, match="leave the longest pairs out"):
            Pairs(targets, targets, tokens, **SPECIAL, ranks=ranks)
        return
    data = Pairs(targets, targets, tokens, **SPECIAL, ranks=ranks)
    counts = [len(data.step(i)) for i in range(2 * data.steps_per_epoch)]
    assert min(counts) >= ranks
    assert sum(counts) == 2 * len(sizes)


@pytest.mark.parametrize(
    ("sources", "targets", "more", "message"),
    [
        ([], [], {}, "no pairs"),
        ([[3]], [], {}, "1 sources but 0 targets"),
        ([[3]], [[3]], {"tokens": 0}, "0 tokens"),
        ([[3]], [[3]], {"rank": 2, "ranks": 2}, "rank 2 of 2"),
        ([[3]], [[3]], {"seed": -1}, "seed -1"),
        ([[3]], [[3] * 5000], {}, "Steps of 4,096 target tokens, cannot .* up to 5,001"),
    ],
)
def test_errors(sources, targets, more, message):
    with pytest.raises(UnmaskError, match=message):
        Pairs(sources, targets, **SPECIAL, **more)
    with pytest.raises(UnmaskError, match="1 sources but 2 targets"):
        collate_pairs([[3]], [[3], [4]], PAD, START, END)


@pytest.mark.parametrize("position", [{}, {"epoch": 0, "block": 0, "row": 0}, {"step": -1}, {"step": "1"}])
def test_foreign_positions(position):
    with pytest.raises(UnmaskError, match="is not one of these pairs"):
        next(Pairs([[3]], [[3]], **SPECIAL).batches(position))


def test_constants_are_those_of_the_class():
    assert (Pairs.window, Pairs.at_once) == (pairing.WINDOW, pairing.TOKENS_AT_ONCE)


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
    pairs = Pairs(list(vectors), targets, 12, **SPECIAL)
    seen = []
    for micro, _ in itertools.islice(pairs.batches(), pairs.steps_per_epoch):
        for one in micro:
            for row, length in zip(one.source.signal.values, (one.tokens != PAD).sum(1).tolist(), strict=True):
                assert torch.equal(row, torch.from_numpy(vectors[length - 1, 0]))  # still with its own target
                seen.append(length - 1)
    assert sorted(seen) == list(range(9))

"""Properties of packing: nothing is lost, doubled or moved away from its targets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.collate import pack, pad
from unmask.types import Batch, Example, concatenate

PAD = 0


@st.composite
def example_lists(draw: st.DrawFn, least: int = 0) -> tuple[list[Example], int]:
    """Examples whose tokens are all different, with targets whose value is the token at their place, and a length."""
    length = draw(st.integers(1, 24))
    sizes = draw(st.lists(st.integers(1, length), min_size=least, max_size=30))
    examples, token = [], 1
    for size in sizes:
        tokens = np.arange(token, token + size)
        token += size
        segments = draw(st.sampled_from([None, tokens % 2]))
        targets = {}
        for name in draw(st.lists(st.sampled_from("abc"), unique=True)):
            places = np.array(draw(st.lists(st.integers(0, size - 1), unique=True)), np.int64)
            targets[name] = (places, tokens[places])
        examples.append(Example(tokens, segments, targets))
    return examples, length


def holds_exactly(batch: Batch, examples: list[Example]) -> None:
    """The batch says the same as the examples, each told by its own start."""
    tokens = batch.tokens.flatten().numpy()
    width = batch.tokens.shape[1]
    documents = np.ones_like(tokens) if batch.documents is None else batch.documents.flatten().numpy()
    positions = np.tile(np.arange(width), len(batch.tokens)) if batch.positions is None else batch.positions.flatten()
    segments = np.zeros_like(tokens) if batch.segments is None else batch.segments.flatten().numpy()
    used = np.zeros(len(tokens), int)
    assert len(batch.starts) == len(examples)
    for start, example in zip(batch.starts.tolist(), examples, strict=True):
        here = slice(start, start + len(example.tokens))
        assert start // width == (here.stop - 1) // width, "a sequence never runs over the end of its row"
        assert tokens[here].tolist() == example.tokens.tolist()
        assert positions[here].tolist() == list(range(len(example.tokens)))
        assert (
            segments[here].tolist() == (0 * example.tokens if example.segments is None else example.segments).tolist()
        )
        assert len(set(documents[here].tolist())) == 1
        used[here] += 1
    assert used.max(initial=0) <= 1
    assert (documents[used == 0] == 0).all()
    assert (documents[used == 1] > 0).all()
    assert (tokens[used == 0] == PAD).all()
    for row in documents.reshape(-1, width):
        real = row[row > 0]  # numbered 1, 2, … from left to right
        assert (np.diff(real) >= 0).all()
        assert sorted(set(real.tolist())) == list(range(1, int(row.max(initial=0)) + 1))
    expected: dict[str, list[int]] = {}
    for example in examples:
        for name, (_, values) in example.targets.items():
            expected.setdefault(name, []).extend(values.tolist())
    assert set(batch.targets) == set(expected)
    for name, target in batch.targets.items():
        assert target.places.tolist() == sorted(target.places.tolist())
        assert tokens[target.places.numpy()].tolist() == target.values.tolist(), "a value stays with its token"
        assert sorted(target.values.tolist()) == sorted(expected[name])


@given(example_lists())
@settings(max_examples=150, deadline=None)
def test_pack_holds_every_token_once(drawn: tuple[list[Example], int]) -> None:
    examples, length = drawn
    batch = pack(examples, length, PAD)
    assert batch.tokens.shape[1] == length
    holds_exactly(batch, examples)
    total = sum(len(example.tokens) for example in examples)
    assert batch.real_tokens == total
    # Any two rows of a fit hold more than one row's worth together, so less than half can be padding but for one row.
    assert len(batch.tokens) <= 2 * -(-total // length)


@given(example_lists(), st.integers(1, 16))
@settings(max_examples=60, deadline=None)
def test_pad_holds_every_token_once(drawn: tuple[list[Example], int], multiple: int) -> None:
    examples, _ = drawn
    batch = pad(examples, PAD, multiple)
    assert len(batch.tokens) == len(examples)
    if examples:
        holds_exactly(batch, examples)


@given(example_lists(least=1), st.data())
@settings(max_examples=100, deadline=None)
def test_slices_put_together_again_are_the_whole(drawn: tuple[list[Example], int], data: st.DataObject) -> None:
    batch = pack(drawn[0], drawn[1], PAD)
    rows = len(batch.tokens)
    cuts = sorted(data.draw(st.sets(st.integers(0, rows))) | {0, rows})
    joined = concatenate([batch.rows(a, b) for a, b in pairwise(cuts)])
    for name in ("tokens", "documents", "positions", "segments"):
        whole, again = getattr(batch, name), getattr(joined, name)
        assert (whole is None) == (again is None)
        assert whole is None or torch.equal(whole, again)
    assert sorted(joined.starts.tolist()) == sorted(batch.starts.tolist())
    for name, target in batch.targets.items():
        assert torch.equal(joined.targets[name].places, target.places)
        assert torch.equal(joined.targets[name].values, target.values)


@given(example_lists(least=1), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_permuted_rows_say_the_same(drawn: tuple[list[Example], int], seed: int) -> None:
    examples, length = drawn
    batch = pack(examples, length, PAD)
    order = np.random.default_rng(seed).permutation(len(batch.tokens))
    moved = batch.take(order)
    assert torch.equal(moved.tokens, batch.tokens[torch.from_numpy(order)])
    holds_exactly(moved, examples)


@given(example_lists(), example_lists())
@settings(max_examples=60, deadline=None)
def test_concatenated_batches_hold_the_examples_of_both(one: tuple[list, int], two: tuple[list, int]) -> None:
    length = max(one[1], two[1])
    shift = 1_000  # tokens stay different
    second = [
        Example(e.tokens + shift, e.segments, {k: (p, v + shift) for k, (p, v) in e.targets.items()}) for e in two[0]
    ]
    joined = concatenate([pack(one[0], length, PAD), pack(second, length, PAD)])
    holds_exactly(joined, one[0] + second)

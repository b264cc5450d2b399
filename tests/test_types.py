"""Batch: rows that are cut keep their starts and targets; nothing is lost and nothing is shared by accident."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from unmask.types import Batch, Loss, Target


@st.composite
def batches(draw) -> Batch:
    """Packed rows with ragged sequences, padding at the end of a row, and two kinds of targets."""
    rows, width = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    documents = torch.zeros(rows, width, dtype=torch.long)
    positions = torch.zeros(rows, width, dtype=torch.long)
    starts: list[int] = []
    for row in range(rows):
        place, number = 0, 0
        while place < width and draw(st.integers(0, 3)):
            length, number = draw(st.integers(1, width - place)), number + 1
            documents[row, place : place + length] = number
            positions[row, place : place + length] = torch.arange(length)
            starts.append(row * width + place)
            place += length
    order = draw(st.permutations(range(len(starts))))
    places = sorted(draw(st.sets(st.integers(0, rows * width - 1))))
    targets = {
        "mlm": Target(torch.tensor(places, dtype=torch.long), torch.arange(len(places))),
        "nsp": Target(torch.tensor(sorted(starts), dtype=torch.long), torch.ones(len(starts))),
    }
    return Batch(
        torch.arange(rows * width).reshape(rows, width),
        documents=documents if draw(st.booleans()) else None,
        positions=positions if draw(st.booleans()) else None,
        segments=torch.arange(rows * width).reshape(rows, width) % 2 if draw(st.booleans()) else None,
        starts=torch.tensor([starts[i] for i in order], dtype=torch.long),
        targets=targets,
    )


def cut(batch: Batch, data: st.DataObject) -> list[Batch]:
    rows = batch.tokens.shape[0]
    bounds = sorted(data.draw(st.sets(st.integers(1, rows))) | {0, rows})
    return [batch.rows(a, b) for a, b in pairwise(bounds)]


@given(batches(), st.data())
def test_parts_make_up_the_whole(batch, data):
    parts = cut(batch, data)
    for name in ("tokens", "documents", "positions", "segments"):
        whole = getattr(batch, name)
        if whole is None:
            assert all(getattr(part, name) is None for part in parts)
        else:
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), whole)
    flat = batch.tokens.flatten()
    for name, target in batch.targets.items():
        # A place names the same token, with the same value, in the part as in the whole.
        tokens = torch.cat([part.tokens.flatten()[part.targets[name].places] for part in parts])
        assert torch.equal(tokens, flat[target.places])
        assert torch.equal(torch.cat([part.targets[name].values for part in parts]), target.values)
        assert sum(part.counts[name] for part in parts) == batch.counts[name]
    starts = torch.cat([part.tokens.flatten()[part.starts] for part in parts])
    assert torch.equal(starts.sort().values, flat[batch.starts].sort().values)
    assert sum(part.real_tokens for part in parts) == batch.real_tokens


@given(batches())
def test_starts_of_a_part_keep_the_order_of_the_examples(batch):
    rows, width = batch.tokens.shape
    for row in range(rows):
        mine = [int(s) - row * width for s in batch.starts if int(s) // width == row]
        assert batch.rows(row, row + 1).starts.tolist() == mine


def test_rows_beyond_the_end_are_left_out():
    batch = Batch(torch.zeros(2, 3, dtype=torch.long), targets={"a": Target(torch.tensor([5]), torch.tensor([1]))})
    tail = batch.rows(1, 10)
    assert tail.tokens.shape == (1, 3)
    assert tail.targets["a"].places.tolist() == [2]
    assert tail.starts is None


@given(batches())
def test_counts_and_real_tokens(batch):
    assert batch.counts == {name: len(target.places) for name, target in batch.targets.items()}
    expected = batch.tokens.numel() if batch.documents is None else int(batch.documents.ne(0).sum())
    assert batch.real_tokens == expected


@given(batches())
def test_moving_keeps_every_value(batch):
    moved = batch.to("cpu")
    for name in ("tokens", "documents", "positions", "segments", "starts"):
        a, b = getattr(moved, name), getattr(batch, name)
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)
    assert {k: t.places.tolist() for k, t in moved.targets.items()} == {
        k: t.places.tolist() for k, t in batch.targets.items()
    }
    assert all(x.device.type == "meta" for x in tensors(batch.to("meta")))


def tensors(batch: Batch) -> list[Tensor]:
    fields = [getattr(batch, f.name) for f in dataclasses.fields(batch) if f.name != "targets"]
    return [x for x in fields if x is not None] + [x for t in batch.targets.values() for x in (t.places, t.values)]


def test_targets_are_added_without_touching_the_old_batch():
    one = Batch(torch.zeros(1, 2, dtype=torch.long), targets={"a": Target(torch.tensor([0]), torch.tensor([1]))})
    two = one.with_targets(
        b=Target(torch.tensor([1]), torch.tensor([2])), a=Target(torch.tensor([1]), torch.tensor([9]))
    )
    assert two.counts == {"a": 1, "b": 1}
    assert two.targets["a"].values.item() == 9
    assert one.targets["a"].values.item() == 1
    assert set(one.targets) == {"a"}


@pytest.mark.parametrize(
    "value", [Target(torch.zeros(0), torch.zeros(0)), Loss(torch.zeros(()), 0), Batch(torch.zeros(1, 1))]
)
def test_values_are_frozen(value):
    name = dataclasses.fields(value)[0].name
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        setattr(value, name, None)


def test_a_source_goes_along_with_its_rows():
    source = Batch(torch.arange(12).view(4, 3), documents=torch.tensor([[1, 1, 0]] * 4))
    batch = Batch(torch.arange(8).view(4, 2), source=source)
    part = batch.rows(1, 3)
    assert torch.equal(part.source.tokens, source.tokens[1:3])
    assert torch.equal(part.source.documents, source.documents[1:3])
    assert batch.real_tokens == 8 + 8
    assert part.real_tokens == 4 + 4
    assert batch.to("cpu").source.lengths.tolist() == [2, 2, 2, 2]
    assert batch.lengths is None

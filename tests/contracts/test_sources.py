"""Every source, however it is drawn and batched: each unit once an epoch, the same for workers and ranks, resumable."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import contracts_sources
import numpy as np
import pytest
import torch
from contracts_sources import Way, sequences

from unmask.data.loader import Step
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError

NAMES = ["documents", "mixed documents", "rows", "groups", "classes", "pairs", "continued"]
NAMES += ["digits", "shuffled digits", "digits by size"]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Way]:
    folder, rng = tmp_path_factory.mktemp("corpora"), np.random.default_rng(0)
    texts = [
        TextDocument(" ".join(f"{' '.join(rng.choice(list('abcdefghijk'), n))}." for n in rng.integers(2, 9, 6)), "x")
        for _ in range(90)
    ]
    large = corpus.build(texts[:75], folder / "large", vocabulary_size=60, heldout=0.0)
    tiny = corpus.build(texts[75:], folder / "tiny", tokenizer=large.tokenizer, heldout=0.0)
    found = contracts_sources.ways(large.split("train"), tiny.split("train"))
    assert found.keys() == set(NAMES)
    return found


@pytest.fixture(params=NAMES)
def way(request: pytest.FixtureRequest, ways: dict[str, Way]) -> Way:
    return ways[request.param]


def steps(way: Way, count: int, position: dict | None = None, *, workers: int = 0) -> list[Step]:
    return list(islice(way.make(6, 0, 1, workers).batches(position), count))


def same(one: list[Step], two: list[Step]) -> None:
    """Bit for bit: tensors, micro-batches and positions."""
    assert [step.position for step in one] == [step.position for step in two]
    for left, right in zip(one, two, strict=True):
        assert len(left.batches) == len(right.batches)
        for a, b in zip(left.batches, right.batches, strict=True):
            found: list[torch.Tensor] = []
            a.map(found.append)
            others: list[torch.Tensor] = []
            b.map(others.append)
            assert all(torch.equal(x, y) for x, y in zip(found, others, strict=True))


def test_an_epoch_has_every_unit_once_and_the_next_one_another_order(way: Way) -> None:
    if way.batches is None:
        pytest.skip("the ends of its rows are left out: tests/wiring/test_transformer_xl_runs.py")
    expected, epochs, position = Counter(sequences(way.batches())), [[], []], {"epoch": 0}
    for batches, after in way.make(1, 0, 1, 0).batches():
        epochs[position["epoch"]] += sequences(batches)
        position = after
        if position["epoch"] == 2:
            break
    assert [Counter(map(str, epoch)) for epoch in epochs] == [Counter(map(str, expected.elements()))] * 2
    assert epochs[0] != epochs[1]


@pytest.mark.usefixtures("one_import")
def test_workers_change_nothing(way: Way) -> None:
    same(steps(way, 12), steps(way, 12, workers=2))


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_steps_of_one(way: Way, ranks: int) -> None:
    """Their shares are disjoint, none is empty, and together they are the step; all have as many micro-batches."""
    shares = [islice(way.make(6, rank, ranks, 0).batches(), 20) for rank in range(ranks)]
    for whole, *parts in zip(steps(way, 20), *shares, strict=True):
        assert all(part.position == whole.position for part in parts)
        assert len({len(part.batches) for part in parts}) == 1
        assert all(batch.tokens.numel() for part in parts for batch in part.batches)
        together = [sequence for part in parts for sequence in sequences(part.batches)]
        assert Counter(map(str, together)) == Counter(map(str, sequences(whole.batches)))


def test_a_position_resumes_exactly(way: Way) -> None:
    """Also across the border of an epoch, and from a position as version 0.1 wrote it."""
    count = 40 if not way.counted else way.make(6, 0, 1, 0).steps() + 6
    whole = steps(way, count)
    assert whole[-1].position["epoch"] >= 1
    border = next(i for i, step in enumerate(whole) if step.position["epoch"] == 1)
    for cut in (0, 3, border - 1, border, count - 4):
        same(whole[cut + 1 : cut + 4], steps(way, min(3, count - cut - 1), whole[cut].position))
        if way.counted:
            same(whole[cut + 1 : cut + 3], steps(way, min(2, count - cut - 1), {"step": cut + 1}))


@pytest.mark.parametrize(
    "position", [{}, {"epoch": 0, "block": 10_000, "row": 0}, {"epoch": 0, "block": 0, "row": 999}, {"step": -1}]
)
def test_a_foreign_position_is_refused(way: Way, position: dict[str, int]) -> None:
    with pytest.raises(UnmaskError, match="does not belong to these data"):
        steps(way, 1, position)

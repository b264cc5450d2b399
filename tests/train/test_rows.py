"""AdamW by rows: the same weights as AdamW of whole tables, whatever is read, clipped, skipped, or gone on with."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from train_toy import Tiny

from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.train import rows
from unmask.train.engine import Engine
from unmask.train.metrics import Meter
from unmask.train.optim import ADAFACTOR, Optimizer, gradient_norm, keeps, set_rate, update
from unmask.types import Batch, Loss, Target

V, D = 40, 6


class Reader(nn.Module):
    """A table and a layer upon it."""

    def __init__(self, padding: int | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(V, D, padding_idx=padding)
        self.layer = nn.Linear(D, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.tanh(self.layer(self.table(ids)))


class Small:
    """An objective: small answers."""

    def __init__(self) -> None:
        self.weights = {"answer": 1.0}

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Loss]:
        return {"answer": Loss(model(batch.tokens).square().sum(), batch.tokens.numel())}


def engine() -> Engine:
    torch.manual_seed(0)
    return Engine(Reader(), Small(), Optimizer(), device=torch.device("cpu"), precision="fp32")


def learn(of: Engine, ids: list[int]) -> None:
    tokens = torch.tensor([ids])
    batch = Batch(tokens, targets={"answer": Target(torch.arange(len(ids)), tokens[0])})
    of.step([batch], batch.counts, 0.05, Meter())


@pytest.fixture(autouse=True)
def small_tables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LARGE", V * D)


def both(padding: int | None = None, **settings: float | None) -> list[tuple[Reader, torch.optim.Optimizer, float]]:
    """One model twice, moved by rows and as a whole."""
    torch.manual_seed(0)
    model = Reader(padding)
    config = Optimizer(lr=0.05, **{"weight_decay": 0.1, **settings})
    clip = config.clip
    pair = [
        (one, config.build(one, by_rows=by_rows), clip)
        for one, by_rows in ((copy.deepcopy(model), True), (model, False))
    ]
    assert [one.table.sparse for one, _, _ in pair] == [True, False]
    return pair


def step(
    model: Reader, optimizer: torch.optim.Optimizer, clip: float | None, parts: list[list[int]], **how: float
) -> Tensor:
    """One update on micro-batches of ids; returns the norm of the gradients."""
    optimizer.zero_grad(set_to_none=True)
    for ids in parts:
        model(torch.tensor(ids)).square().sum().mul(how.get("times", 1.0)).backward()
    norm = gradient_norm(model.parameters())
    set_rate(optimizer, how.get("lr", 0.05))
    update(optimizer, norm, clip, 1 - torch.isfinite(norm).float())
    return norm


def same(a: nn.Module, b: nn.Module) -> None:
    for x, y in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(x, y, atol=2e-6, rtol=1e-5)


@given(
    st.lists(
        st.lists(st.lists(st.integers(0, V - 1), min_size=1, max_size=9), min_size=1, max_size=3),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([None, 0.05, 100.0]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_it_is_adamw_whatever_is_read(steps: list[list[list[int]]], clip: float | None, most: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "LARGE", V * D)
        patch.setattr(rows, "MOST", most)
        ours, theirs = both(clip=clip)
        for i, parts in enumerate(steps):
            norms = [step(*one, parts, lr=0.05 / (i + 1)) for one in (ours, theirs)]
            torch.testing.assert_close(*norms)
    same(ours[0], theirs[0])
    for p, q in zip(ours[0].parameters(), theirs[0].parameters(), strict=True):
        for key in ("step", *keeps(ours[1], p)):
            torch.testing.assert_close(ours[1].state[p][key], theirs[1].state[q][key], atol=2e-6, rtol=1e-5)


def test_rows_that_were_never_read_have_no_moments_and_decay() -> None:
    (model, optimizer, clip), _ = both()
    before = model.table.weight.detach().clone()
    step(model, optimizer, clip, [[3, 5, 3]])
    read = torch.zeros(V, dtype=torch.bool)
    read[[3, 5]] = True
    assert torch.equal(optimizer.state[model.table.weight]["exp_avg_sq"].any(1), read)
    torch.testing.assert_close(model.table.weight[~read], before[~read] * (1 - 0.05 * 0.1))
    assert (model.table.weight[read] - before[read]).abs().min() > 1e-3


def test_padding_learns_nothing() -> None:
    ours, theirs = both(padding=0)
    for one in (ours, theirs):
        step(*one, [[0, 4, 0], [0, 0, 7]])
    same(ours[0], theirs[0])
    assert not ours[1].state[ours[0].table.weight]["exp_avg"][0].any()


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    (model, optimizer, clip), _ = both()
    step(model, optimizer, clip, [[1, 2]])
    before, kept = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state[model.table.weight])
    step(model, optimizer, clip, [[2, 3]], times=float("nan"))
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(torch.equal(x, kept[key]) for key, x in optimizer.state[model.table.weight].items())


def test_a_whole_gradient_in_between_is_taken_too() -> None:
    ours, theirs = both()
    for parts in ([[1, 2]], [[2, 30]], [[7]], [[8, 1]]):
        for model, optimizer, clip in (ours, theirs):
            optimizer.zero_grad(set_to_none=True)
            x = model(torch.tensor(parts)).square().sum()
            if parts == [[2, 30]]:  # as of a micro-batch without a target
                x = x + 0.0 * model.table.weight.sum()
            x.backward()
            update(optimizer, gradient_norm(model.parameters()), clip, torch.zeros(()))
    same(ours[0], theirs[0])
    assert ours[1].state[ours[0].table.weight]["exp_avg"][30].any()


def test_a_checkpoint_goes_on_with_the_rows_that_were_read() -> None:
    began, other = engine(), engine()
    for ids in ([1, 2], [3, 3, 4]):
        learn(began, ids)
    learn(other, [1, 30])
    assert isinstance(began.optimizer, rows.RowwiseAdamW)
    other.load(copy.deepcopy(began.tensors()))
    for one in (began, other):
        learn(one, [5, 1])
    found, wanted = other.tensors(), began.tensors()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], x) for name, x in wanted.items())


def test_only_large_tables_that_nobody_writes_with_are_moved_by_rows() -> None:
    small = {"vocabulary": 50, "dim": 8, "layers": 1, "heads": 2, "hidden": 16, "length": 16}
    config = Bert().replace(**small)
    answers, writes = config.build(as_heads({"classification": 2}), seed=0), config.build(as_heads({"mlm": 0}), seed=0)
    assert list(rows.read_alone(answers)) == [answers.embedding.token]
    assert list(rows.read_alone(writes)) == []
    answers.embedding.token.weight.requires_grad_(False)
    assert list(rows.read_alone(answers)) == []
    assert list(rows.read_alone(Tiny())) == []
    assert list(rows.read_alone(Reader().double())) == []


@pytest.mark.parametrize("other", [Optimizer(algorithm="muon"), ADAFACTOR, Optimizer()])
def test_whoever_wants_whole_gradients_gets_them(other: Optimizer) -> None:
    small = {"vocabulary": 50, "dim": 8, "layers": 1, "heads": 2, "hidden": 16, "length": 16}
    model = Bert().replace(**small).build(as_heads({"classification": 2}), seed=0)
    Optimizer().build(model, by_rows=True)
    assert model.embedding.token.sparse
    other.build(model, by_rows=other.algorithm != "auto")
    assert not model.embedding.token.sparse

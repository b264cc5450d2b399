"""Parameter groups, the update, and the learning rate as a function of the step."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from train_toy import Tiny
from transformers import Adafactor, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from unmask.errors import UnmaskError
from unmask.train.optim import Optimizer, Schedule, gradient_norm, keeps, parameter_groups, set_rate, update

Algorithm = Literal["adamw", "adafactor", "muon"]


def test_biases_and_normalisation_do_not_decay() -> None:
    model = Tiny()
    decayed, plain = parameter_groups(model, 0.01)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    assert {names[id(p)] for p in plain["params"]} == {
        *("norm.weight", "norm.bias", "output.bias", "pair.bias"),
        *("blocks.0.bias", "blocks.1.bias"),
    }
    assert "embedding.weight" in {names[id(p)] for p in decayed["params"]}


def test_shared_parameters_are_there_once_and_frozen_ones_not_at_all() -> None:
    model = Tiny()
    model.pair.requires_grad_(False)
    found = [id(p) for group in parameter_groups(model, 0.01) for p in group["params"]]
    assert len(found) == len(set(found))
    assert id(model.output.weight) in found
    assert id(model.pair.weight) not in found


def test_without_factors_the_groups_and_rates_are_the_plain_ones() -> None:
    model, one = Tiny(), Optimizer(lr=3e-3)
    plain, same = one.build(model), one.build(model, scale=lambda name: 1.0)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    for optimizer in (plain, same):
        set_rate(optimizer, 1 / 3)
        assert [group["lr"] for group in optimizer.param_groups] == [1 / 3, 1 / 3]  # the same bits
        found = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
        assert found == [[id(p) for p in matrices], [id(p) for p in vectors]]


def test_every_parameter_gets_its_factor_once() -> None:
    model = Tiny()
    factors = {name: 0.5 ** (i % 4) for i, (name, _) in enumerate(model.named_parameters())}
    groups = parameter_groups(model, 0.01, factors.__getitem__)
    names = {id(p): name for name, p in model.named_parameters()}
    found = {names[id(p)]: group["scale"] for group in groups for p in group["params"]}
    assert found == factors
    assert sum(len(group["params"]) for group in groups) == len(factors)
    assert all((p.ndim > 1) == (group["weight_decay"] > 0) for group in groups for p in group["params"])
    optimizer = Optimizer(lr=0.2).build(model, scale=factors.__getitem__)
    assert {group["lr"] for group in optimizer.param_groups} == {0.2, 0.1, 0.05, 0.025}
    set_rate(optimizer, 0.4)
    assert all(group["lr"] == 0.4 * group["scale"] for group in optimizer.param_groups)


@pytest.mark.parametrize("fused", [True, False])
def test_a_factor_is_a_learning_rate_of_its_own(fused: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    reference = copy.deepcopy(model)
    scale = {"0.weight": 0.1, "0.bias": 0.1, "1.weight": 1.0, "1.bias": 1.0}.__getitem__
    ours = Optimizer(weight_decay=0.1, clip=None).build(model, scale=scale, fused=fused)
    groups = [
        {"params": [p], "lr": 1e-2 * scale(name), "weight_decay": 0.1 if p.ndim > 1 else 0.0}
        for name, p in reference.named_parameters()
    ]
    theirs = torch.optim.AdamW(groups, eps=1e-6, foreach=False)
    for _ in range(4):
        x = torch.randn(4, 5)
        for m in (model, reference):
            m.zero_grad()
            m(x).square().sum().backward()
        set_rate(ours, 1e-2)
        update(ours, gradient_norm(model.parameters()), None, torch.zeros(()))
        theirs.step()
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_what_is_frozen_later_stands_still_and_does_not_count_for_clipping(fused: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    optimizer = Optimizer(lr=0.1, weight_decay=0.5, clip=0.01).build(model, fused=fused)
    model[0].requires_grad_(False)
    before = copy.deepcopy(model.state_dict())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(torch.ones(2, 5)).square().sum().backward()
        norm = gradient_norm(model.parameters())
        trained = [p.grad for p in model.parameters() if p.requires_grad]
        torch.testing.assert_close(norm, torch.cat([g.flatten() for g in trained]).norm())
        update(optimizer, norm, 0.01, torch.zeros(()))

    step()
    assert torch.equal(model[0].weight, before["0.weight"]), "not even the decay moves it"
    assert torch.equal(model[0].bias, before["0.bias"])
    assert not torch.equal(model[1].weight, before["1.weight"])
    assert not any(optimizer.state.get(p) for p in model[0].parameters())
    model[0].requires_grad_(True)
    step()
    assert not torch.equal(model[0].weight, before["0.weight"])
    assert optimizer.state[model[0].weight]["step"] == 1, "its bias correction begins where it is thawed"
    assert optimizer.state[model[1].weight]["step"] == 2


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("clip", [None, 0.05, 1e6])
def test_update_is_clipping_and_then_adamw(fused: bool, clip: float | None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))
    reference = copy.deepcopy(model)
    config = Optimizer(lr=1e-2, clip=clip, weight_decay=0.1)
    ours = config.build(model, fused=fused)
    matrices = [p for p in reference.parameters() if p.ndim > 1]
    vectors = [p for p in reference.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(groups, lr=1e-2, eps=1e-6, foreach=False)
    for _ in range(5):
        x = torch.randn(4, 5)
        for m in (model, reference):
            m.zero_grad()
            m(x).square().sum().backward()
        norm = gradient_norm(model.parameters())
        if clip is not None:
            torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(reference.parameters(), clip))
        update(ours, norm, clip, torch.zeros(()))
        theirs.step()
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_adafactor_is_that_of_transformers(clip: float | None) -> None:
    """Weights of very different sizes, a token without a gradient, and gradients that are small everywhere."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))
    with torch.no_grad():
        model[3].weight.mul_(1e-3)
    reference = copy.deepcopy(model)
    ours = Optimizer(algorithm="adafactor", lr=1e-2, clip=clip, weight_decay=0.0).build(model)
    theirs = Adafactor(reference.parameters(), lr=1e-2, scale_parameter=True, relative_step=False, warmup_init=False)
    for step in range(20):
        x = torch.randint(1, 9, (6,))
        for m in (model, reference):
            m.zero_grad()
            (1e-3 * m(x).square().sum() * (1 + step % 3)).backward()
        norm = gradient_norm(model.parameters())
        if clip is not None:
            nn.utils.clip_grad_norm_(reference.parameters(), clip)
        set_rate(ours, 1e-2 / (1 + step))
        theirs.param_groups[0]["lr"] = 1e-2 / (1 + step)
        update(ours, norm, clip, torch.zeros(()))
        theirs.step()
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("algorithm", ["adamw", "adafactor", "muon"])
def test_what_is_kept_of_the_parameters_is_counted(algorithm: Algorithm) -> None:
    blocks = nn.ModuleList([nn.Linear(5, 7), nn.LayerNorm(7)])
    model = nn.ModuleDict({"blocks": blocks, "convolution": nn.Conv1d(7, 4, 3), "frozen": nn.Linear(2, 2)})
    model["frozen"].requires_grad_(False)
    config = Optimizer(algorithm=algorithm)
    optimizer = config.build(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.ones_like(p)
    optimizer.step()
    held = [(name, x) for p in trained for name, x in optimizer.state[p].items() if name != "step"]
    assert config.kept(model) == 4 * sum(x.numel() for _, x in held)
    assert {name for name, _ in held} == {name for p in trained for name in keeps(optimizer, p)}


@pytest.mark.parametrize(
    ("algorithm", "fused"), [("adamw", True), ("adamw", False), ("adafactor", None), ("muon", None), ("muon", False)]
)
def test_a_skipped_update_changes_nothing(algorithm: Algorithm, fused: bool | None) -> None:
    model = nn.ModuleList([nn.Linear(3, 3)])
    optimizer = Optimizer(algorithm=algorithm, lr=0.1).build(model, fused=fused)

    def step(value: float, skip: float) -> None:
        model.zero_grad()
        (model[0](torch.ones(1, 3)).sum() * value).backward()
        update(optimizer, gradient_norm(model.parameters()), 1.0, torch.tensor(skip))

    step(1.0, 0.0)
    weights = copy.deepcopy(model.state_dict())
    state = copy.deepcopy(optimizer.state_dict()["state"])
    step(float("nan"), 1.0)
    assert all(torch.equal(weights[k], v) for k, v in model.state_dict().items())
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(state[i][k], after[i][k]) for i in state for k in state[i])
    step(1.0, 0.0)
    assert not torch.equal(weights["0.weight"], model[0].weight)


@pytest.mark.parametrize(
    ("shape", "theirs"), [("linear", get_linear_schedule_with_warmup), ("cosine", get_cosine_schedule_with_warmup)]
)
def test_schedule_is_the_usual_one_without_its_step_of_rate_zero(shape: str, theirs: object) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    reference = theirs(optimizer, 10, 100)  # type: ignore[operator]
    expected = []
    for _ in range(100):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()
    found = [Schedule(warmup=10, shape=shape).at(step, 100) for step in range(100)]  # type: ignore[arg-type]
    assert found[:10] == pytest.approx([*expected[1:10], 1.0])
    assert found[10:] == pytest.approx(expected[10:])


def test_schedule_values() -> None:
    assert [Schedule(warmup=0.2).at(s, 10) for s in range(10)] == pytest.approx(
        [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    )
    assert [Schedule(shape="constant", warmup=2).at(s, 5) for s in range(5)] == [0.5, 1, 1, 1, 1]
    assert Schedule(warmup=0, floor=0.1).at(1000, 10) == pytest.approx(0.1)
    assert Schedule(warmup=0).at(0, 1) == 1


def test_the_inverse_square_root_is_that_of_the_paper():
    """Vaswani et al. 2017, equation 3, up to the factor that is the peak here."""
    schedule, warmup = Schedule(shape="inverse-sqrt", warmup=4_000), 4_000
    for step in (1, 100, 4_000, 4_001, 100_000):
        paper = min(step**-0.5, step * warmup**-1.5)
        assert schedule.at(step - 1, 10) == pytest.approx(paper * warmup**0.5)


@given(
    st.integers(1, 500),
    st.one_of(st.floats(0, 0.99), st.integers(0, 600)),
    st.sampled_from(["linear", "cosine", "constant", "inverse-sqrt"]),
    st.floats(0, 1),
)
def test_schedule_rises_then_falls_and_never_rests_at_zero(total: int, warmup: float, shape: str, floor: float) -> None:
    values = [Schedule(warmup=warmup, shape=shape, floor=floor).at(s, total) for s in range(total)]  # type: ignore[arg-type]
    assert all(0 < v <= 1 for v in values)
    top = values.index(max(values))
    assert all(a <= b for a, b in pairwise(values[: top + 1]))
    assert all(a >= b - 1e-12 for a, b in pairwise(values[top:]))


def test_what_has_no_kernel_for_the_whole_update_has_one_for_each_operation() -> None:
    """Where the parameters are sharded PyTorch would take a loop over them by itself."""
    assert Optimizer().build(Tiny(), fused=False).defaults["foreach"] is True


def test_bad_values_are_one_sentence() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(UnmaskError, match="learning rate must be above 0"):
        Optimizer(lr=0.0).build(model)
    with pytest.raises(UnmaskError, match="clipping norm must be above 0"):
        Optimizer(clip=0.0).build(model)
    with pytest.raises(UnmaskError, match=r"factor on the learning rate of 'weight' must be above 0, not 0\.0"):
        Optimizer().build(model, scale=lambda name: 0.0)
    with pytest.raises(UnmaskError, match="must be above 0, not nan"):
        Optimizer().build(model, scale=lambda name: float("nan"))
    with pytest.raises(UnmaskError, match="no trainable parameter"):
        Optimizer().build(model.requires_grad_(False))

"""Muon: that of PyTorch for matrices, AdamW for all else, and directions that come out alike."""

from __future__ import annotations

import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from unmask.errors import UnmaskError
from unmask.train import muon
from unmask.train.optim import Optimizer, gradient_norm, set_rate, update


class Stacked(nn.Module):
    """An embedding, two blocks of which the second is used twice, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6)) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.embedding(x)
        for i in (0, 1, 1):
            y = y + self.blocks[i](y)
        return self.head(self.norm(y))


def test_it_moves_the_matrices_of_blocks_and_nothing_else():
    model = Stacked()
    wanted = {f"blocks.{i}.{j}.weight" for i in (0, 1) for j in (0, 2)}
    found = {id(p) for p in muon.hidden(model)}
    assert {name for name, p in model.named_parameters() if id(p) in found} == wanted


def test_what_is_frozen_or_computed_or_of_the_embedding_is_not_moved():
    model = Stacked()
    model.embedding = nn.ModuleList([nn.Linear(6, 6)])
    model.blocks[0].requires_grad_(False)
    nn.utils.parametrizations.weight_norm(model.blocks[1][0])
    assert [id(p) for p in muon.hidden(model)] == [id(model.blocks[1][2].weight)]


@pytest.mark.parametrize("model", [nn.Linear(3, 3), Stacked().requires_grad_(False)])
def test_a_model_without_blocks_that_learn_is_told_of_adamw(model):
    head = nn.ModuleDict({"model": model, "head": nn.Linear(3, 1)})
    with pytest.raises(UnmaskError, match=r"and this run trains none of them: use --algorithm adamw\."):
        Optimizer(algorithm="muon").build(head)


def test_its_state_can_be_loaded_and_goes_on():
    model = Stacked()

    def learn(model, optimizer, steps):
        for _ in range(steps):
            model.zero_grad()
            model(torch.arange(5)).square().sum().backward()
            update(optimizer, gradient_norm(model.parameters()), 1.0, torch.zeros(()))

    optimizer = Optimizer(algorithm="muon", lr=1e-2).build(model)
    learn(model, optimizer, 2)
    other = copy.deepcopy(model)
    again = Optimizer(algorithm="muon", lr=1e-2).build(other)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, its in ((model, optimizer), (other, again)):
        set_rate(its, 5e-3)
        learn(one, its, 2)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_it_is_that_of_pytorch_beside_adamw(clip, monkeypatch):
    # Both take directions in float64: bfloat16 would turn a difference in the last bit of a gradient into one of 1e-3.
    monkeypatch.setattr(muon, "orthogonal", lambda x_NAC: torch.stack([in_float64(x) for x in x_NAC]))
    monkeypatch.setattr(torch.optim._muon, "_zeropower_via_newtonschulz", in_float64)
    torch.manual_seed(0)
    model = Stacked()
    reference = copy.deepcopy(model)
    scale = {name: 0.5 if "blocks.1" in name else 1.0 for name, _ in model.named_parameters()}.__getitem__
    ours = Optimizer(algorithm="muon", lr=1e-2, clip=clip, weight_decay=0.1).build(model, scale=scale)
    matrices = {id(p) for p in muon.hidden(reference)}
    theirs = [
        torch.optim.Muon([p], lr=1e-2 * scale(name), weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        if id(p) in matrices
        else torch.optim.AdamW([p], lr=1e-2 * scale(name), weight_decay=0.1 if p.ndim > 1 else 0.0, eps=1e-6)
        for name, p in reference.named_parameters()
    ]
    for step in range(6):
        x = torch.randint(11, (5,))
        for one in (model, reference):
            one.zero_grad()
            one(x).square().sum().backward()
        norm = gradient_norm(model.parameters())
        if clip is not None:
            nn.utils.clip_grad_norm_(reference.parameters(), clip)
        set_rate(ours, 1e-2 / (1 + step))
        for optimizer in theirs:
            group = optimizer.param_groups[0]
            group["lr"] = group.setdefault("peak", group["lr"]) / (1 + step)
            optimizer.step()
        update(ours, norm, clip, torch.zeros(()))
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def in_float64(x: torch.Tensor, *_: object) -> torch.Tensor:
    """The iteration of `one_of_pytorch`, without its rounding."""
    a, b, c = muon.COEFFICIENTS
    y = x.double()
    y = y / y.norm().clamp(min=1e-7)
    for _step in range(muon.ITERATIONS):
        gram = y @ y.mT
        y = a * y + (b * gram + c * gram @ gram) @ y
    return y.to(x.dtype)


def one_of_pytorch(x: torch.Tensor) -> torch.Tensor:
    return torch.optim._muon._zeropower_via_newtonschulz(x, muon.COEFFICIENTS, muon.ITERATIONS, 1e-7)


def test_a_matrix_is_turned_as_pytorch_turns_it(monkeypatch):
    monkeypatch.setattr("unmask.kernels.formats.computes_bf16", lambda _: True)
    x = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(0))
    wanted = torch.stack([one_of_pytorch(one) for one in x])
    difference = (muon.orthogonal(x) - wanted).abs().float()  # rounded in another order, five times over
    assert difference.max() < 0.1
    assert difference.mean() < 0.01


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 24), st.integers(0, 40), st.booleans(), st.integers(0, 99))
def test_directions_stay_and_come_out_alike(count, rows, more, bf16, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, rows, rows + more, generator=generator)
    left, sizes, right = torch.linalg.svd(x, full_matrices=False)
    sizes = sizes.clamp(min=0.05 * float(sizes.max()))  # five iterations bring up no less
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.kernels.formats.computes_bf16", lambda _: bf16)
        turned = muon.orthogonal(left * sizes[:, None] @ right)
    assert turned.dtype is (torch.bfloat16 if bf16 else torch.float32)
    inside = left.mT @ turned.float() @ right.mT
    diagonal = inside.diagonal(dim1=1, dim2=2)
    assert diagonal.min() > 0.5
    assert diagonal.max() < 1.3
    assert (inside - torch.diag_embed(diagonal)).abs().max() < 0.1


def test_a_gradient_of_zeros_is_no_step():
    assert torch.equal(muon.orthogonal(torch.zeros(2, 3, 5)).float(), torch.zeros(2, 3, 5))


def test_what_has_no_gradient_stands_still(monkeypatch):
    monkeypatch.setattr(muon, "STACKED", 60)  # one matrix at a time
    model = Stacked()
    optimizer = Optimizer(algorithm="muon", lr=0.1, weight_decay=0.5).build(model)
    model.blocks[0].requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    model(torch.arange(4)).square().sum().backward()
    update(optimizer, gradient_norm(model.parameters()), 1.0, torch.zeros(()))
    moved = {name for name, x in model.state_dict().items() if not torch.equal(x, before[name])}
    assert not any(name.startswith("blocks.0") for name in moved)
    assert {"blocks.1.0.weight", "blocks.1.2.weight", "embedding.weight", "norm.bias", "head.weight"} <= moved


def test_matrices_alone_are_moved_too():
    model = nn.ModuleList([nn.Linear(4, 4, bias=False)])
    optimizer = Optimizer(algorithm="muon", lr=0.1, weight_decay=0.0).build(model)
    before = model[0].weight.detach().clone()
    model[0](torch.ones(1, 4)).square().sum().backward()
    update(optimizer, gradient_norm(model.parameters()), 1.0, torch.zeros(()))
    step = (model[0].weight - before).detach()
    size = 0.1 * muon.SIZE * 2  # of one direction, for the gradient has rank one
    assert 0.6 < float(torch.linalg.matrix_norm(step, ord=2)) / size < 1.3

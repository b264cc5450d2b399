"""LoRA layers: what they start as, what they learn, and what becomes of them."""

from __future__ import annotations

import copy
import math

import peft
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from unmask.errors import UnmaskError
from unmask.nn import Attention, LoRALinear
from unmask.nn.lora import adapt, adapters, merge


def layer(i: int = 6, o: int = 5, *, bias: bool = True, **changes: float) -> LoRALinear:
    """A layer that has learned something."""
    generator = torch.Generator().manual_seed(1)
    base = nn.Linear(i, o, bias)
    with torch.no_grad():
        for p in base.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    adapted = LoRALinear(base, 3, generator=generator, **{"alpha": 6.0, **changes})
    with torch.no_grad():
        adapted.B.copy_(torch.randn(adapted.B.shape, generator=generator))
    return adapted


def test_maps_of_one_shape_start_with_different_numbers() -> None:
    attention = Attention(8, 2)
    adapt(attention, ("query", "value"), rank=2)
    first, second = (part.A for part in adapters(attention).values())
    assert not torch.equal(first, second)


def test_it_starts_as_the_layer_that_it_adapts() -> None:
    base = nn.Linear(6, 5)
    weight, x = base.weight, torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
    expected = base(x)
    adapted = LoRALinear(base, 3)
    assert adapted.weight is weight
    assert torch.equal(adapted(x), expected)
    assert adapted.B.count_nonzero() == 0
    assert 0.5 / math.sqrt(6) < adapted.A.abs().max() <= 1 / math.sqrt(6)
    assert {name for name, p in adapted.named_parameters() if p.requires_grad} == {"A", "B"}


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_equation_3(bias: bool) -> None:
    adapted = layer(bias=bias)
    x = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    whole = adapted.weight + 6.0 / 3 * adapted.B @ adapted.A
    torch.testing.assert_close(adapted(x), nn.functional.linear(x, whole, adapted.bias))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.floats(0.1, 32), st.booleans())
def test_merged_equals_unmerged(i: int, o: int, rank: int, alpha: float, bias: bool) -> None:
    generator = torch.Generator().manual_seed(i * 10 + o)
    adapted = LoRALinear(nn.Linear(i, o, bias), rank, alpha=alpha, generator=generator).double()
    with torch.no_grad():
        adapted.B.copy_(torch.randn(o, rank, generator=generator))
    x = torch.randn(3, i, generator=generator, dtype=torch.float64)
    plain = adapted.merge()
    assert type(plain) is nn.Linear
    torch.testing.assert_close(plain(x), adapted(x))
    assert all(p.requires_grad for p in plain.parameters())
    with torch.no_grad():
        plain.weight.zero_()
    assert adapted.weight.count_nonzero(), "the layer itself stays as it is"


def test_it_answers_and_learns_as_the_reference_does() -> None:
    ours = layer()
    base = nn.Linear(6, 5)
    base.load_state_dict({"weight": ours.weight, "bias": ours.bias})
    reference = peft.tuners.lora.layer.Linear(base, "default", peft.LoraConfig(), r=3, lora_alpha=6, lora_dropout=0.0)
    reference.lora_A["default"].weight.data.copy_(ours.A)
    reference.lora_B["default"].weight.data.copy_(ours.B)
    x = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(x), reference(x))
    ours(x).square().sum().backward()
    reference(x).square().sum().backward()
    torch.testing.assert_close(ours.A.grad, reference.lora_A["default"].weight.grad)
    torch.testing.assert_close(ours.B.grad, reference.lora_B["default"].weight.grad)
    assert ours.weight.grad is None


def test_a_begins_as_in_the_reference() -> None:
    base = nn.Linear(1000, 4)
    ours = LoRALinear(base, 64, generator=torch.Generator().manual_seed(0)).A
    torch.manual_seed(0)
    reference = peft.tuners.lora.layer.Linear(nn.Linear(1000, 4), "default", peft.LoraConfig(), r=64)
    theirs = reference.lora_A["default"].weight
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.02)
    assert ours.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.01)


def test_dropout_is_on_the_input_of_what_is_learned_and_only_while_training() -> None:
    adapted = layer(dropout=0.5)
    x = torch.ones(2000, 6)
    base = nn.functional.linear(x, adapted.weight, adapted.bias)
    adapted.train()
    torch.manual_seed(0)
    noisy = adapted(x) - base
    assert noisy.std(0).min() > 0.1
    torch.testing.assert_close(noisy.mean(0), adapted.eval()(x)[0] - base[0], atol=0.5, rtol=0.1)
    assert torch.equal(adapted(x), adapted(x))


def test_parts_are_adapted_by_name() -> None:
    attention = Attention(8, 2)
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    before = attention(x)
    names = [name for name, _ in attention.named_parameters()]
    adapt(attention, ("query", "output"), rank=2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(attention(x), before)  # up to rounding: what learns alone is one product
    assert set(adapters(attention)) == {"query", "output"}
    now = [name for name, _ in attention.named_parameters()]
    assert set(now) - set(names) == {"query.A", "query.B", "output.A", "output.B"}
    assert set(names) <= set(now), "the weights keep their names"
    assert not torch.equal(attention.query.A, attention.output.A)
    with torch.no_grad():
        attention.query.B.fill_(0.3)
    unmerged = attention(x)
    assert not torch.allclose(unmerged, before)
    again = copy.deepcopy(attention)
    merge(again)
    assert not adapters(again)
    torch.testing.assert_close(again(x), unmerged)
    assert [name for name, _ in again.named_parameters()] == names


def test_the_same_seed_gives_the_same_start() -> None:
    a, b = ([p.clone() for p in _adapted(seed).parameters()] for seed in (0, 0))
    c = list(_adapted(1).parameters())
    assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(a, c, strict=True))


def test_nothing_is_drawn_from_the_global_state() -> None:
    base = nn.Linear(3, 3)
    before = torch.get_rng_state()
    LoRALinear(base, 2).merge()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_layer_keeps_type_and_mode() -> None:
    adapted = LoRALinear(nn.Linear(4, 4).to(torch.bfloat16).eval(), 2)
    assert {p.dtype for p in adapted.parameters()} == {torch.bfloat16}
    assert not adapted.training
    assert not adapted.dropout.training
    assert "rank=2" in repr(adapted)


def test_bad_values_are_one_sentence() -> None:
    attention = Attention(8, 2)
    with pytest.raises(UnmaskError, match="did you mean 'query'"):
        adapt(attention, ("qurey",), rank=2)
    with pytest.raises(UnmaskError, match="rank of an adapter must be 1 or more"):
        adapt(attention, ("query",), rank=0)
    assert not adapters(attention)
    adapt(attention, ("query",), rank=2)
    with pytest.raises(UnmaskError, match="has adapters already"):
        adapt(attention, ("query",), rank=2)


def _adapted(seed: int) -> Attention:
    generator = torch.Generator().manual_seed(9)
    attention = Attention(8, 2)
    with torch.no_grad():
        for p in attention.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    adapt(attention, ("query", "value"), rank=2, generator=torch.Generator().manual_seed(seed))
    return attention

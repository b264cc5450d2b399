"""Attention: the formula, rows that see nothing, the fast paths, recorded weights, dropout, precision."""

from __future__ import annotations

import copy
import doctest
import math
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.kernels.attention import FEW
from unmask.nn import (
    ALiBi,
    Attention,
    Bias,
    Block,
    FeedForward,
    Mask,
    Position,
    Residual,
    Rotary,
    Stack,
    T5Bias,
    TransformerXL,
    record_attention,
)

B, T, D, H, K = 2, 6, 16, 4, 4
SCHEMES = {
    "none": lambda: Position(),
    "rotary": lambda: Rotary(K),
    "t5": lambda: T5Bias(H, 8, 16),
    "alibi": lambda: ALiBi(H),
    "transformer-xl": lambda: TransformerXL(D, H),
}
DOCUMENTS = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 2, 3, 3, 3, 3]])
MASKS = {
    "none": Mask(),
    "causal": Mask(causal=True),
    "lengths": Mask(lengths=torch.tensor([6, 3])),
    "documents": Mask(documents=DOCUMENTS),
    "causal documents": Mask(causal=True, documents=DOCUMENTS),
}


@pytest.fixture(params=SCHEMES)
def scheme(request) -> Position:
    torch.manual_seed(0)
    return SCHEMES[request.param]()


@pytest.fixture(params=MASKS)
def mask(request) -> Mask:
    return MASKS[request.param]


def rows(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def block(position: Position | None = None, dropout: float = 0.0) -> Block:
    attention = Attention(D, H, position=position, dropout=dropout)
    return Block(Residual(attention, after=nn.LayerNorm(D)), Residual(FeedForward(D, 8), after=nn.LayerNorm(D)))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_the_formula_one_query_at_a_time(kv_heads):
    attention = Attention(D, H, kv_heads=kv_heads, head_dim=6, scale=0.3).double()
    x, keys = rows(B, T, D, dtype=torch.float64), rows(B, 5, D, seed=1, dtype=torch.float64)
    attention.requires_grad_(False)
    heads = torch.zeros(B, T, H * 6, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            shared = h // (H // kv_heads)
            part, kv_part = slice(h * 6, h * 6 + 6), slice(shared * 6, shared * 6 + 6)
            k, v = attention.key(keys[b])[:, kv_part], attention.value(keys[b])[:, kv_part]
            for t in range(T):
                q = attention.query(x[b, t])[part]
                weights = [math.exp(0.3 * float(q @ k[s])) for s in range(5)]
                heads[b, t, part] = sum(w * v[s] for s, w in enumerate(weights)) / sum(weights)
    torch.testing.assert_close(attention(x, keys), attention.output(heads))


def test_values_may_come_from_elsewhere():
    attention = Attention(D, H)
    x, keys, values = rows(B, T, D), rows(B, 5, D, seed=1), rows(B, 5, D, seed=2)
    assert torch.equal(attention(x, keys), attention(x, keys, keys))
    assert not torch.allclose(attention(x, keys), attention(x, keys, values))


# ------------------------------------------------------------------------------------- rows that see nothing


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_row_without_a_visible_key_gives_zero_and_finite_gradients(scheme, explicit, kv_heads, dtype):
    attention = Attention(D, H, kv_heads=kv_heads, position=scheme).to(dtype)
    x = rows(B, T, D, dtype=dtype).requires_grad_()
    bias = Mask(lengths=torch.tensor([0, 4])).bias(T, T)
    if explicit:
        with record_attention(attention) as maps:
            y = attention(x, bias=bias)
        assert maps[0].weights[0].eq(0).all()
    else:
        y = attention(x, bias=bias)
    assert torch.equal(y[0], attention.output.bias.expand_as(y[0]))
    y.float().square().sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in attention.parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_row_without_a_visible_key_is_finite_on_a_gpu(scheme, dtype):
    attention = Attention(D, H, position=scheme).to("cuda", dtype)
    x = rows(B, T, D, dtype=dtype).cuda().requires_grad_()
    y = attention(x, bias=Mask(lengths=torch.tensor([0, 4])).bias(T, T, "cuda"))
    assert torch.equal(y[0], attention.output.bias.expand_as(y[0]))
    y.float().square().sum().backward()
    assert x.grad.isfinite().all()


def test_padding_sees_padding():
    attention = Attention(D, H)
    with record_attention(attention) as maps:
        y = attention(rows(B, T, D), bias=Mask(documents=torch.zeros(B, T).long()).bias(T, T))
    assert y.isfinite().all()
    torch.testing.assert_close(maps[0].weights.sum(-1), torch.ones(B, H, T))


# ------------------------------------------------------------------------------------------------ fast paths


@pytest.fixture
def kernel_calls(monkeypatch) -> list[dict]:
    calls, kernel = [], F.scaled_dot_product_attention

    def spy(q, k, v, **kwargs):
        calls.append(kwargs)
        return kernel(q, k, v, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return calls


@pytest.mark.parametrize(
    ("mask", "tensor", "causal"),
    [
        (None, None, False),
        (Mask(), None, False),
        (Mask(causal=True), None, True),
        (Mask(window=2), torch.float32, False),
        (MASKS["documents"], torch.float32, False),
        (MASKS["causal documents"], torch.float32, False),
    ],
)
def test_what_the_kernel_is_told(mask, tensor, causal, kernel_calls):
    Stack([block(), block()])(rows(B, T, D), mask=mask)
    assert [call["is_causal"] for call in kernel_calls] == [causal] * 2
    first, second = (call["attn_mask"] for call in kernel_calls)
    assert first is second  # made once for all layers
    assert (None if first is None else first.dtype) is tensor


def test_a_position_bias_is_made_once_in_the_dtype_of_the_queries(kernel_calls):
    stack = Stack([block(), block()], position=ALiBi(H))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        stack(rows(B, T, D), mask=Mask(causal=True))
    first, second = (call["attn_mask"] for call in kernel_calls)
    assert first is second
    assert first.dtype is torch.bfloat16
    assert not any(call["is_causal"] for call in kernel_calls)


@pytest.mark.parametrize(
    ("length", "bf16", "learns", "dropout", "fused"),
    [
        (8, True, True, 0.0, False),
        (FEW + 8, True, True, 0.0, True),
        (8, True, False, 0.0, True),
        (8, False, True, 0.0, True),
        (8, False, True, 0.1, False),
        (FEW + 8, True, True, 0.1, False),
    ],
)
def test_the_faster_way_on_a_cpu_is_taken(length, bf16, learns, dropout, fused, kernel_calls):
    attention = Attention(D, H, dropout=dropout).train()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16), torch.set_grad_enabled(learns):
        attention(rows(1, length, D))
    assert len(kernel_calls) == fused


@pytest.mark.parametrize("mask", [None, Mask(causal=True), MASKS["documents"]])
def test_both_ways_learn_the_same_in_bfloat16(mask, monkeypatch):
    """Gradients of both are those in float32, up to the rounding of bfloat16."""
    attention, x = Attention(D, H), rows(B, T, D)
    bias = None if mask is None else mask.bias(T, T)

    def gradients(dtype: torch.dtype) -> torch.Tensor:
        attention.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
            said = attention(x, bias=bias)
        said.float().square().sum().backward()
        return torch.cat([p.grad.flatten() for p in attention.parameters()])

    wanted = gradients(torch.float32)
    plain = gradients(torch.bfloat16)
    monkeypatch.setattr("unmask.kernels.attention.plain_is_faster", lambda q, rate: False)
    fused = gradients(torch.bfloat16)
    for found in (plain, fused):
        assert not torch.equal(found, wanted)
        assert (found - wanted).norm() < 0.02 * wanted.norm()


def test_the_last_queries_alone_give_what_all_give(scheme):
    attention = Attention(D, H, position=scheme)
    x = rows(B, T, D)
    everything = attention(x, bias=Mask(causal=True).bias(T, T))
    for t in (1, 3):
        y = attention(x[:, -t:], x, bias=Mask(causal=True).bias(t, T))
        torch.testing.assert_close(y, everything[:, -t:])


def test_the_last_queries_with_positions_of_all_keys():
    attention = Attention(D, H, position=Rotary(K))
    x, positions = rows(B, T, D), torch.tensor([[0, 1, 2, 0, 1, 2], [5, 6, 7, 8, 9, 10]])
    everything = attention(x, bias=Mask(causal=True).bias(T, T), positions_BT=positions)
    y = attention(x[:, -2:], x, bias=Mask(causal=True).bias(2, T), positions_BT=positions)
    torch.testing.assert_close(y, everything[:, -2:])


# ----------------------------------------------------------------------------------------- recorded weights


def test_recording_changes_nothing_but_shows_the_weights(scheme, mask):
    attention = Attention(D, H, position=scheme)
    x, bias = rows(B, T, D), mask.bias(T, T)
    y = attention(x, bias=bias)
    with record_attention(attention) as maps:
        recorded = attention(x, bias=bias)
    torch.testing.assert_close(recorded, y, atol=1e-6, rtol=1e-5)
    assert torch.equal(attention(x, bias=bias), y)
    (name, weights) = maps[0]
    assert name == ""
    assert weights.shape == (B, H, T, T)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T))
    visible = mask.tensor(T, T)
    if visible is not None:
        assert weights.masked_select(~visible).eq(0).all()
        assert weights.masked_select(visible).gt(0).all()
    v_BHTK = attention.value(x).unflatten(-1, (H, K)).transpose(1, 2)
    torch.testing.assert_close(attention.output((weights @ v_BHTK).transpose(1, 2).flatten(2)), y, atol=1e-6, rtol=1e-5)


def test_recorded_gradients_are_those_of_the_kernel(scheme, mask):
    attention = Attention(D, H, position=scheme).double()
    x = rows(B, T, D, dtype=torch.float64)
    attention(x, bias=mask.bias(T, T)).square().sum().backward()
    expected = {name: p.grad.clone() for name, p in attention.named_parameters()}
    attention.zero_grad()
    with record_attention(attention):
        attention(x, bias=mask.bias(T, T)).square().sum().backward()
    for name, p in attention.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], msg=lambda m, n=name: f"{n}: {m}")


def test_maps_come_in_the_order_of_the_calls():
    cross = Residual(Attention(D, H))
    decoder = Block(Residual(Attention(D, H)), Residual(FeedForward(D, 8)), cross=cross)
    with record_attention(Stack([decoder])) as maps:
        Stack([decoder])(rows(B, T, D), memory=rows(B, 3, D))
    assert [m.name for m in maps] == ["blocks.0.attention.f", "blocks.0.cross.f"]
    assert [m.weights.shape for m in maps] == [(B, H, T, T), (B, H, T, 3)]


def test_a_shared_block_is_recorded_each_time_it_runs():
    stack = Stack([block()], order=[0] * 3)
    with record_attention(stack) as maps:
        stack(rows(B, T, D))
    assert [m.name for m in maps] == ["blocks.0.attention.f"] * 3
    assert not torch.equal(maps[0].weights, maps[1].weights)


def test_recording_ends_even_after_an_error():
    attention = Attention(D, H)

    def fail() -> None:
        with record_attention(attention):
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert attention.recorder is None


def test_recordings_nest():
    attention = Attention(D, H)
    with record_attention(attention) as outer:
        attention(rows(B, T, D))
        with record_attention(attention) as inner:
            attention(rows(B, T, D))
        attention(rows(B, T, D))
    assert (len(outer), len(inner)) == (2, 1)


def test_recorded_weights_carry_their_graph():
    attention = Attention(D, H)
    with record_attention(attention) as maps:
        attention(rows(B, T, D))
    maps[0].weights.square().sum().backward()
    assert attention.query.weight.grad.abs().sum() > 0


def test_the_example_in_the_documentation_runs():
    assert doctest.testmod(sys.modules[Attention.__module__]).attempted > 0
    assert doctest.testmod(sys.modules[Attention.__module__]).failed == 0


# -------------------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize("explicit", [False, True])
def test_dropout_falls_on_the_weights(explicit):
    """Uniform weights over one-hot values: the output shows each weight, dropped or scaled up."""
    S, rate = 64, 0.3
    attention = Attention(S, 1, dropout=rate, bias=False)
    with torch.no_grad():
        for linear, weight in [(attention.query, 0 * torch.eye(S)), (attention.key, 0 * torch.eye(S))]:
            linear.weight.copy_(weight)
        for linear in (attention.value, attention.output):
            linear.weight.copy_(torch.eye(S))
    values = torch.eye(S).expand(8, S, S)
    torch.manual_seed(0)
    if explicit:
        with record_attention(attention) as maps:
            y = attention(values)
        torch.testing.assert_close(maps[0].weights, torch.full((8, 1, S, S), 1 / S))  # before dropout
    else:
        y = attention(values)
    assert y.eq(0).float().mean() == pytest.approx(rate, abs=0.02)
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / S / (1 - rate)))
    torch.testing.assert_close(attention.eval()(values), torch.full((8, S, S), 1 / S))


# ------------------------------------------------------------------------------------- precision and compiling


def test_autocast_stays_near_float32(scheme, mask):
    stack = Stack([block(scheme), block()])
    x = rows(B, T, D)
    y = stack(x, mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = stack(x, mask=mask)
        with record_attention(stack) as maps:
            recorded = stack(x, mask=mask)
    assert maps[0].weights.isfinite().all()
    torch.testing.assert_close(mixed.float(), y, atol=0.05, rtol=0.05)
    torch.testing.assert_close(recorded.float(), y, atol=0.05, rtol=0.05)
    mixed.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in stack.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_every_dtype_in_gives_the_same_dtype_out(scheme, mask, dtype):
    stack = Stack([block(scheme)])
    y = copy.deepcopy(stack).to(dtype)(rows(B, T, D, dtype=dtype), mask=mask)
    assert y.dtype is dtype
    tolerance = 1e-5 if dtype is torch.float64 else 0.06
    torch.testing.assert_close(y.float(), stack(rows(B, T, D), mask=mask), atol=tolerance, rtol=tolerance)


def test_shared_bias_in_every_dtype(mask):
    for position in (T5Bias(H, 8, 16), ALiBi(H)):
        for dtype in (torch.float64, torch.bfloat16):
            stack = Stack([block()], position=position).to(dtype)
            assert stack(rows(B, T, D, dtype=dtype), mask=mask).dtype is dtype


def test_gradients_against_finite_differences(scheme):
    attention = Attention(D, H, position=scheme).double()
    x = rows(1, 4, D, dtype=torch.float64).requires_grad_()
    mask = Mask(causal=True, lengths=torch.tensor([3]))
    assert torch.autograd.gradcheck(lambda x: attention(x, bias=mask.bias(4, 4)), (x,))


# Every scheme of positions and every mask once: not each with each, since a graph takes a third of a second to make.
ONCE = [
    *((scheme, "causal documents") for scheme in SCHEMES),
    *(("transformer-xl", mask) for mask in MASKS if mask != "causal documents"),
]


@pytest.mark.parametrize(("scheme", "mask"), ONCE, indirect=True)
def test_compiles_as_one_graph(scheme, mask):
    stack = Stack([block(scheme)])
    torch._dynamo.reset()
    compiled = torch.compile(stack, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(rows(B, T, D), mask=mask), stack(rows(B, T, D), mask=mask))


def test_compiles_as_one_graph_while_its_attention_is_learned_from(mask):
    stack = Stack([block()])
    torch._dynamo.reset()
    compiled = torch.compile(stack, backend="eager", fullgraph=True)
    for blind in (mask, Mask(lengths=torch.tensor([0, T]))):
        with record_attention(stack) as maps:
            y = compiled(rows(B, T, D), mask=blind)
        with record_attention(stack) as others:
            torch.testing.assert_close(y, stack(rows(B, T, D), mask=blind))
        torch.testing.assert_close(maps[0].weights, others[0].weights)


# ------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("dim", "heads", "kv_heads"), [(16, 3, None), (16, 4, 3), (16, 0, None), (16, 4, 0), (16, 2, 4)]
)
def test_heads_that_do_not_divide_are_refused(dim, heads, kv_heads):
    with pytest.raises(UnmaskError, match="divide"):
        Attention(dim, heads, kv_heads=kv_heads)


def test_biases_that_hide_everything_add_up_to_nothing_visible():
    attention = Attention(D, H, position=ALiBi(H))
    everything = Bias(torch.zeros(T, T, dtype=torch.bool))
    y = attention(rows(B, T, D), bias=everything)
    assert torch.equal(y, attention.output.bias.expand_as(y))

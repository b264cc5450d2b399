"""Dropout: the share, the scale, the gradient and the seed are those of PyTorch's; only the numbers are others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unmask.kernels.dropout import dropout, mask
from unmask.nn import Attention, Dropout, Mask


@given(st.floats(0.01, 0.99), st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
def test_a_share_is_dropped_and_the_mean_stays(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    found = mask((100, 501), p, dtype)
    kept = found != 0
    sure = 5 * (p * (1 - p) / found.numel()) ** 0.5
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=sure + 1 / 256)
    value = found[kept].unique()
    assert len(value) == 1
    assert value.item() == pytest.approx(1 / (1 - p), rel=1e-2)
    assert found.dtype is dtype


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_over_many_masks_the_share_is_exact(p: float) -> None:
    torch.manual_seed(0)
    drawn, size = 4_000, 256
    shares = torch.stack([(mask((size,), p, torch.float32) == 0).double().mean() for _ in range(drawn)])
    assert shares.mean().item() == pytest.approx(
        p, abs=5 * (p * (1 - p) / (drawn * size) + 1 / (4 * 256**2 * drawn)) ** 0.5
    )


def test_neighbours_rows_and_calls_are_drawn_apart() -> None:
    torch.manual_seed(0)
    first, second = (mask((512, 512), 0.5, torch.float32) - 1 for _ in range(2))
    for a, b in (
        (first, second),
        (first[:, :-1], first[:, 1:]),
        (first[:-1], first[1:]),
        (first[:, :-8], first[:, 8:]),
    ):
        assert abs((a * b).mean().item()) < 0.01


def test_the_gradient_passes_where_a_number_was_kept() -> None:
    x = torch.randn(64, 33, requires_grad=True)
    y = dropout(x, 0.3, True)
    y.sum().backward()
    kept = y != 0
    assert 0.2 < 1 - kept.float().mean().item() < 0.4
    torch.testing.assert_close(x.grad, kept / (1 - 0.3), rtol=1e-4, atol=0)
    torch.testing.assert_close(y.detach(), x.detach() * kept / (1 - 0.3), rtol=1e-4, atol=0)


def test_a_seed_draws_the_same_again_and_a_restored_state_goes_on() -> None:
    layer, x = Dropout(0.5).train(), torch.ones(1_001)
    torch.manual_seed(3)
    first = layer(x)
    state = torch.get_rng_state()
    second = layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    torch.set_rng_state(state)
    assert torch.equal(layer(x), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_the_ends_are_as_pytorch_has_them(p: float) -> None:
    x = torch.randn(5, 7)
    assert torch.equal(dropout(x, p, True), F.dropout(x, p, True))
    assert dropout(x, 0.5, False) is x or torch.equal(dropout(x, 0.5, False), x)


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (2, 3, 5)])
def test_any_shape_keeps_its_shape(shape: tuple[int, ...]) -> None:
    assert dropout(torch.ones(shape), 0.5, True).shape == shape


def test_attention_that_drops_is_attention_on_average() -> None:
    """The written-out path of training on a CPU has the values of the fused one, up to what is dropped."""
    torch.manual_seed(0)
    attention = Attention(16, 2, dropout=1e-9).double()
    x = torch.randn(3, 7, 16, dtype=torch.float64, requires_grad=True)
    documents = torch.tensor([[1, 1, 2, 2, 2, 3, 0]] * 3)
    for bias in (Mask(documents=documents).bias(7, 7), Mask(causal=True).bias(7, 7), None):
        found, expected = attention.train()(x, bias=bias), attention.eval()(x, bias=bias)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
        gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=2e-3, atol=2e-3)


def test_a_query_that_sees_nothing_gives_no_nan_while_it_drops() -> None:
    attention = Attention(8, 2, dropout=0.1).train()
    x = torch.randn(2, 3, 8, requires_grad=True)
    y = attention(x, bias=Mask(lengths=torch.tensor([0, 2])).bias(3, 3))
    y.sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    torch.testing.assert_close(y[0], attention.output.bias.expand(3, 8))

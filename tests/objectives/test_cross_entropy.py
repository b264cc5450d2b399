"""The loss of a vocabulary, computed some rows at a time: the numbers and gradients of PyTorch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unmask.objectives import objective
from unmask.objectives.objective import cross_entropy, of_logits


@given(st.integers(0, 40), st.integers(2, 30), st.integers(1, 200), st.integers(0, 2**31))
def test_any_rows_at_a_time_are_the_loss_of_all(M: int, C: int, cached: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = (5 * torch.randn(M, C, generator=draw)).requires_grad_()
    values = torch.randint(0, C, (M,), generator=draw)
    before, objective.CACHED = objective.CACHED, cached
    try:
        found = of_logits(logits, values)
    finally:
        objective.CACHED = before
    expected = F.cross_entropy(logits, values, reduction="sum")
    torch.testing.assert_close(found.sum, expected)
    assert found.count == M
    assert int(found.metrics["correct"]) == int((logits.argmax(-1) == values).sum())
    (mine,) = torch.autograd.grad(found.sum / 7, logits)
    (theirs,) = torch.autograd.grad(expected / 7, logits)
    torch.testing.assert_close(mine, theirs)


@given(st.integers(1, 40), st.integers(2, 30), st.integers(1, 200), st.floats(0, 0.9), st.booleans())
def test_label_smoothing_is_that_of_pytorch(M: int, C: int, cached: int, smoothing: float, double: bool) -> None:
    """In float64, which is not reckoned some rows at a time, and in float32, which is."""
    logits = (5 * torch.randn(M, C, generator=torch.Generator().manual_seed(M))).requires_grad_()
    values = torch.arange(M) % C
    before, objective.CACHED = objective.CACHED, cached
    try:
        total, nll, _ = cross_entropy(logits.double() if double else logits, values, smoothing)
    finally:
        objective.CACHED = before
    expected = F.cross_entropy(logits, values, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(nll, F.cross_entropy(logits, values, reduction="sum").detach())
    assert not nll.requires_grad
    (mine,), (theirs,) = torch.autograd.grad(total / 7, logits), torch.autograd.grad(expected / 7, logits)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float16])
def test_logits_of_other_types_are_reckoned_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = torch.randn(20, 50).to(dtype).requires_grad_()
    values = torch.randint(0, 50, (20,))
    found = of_logits(logits, values)
    expected = F.cross_entropy(logits.float(), values, reduction="sum")
    torch.testing.assert_close(found.sum, expected)
    (mine,), (theirs,) = torch.autograd.grad(found.sum, logits), torch.autograd.grad(expected, logits)
    assert mine.dtype is dtype
    torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-2)


def test_blocked_and_broken_logits_say_what_they_always_said() -> None:
    blocked = torch.tensor([[0.0, -float("inf"), 1.0]], requires_grad=True)
    found = of_logits(blocked, torch.tensor([2]))
    (gradient,) = torch.autograd.grad(found.sum, blocked)
    assert gradient[0, 1] == 0
    assert gradient.isfinite().all()
    broken = torch.tensor([[0.0, float("nan"), 1.0]], requires_grad=True)
    assert of_logits(broken, torch.tensor([2])).sum.isnan()


def test_without_gradients_none_is_made() -> None:
    with torch.no_grad():
        found = of_logits(torch.randn(3, 4), torch.tensor([0, 1, 2]))
    assert found.sum.grad_fn is None

"""The loss of a vocabulary, computed some rows at a time: the numbers and gradients of PyTorch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unmask.kernels import cross_entropy as module
from unmask.nn import Logits
from unmask.objectives.cross_entropy import cross_entropy, of_logits


@given(st.integers(0, 40), st.integers(2, 30), st.integers(1, 200), st.integers(0, 2**31))
def test_any_rows_at_a_time_are_the_loss_of_all(M: int, C: int, cached: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = (5 * torch.randn(M, C, generator=draw)).requires_grad_()
    values = torch.randint(0, C, (M,), generator=draw)
    before, module.CACHED = module.CACHED, cached
    try:
        found = of_logits(logits, values)
    finally:
        module.CACHED = before
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
    before, module.CACHED = module.CACHED, cached
    try:
        total, nll, _ = cross_entropy(logits.double() if double else logits, values, smoothing)
    finally:
        module.CACHED = before
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


def product(M: int, D: int, V: int, bias: bool) -> tuple[Logits, torch.Tensor]:
    draw = torch.Generator().manual_seed(M + V)
    x, weight = torch.randn(M, D, generator=draw), torch.randn(V, D, generator=draw)
    offset = torch.randn(V, generator=draw).requires_grad_() if bias else None
    return Logits(x.requires_grad_(), weight.requires_grad_(), offset), torch.randint(0, V, (M,), generator=draw)


@given(
    st.integers(0, 40),
    st.integers(1, 9),
    st.integers(2, 30),
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from([0.0, 0.1]),
    st.booleans(),
)
def test_the_loss_of_a_product_needs_no_more_than_some_of_its_rows(
    M: int, D: int, V: int, cached: int, made: int, smoothing: float, bias: bool
) -> None:
    logits, values = product(M, D, V, bias)
    before = module.CACHED, module.MADE
    module.CACHED, module.MADE = cached, {"cpu": made}
    try:
        total, nll, correct = cross_entropy(logits, values, smoothing)
        parts = module._parts(M, logits.weight_VD) if M else []
    finally:
        module.CACHED, module.MADE = before
    assert [row for part in parts for row in range(M)[part]] == list(range(M))
    assert all(len(range(M)[part]) <= max(made // V, 2 * D) for part in parts)
    said = logits.made()
    expected = F.cross_entropy(said, values, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(nll, F.cross_entropy(said, values, reduction="sum").detach())
    assert int(correct) == int((said.gather(1, values[:, None])[:, 0] >= said.amax(1)).sum())
    learned = [part for part in logits if part is not None]
    mine = torch.autograd.grad(total / 7, learned, allow_unused=True)
    theirs = torch.autograd.grad(expected / 7, learned, allow_unused=True)
    torch.testing.assert_close(mine, theirs)


def test_a_product_in_bfloat16_has_the_loss_and_gradients_of_its_logits() -> None:
    """To the rounding of its products; the weights' gradient is added up in float32, over parts as well."""
    logits, values = product(300, 32, 50, bias=True)
    found = []
    for wholes in (True, False):
        with torch.autocast("cpu", torch.bfloat16):
            total = cross_entropy(logits.made() if wholes else logits, values)[0]
        found.append([total, *torch.autograd.grad(total, list(logits))])
    exact = F.cross_entropy(F.linear(*logits), values, reduction="sum")
    true = [exact, *torch.autograd.grad(exact, list(logits))]
    for whole, part, right in zip(*found, true, strict=True):
        assert part.dtype is right.dtype
        errors = [(each - right).norm() / right.norm() for each in (whole, part)]
        assert errors[1] < 1e-2
        assert errors[1] < 1.2 * errors[0] + 1e-6


def test_only_what_learns_gets_a_gradient_and_nothing_does_without() -> None:
    logits, values = product(6, 4, 5, bias=True)
    frozen = logits._replace(weight_VD=logits.weight_VD.detach())
    x, bias = torch.autograd.grad(of_logits(frozen, values).sum, [logits.x_MD, logits.bias_V])
    assert x.abs().sum() > 0
    assert bias.abs().sum() > 0
    with torch.no_grad():
        assert of_logits(logits, values).sum.grad_fn is None


def test_a_product_in_float16_is_made_first() -> None:
    """A gradient that is made before one knows the scale of the loss would be lost in it."""
    logits, values = product(6, 4, 5, bias=False)
    half = Logits(logits.x_MD.half(), logits.weight_VD.half(), None)
    assert "_OfProduct" not in str(of_logits(half, values).sum.grad_fn)
    assert "_OfProduct" in str(of_logits(logits, values).sum.grad_fn)

"""Linear layers where they learn: the same numbers and gradients as PyTorch's, whatever is fused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.kernels.linear import LARGE, joint, linear, transposed, weight_gradient
from unmask.kernels.prepacked import PrepackedLinear
from unmask.kernels.processor import imitates_bf16

needs_bf16 = pytest.mark.skipif(imitates_bf16(), reason="this processor has no products in bfloat16")


def layers(bias: bool = True) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(24, width, bias) for width in (16, 40, 8)]


def gradients(said: Tensor, *of: Tensor) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 1, said.numel()).view(said.shape)
    return torch.autograd.grad((said.float() * weights).sum(), of)


@pytest.mark.parametrize("bias", [True, False])
def test_layers_side_by_side_say_and_learn_what_each_would_alone(bias: bool) -> None:
    parts, x = layers(bias), torch.randn(3, 5, 24, requires_grad=True)
    known = [x, *(p for layer in parts for p in layer.parameters())]
    alone, together = [layer(x) for layer in parts], joint(x, *parts)
    assert [said.shape for said in together] == [said.shape for said in alone]
    torch.testing.assert_close(torch.cat(list(together), -1), torch.cat(alone, -1))
    torch.testing.assert_close(
        gradients(torch.cat(list(together), -1), *known), gradients(torch.cat(alone, -1), *known), rtol=1e-5, atol=1e-5
    )


def test_layers_with_and_without_a_bias_are_asked_themselves() -> None:
    (first, _, _), (_, second, _) = layers(), layers(bias=False)
    x = torch.randn(3, 24)
    for said, layer in zip(joint(x, first, second), (first, second), strict=True):
        assert torch.equal(said, layer(x))
    with torch.no_grad():
        packed = PrepackedLinear(first, second, dtype=torch.float32)(x)
        torch.testing.assert_close(packed, torch.cat([first(x), second(x)], -1), rtol=1e-5, atol=1e-5)


def test_backward_hooks_are_called() -> None:
    (first, second, _), seen = layers(), []
    first.register_full_backward_hook(lambda *_: seen.append("after"))
    second.register_full_backward_pre_hook(lambda *_: seen.append("before"))
    torch.cat(list(joint(torch.randn(2, 24, requires_grad=True), first, second)), -1).sum().backward()
    assert sorted(seen) == ["after", "before"]


def test_layers_of_a_special_kind_and_hooks_are_asked_themselves() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    first, second = nn.Linear(4, 4), Doubled(4, 4)
    x, seen = torch.randn(2, 4), []
    assert torch.equal(joint(x, first, second)[1], second(x))
    first.register_forward_hook(lambda *_: seen.append(1))
    joint(x, first, first)
    assert len(seen) == 2


def test_a_layer_that_is_frozen_stays_without_a_gradient() -> None:
    first, second, _ = layers()
    first.requires_grad_(False)
    torch.cat(list(joint(torch.randn(2, 24), first, second)), -1).sum().backward()
    assert first.weight.grad is None
    assert second.weight.grad is not None


@needs_bf16
@pytest.mark.parametrize("shape", [(7, 24), (3, 5, 24), (0, 24)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_it_is_the_product_of_pytorch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).requires_grad_()
    weight, bias = torch.randn(16, 24, requires_grad=True), torch.randn(16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = linear(x, weight, bias), F.linear(x, weight, bias)
    assert ours.dtype is torch.bfloat16
    assert ours.grad_fn.name().startswith("_Linear")
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=2e-2)
    mine, yours = gradients(ours, x, weight, bias), gradients(theirs, x, weight, bias)
    assert [g.dtype for g in mine] == [dtype, torch.float32, torch.float32]
    torch.testing.assert_close(mine, yours, rtol=1e-2, atol=5e-2)


def test_without_autocast_or_gradients_it_is_pytorch_itself() -> None:
    x, layer = torch.randn(3, 24), layers()[0]
    assert torch.equal(linear(x, layer.weight, layer.bias), layer(x))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(linear(x, layer.weight, layer.bias), layer(x))


@pytest.mark.parametrize("N", [1, 7, 16, 48, 64, 192])
@pytest.mark.parametrize("D", [1, 5, 130])
def test_what_is_turned_around_lies_so_in_memory(N: int, D: int) -> None:
    x = torch.randn(N, D)
    assert torch.equal(transposed(x), x.t())
    assert transposed(x).is_contiguous()
    assert torch.equal(transposed(x.t()), x)


@pytest.mark.parametrize("N", [16, 40, 96])
@pytest.mark.parametrize(("E", "D"), [(LARGE, LARGE + 8), (LARGE + 8, LARGE), (LARGE - 8, LARGE), (24, 16)])
@pytest.mark.parametrize("matrix_unit", [True, False])
def test_the_gradient_of_weights_is_the_same_whichever_factor_is_turned(
    N: int, E: int, D: int, matrix_unit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmask.kernels.linear.has_matrix_unit", lambda: matrix_unit)
    said, x = torch.randn(N, E), torch.randn(N, D)
    found = weight_gradient(said, x)
    torch.testing.assert_close(found, said.t() @ x, rtol=1e-4, atol=1e-4)
    assert found.is_contiguous()

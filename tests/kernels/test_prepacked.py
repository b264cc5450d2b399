"""Packed linear layers say what the layers say, in bfloat16."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.huggingface.table import as_heads
from unmask.kernels.prepacked import PrepackedLinear, prepacked
from unmask.models.bert import Bert
from unmask.nn import LanguageModelHead
from unmask.types import Batch


def linear(inputs: int, outputs: int, *, bias: bool = True, seed: int = 0) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layer


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 33), (2, 3, 130)])
def test_products_are_those_of_rounded_numbers(shape: tuple[int, ...], bias: bool) -> None:
    """Numbers of bfloat16, multiplied in float32 and summed there, then rounded once."""
    layers = [linear(48, 40, bias=bias), linear(48, 24, bias=bias, seed=1)]
    x = torch.randn(*shape, 48, generator=torch.Generator().manual_seed(2))
    found = PrepackedLinear(*layers)(x)
    rounded = x.bfloat16().double()
    wanted = torch.cat([
        nn.functional.linear(rounded, *(p.bfloat16().double() for p in layer.parameters())) for layer in layers
    ], -1)  # fmt: skip
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), wanted, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("then", [None, F.relu, F.gelu, F.silu, torch.tanh])
def test_other_numbers_and_what_follows(dtype: torch.dtype, then: Callable[[Tensor], Tensor] | None) -> None:
    """Also those that the processor's own order does not know, and activations that it does not apply."""
    layer, x = linear(48, 40).to(dtype), torch.randn(3, 48, dtype=dtype, generator=torch.Generator().manual_seed(2))
    wanted = layer(x) if then is None else then(layer(x))
    found = PrepackedLinear(layer, dtype=dtype, then=then)(x)
    assert found.dtype is dtype
    tight = 1e-12 if dtype is torch.float64 else 1e-5
    torch.testing.assert_close(found, wanted.detach(), rtol=tight, atol=tight * 10)


@pytest.mark.usefixtures("bf16")
def test_a_model_keeps_its_numbers_and_shares_what_is_not_packed() -> None:
    config = Bert(vocabulary=60, dim=64, layers=3, heads=4, hidden=96, length=32)
    model = config.build(as_heads({"mlm": 0, "classification": 3})).eval()
    lower = prepacked(model, but=model.heads)
    tokens = torch.randint(5, 60, (4, 20), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens, documents=torch.tensor([[1] * 12 + [2] * 8] * 4))
    with torch.inference_mode():
        wanted, found = model(batch), lower(batch)
    assert found.dtype is torch.float32
    assert not torch.equal(found, wanted)
    assert torch.nn.functional.cosine_similarity(found, wanted, dim=-1).min() > 0.9999
    assert lower.embedding.token.weight is model.embedding.token.weight
    assert isinstance(lower.heads["mlm"], LanguageModelHead)
    assert lower.heads["mlm"] is model.heads["mlm"]
    assert not any(isinstance(part, nn.Linear) for part in lower.stack.modules())
    assert sum(isinstance(part, nn.Linear) for part in model.stack.modules()) == 3 * 6  # the model itself is untouched


def test_imitated_products_do_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has none in bfloat16 it refuses to order such weights, as on processors with AVX2 alone."""
    monkeypatch.setattr("unmask.kernels.processor.library_has_bf16", lambda: False)
    assert PrepackedLinear(linear(4, 4)).weight_ED.dtype is torch.float32
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = PrepackedLinear(linear(48, 40))
    assert not plain.ordered
    x = torch.randn(3, 48, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(plain(x).float(), linear(48, 40)(x).detach(), rtol=2**-6, atol=0.1)

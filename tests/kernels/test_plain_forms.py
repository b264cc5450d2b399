"""Every kernel computes what its plain form computes: the same values and the same gradients, to the rounding of the
number format. One test for all of them; what a kernel promises besides is tested in a file of its own."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import unmask.kernels
from unmask.kernels import attention as kernels_attention
from unmask.kernels import cross_entropy, dropout, linear, onednn, prepacked, recurrent, strided
from unmask.kernels.formats import autocast
from unmask.kernels.processor import imitates_bf16
from unmask.kernels.varlen import Varlen, has_kernel
from unmask.nn import Bias, Mask, Recurrent, RecurrentState
from unmask.nn.attention import attention
from unmask.nn.recurrent import CELLS
from unmask.objectives.cross_entropy import equation
from unmask.types import boundaries_of

B, T, D, E, H, K = 2, 7, 24, 40, 4, 8
FLOAT, HALF = torch.float32, torch.bfloat16
FAR = {torch.float64: 1e-9, FLOAT: 2e-5, HALF: 4e-2}
"""Largest difference to the plain form in float64 of the same inputs, as a share of the largest number."""

Function = Callable[..., Tensor | Sequence[Tensor]]


@dataclass(frozen=True)
class Case:
    """A kernel and its plain form, of the same arguments.

    given    makes the arguments, in float64, of a generator; gradients of the tensors of floats are compared
    dtypes   of the arguments that the kernel gets
    learns   whether it has gradients
    rounded  whether it computes in bfloat16 whatever it gets
    unit     whether the processor is taken for one with a matrix unit
    """

    module: Any
    kernel: Function
    plain: Function
    given: Callable[[torch.Generator], Sequence[Any]]
    dtypes: Sequence[torch.dtype] = (FLOAT,)
    learns: bool = True
    rounded: bool = False
    unit: bool = False


def noise(*shapes: Sequence[int]) -> Callable[[torch.Generator], list[Tensor]]:
    return lambda draw: [torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in shapes]


# Attention: every kind of bias, as many heads of keys or fewer

DOCUMENTS = torch.tensor([[1, 1, 2, 2, 2, 0, 0], [1, 2, 2, 2, 3, 3, 3]])
BIASES = {
    "no bias": Bias(),
    "causal": Mask(causal=True).bias(T, T),
    "documents": Mask(documents=DOCUMENTS).bias(T, T),
    "causal window": Mask(causal=True, window=3).bias(T, T),
    "added": Bias(torch.linspace(-1, 1, H * T * T).view(H, T, T)),
    "nothing visible": Mask(lengths=torch.tensor([0, 3])).bias(T, T),
}


def fused(bias: Bias, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return kernels_attention.fused(q, k, v, bias.added(q.dtype), scale=0.3, causal=bias.causal)


def plainly(bias: Bias, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention(q, k, v, bias, scale=0.3)


def varlen(causal: bool, window: int | None = None) -> Varlen:
    return Varlen(boundaries_of(DOCUMENTS), T, causal, window)


def by_mask(causal: bool, window: int | None, *qkv: Tensor) -> Tensor:
    return attention(*qkv, Mask(causal=causal, window=window, documents=DOCUMENTS).bias(T, T), scale=0.3)


# Linear layers


def under_autocast(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    with autocast(x, torch.bfloat16):
        return linear.linear(x, weight, bias)


def layers(weights: Sequence[Tensor]) -> list[nn.Linear]:
    """[E, D] weights and [E] biases in turn, as layers."""
    found = []
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        found.append(nn.Linear(weight.shape[1], weight.shape[0], device="meta"))
        found[-1]._parameters.update(weight=weight, bias=bias)
    return found


def joint(x: Tensor, *weights: Tensor) -> Sequence[Tensor]:
    return linear.joint(x, *layers(weights))


def apart(x: Tensor, *weights: Tensor) -> list[Tensor]:
    return [F.linear(x, weight, bias) for weight, bias in zip(weights[::2], weights[1::2], strict=True)]


def fused_linear(activation: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    how = onednn.PLAIN if activation is None else onednn.fused_activation(activation)
    assert how is not None
    return onednn.linear(x, weight, bias, how)


def plain_linear(activation: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = F.linear(x, weight, bias)
    return y if activation is None else activation(y)


def prepacked_linear(activation: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return prepacked.PrepackedLinear(*layers([weight, bias]), dtype=x.dtype, then=activation)(x)


ACTIVATIONS = {
    "no activation": None,
    "gelu": F.gelu,
    "gelu by tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


# Dropout: the zeros are other ones, so they are drawn first; cross-entropy; recurrent layers


def dropped(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return dropout.dropout(x, 0.5, True)


def dropped_plainly(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    kept = dropout.mask(x.shape, 0.5, torch.float32) != 0
    return torch.where(kept, x / (1 - 0.5), 0.0)


def answers(draw: torch.Generator) -> list[Any]:
    return [*noise((30, E))(draw), torch.randint(0, E, (30,), generator=draw)]


def product(draw: torch.Generator) -> list[Any]:
    return [*noise((30, D), (E, D), (E,))(draw), torch.randint(0, E, (30,), generator=draw)]


def of_logits(smoothing: float, logits: Tensor, values: Tensor) -> Sequence[Tensor]:
    return cross_entropy.cross_entropy(logits, values, smoothing, never)


def of_product(smoothing: float, x: Tensor, weight: Tensor, bias: Tensor, values: Tensor) -> Sequence[Tensor]:
    return cross_entropy.cross_entropy(linear.Logits(x, weight, bias), values, smoothing, never)


def product_plainly(smoothing: float, x: Tensor, weight: Tensor, bias: Tensor, values: Tensor) -> Sequence[Tensor]:
    return equation(F.linear(x, weight, bias), values, smoothing)


def never(*_: Any) -> Any:
    raise AssertionError("the plain form stood in for the kernel")


def cell_weights(cell: str, draw: torch.Generator) -> list[Tensor]:
    gates = {"rnn": 1, "lstm": 4, "gru": 3}[cell]
    return noise((gates * K, D), (gates * K, K), (gates * K,), (gates * K,))(draw)


def cell_given(cell: str, draw: torch.Generator) -> list[Tensor]:
    return [*noise((B, D), (B, K), (B, K))(draw), *cell_weights(cell, draw)]


def stepped(cell: str, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> list[Tensor]:
    after = recurrent.step(cell, x, (h, c if cell == "lstm" else None), weights)  # type: ignore[arg-type]
    return [part for part in after if part is not None]


def stepped_plainly(cell: str, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> list[Tensor]:
    _, after = CELLS[cell](*weights).step(x, RecurrentState(h, c if cell == "lstm" else None))
    return [after.hidden] if after.cell is None else [after.hidden, after.cell]


def network(cell: str, bidirectional: bool, dtype: torch.dtype) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(cell, D, K, 2, bidirectional=bidirectional).to(dtype).eval()


def read(cell: str, bidirectional: bool, plainly: bool, x: Tensor, lengths: Tensor) -> list[Tensor]:
    net = network(cell, bidirectional, x.dtype)
    outputs, last = (net.unrolled if plainly else net)(x, None, lengths)
    return [outputs, last.hidden, *([] if last.cell is None else [last.cell])]


def sequences(draw: torch.Generator) -> list[Tensor]:
    return [*noise((B, T, D))(draw), torch.tensor([T, 4])]


QKV, GROUPED = noise(*[(B, H, T, K)] * 3), noise((B, H, T, K), (B, 2, T, K), (B, 2, T, K))
LAYER, WEIGHTS = noise((B, T, D), (E, D), (E,)), noise((B, T, D), (E, D), (E,), (K, D), (K,))
# Strided convolutions


def strided_rows(stride: int, x_LC: Tensor, weight_OKC: Tensor, bias_O: Tensor) -> Tensor:
    return strided.strided(x_LC, weight_OKC, bias_O, stride)


def convolution(stride: int, x_LC: Tensor, weight_OKC: Tensor, bias_O: Tensor) -> Tensor:
    weight_OCK = weight_OKC.unflatten(1, (-1, x_LC.shape[1])).mT
    return F.conv1d(x_LC.t()[None], weight_OCK, bias_O, stride)[0].t()


FUSED = [name for name, cell in CELLS.items() if cell.fused]

CASES: dict[str, Case] = {
    **{
        f"attention, {name}": Case(kernels_attention, partial(fused, bias), partial(plainly, bias), QKV, (FLOAT, HALF))
        for name, bias in BIASES.items()
    },
    **{
        f"strided convolution, kernel {k}, stride {s}": Case(
            strided, partial(strided_rows, s), partial(convolution, s), noise((23, D), (E, k * D), (E,)), (FLOAT, HALF)
        )
        for k, s in ((3, 2), (2, 2), (10, 5))
    },
    "attention, grouped": Case(
        kernels_attention, partial(fused, Bias()), partial(plainly, Bias()), GROUPED, (FLOAT, HALF)
    ),
    "linear, autocast": Case(linear, under_autocast, F.linear, LAYER, (FLOAT, HALF), rounded=True),
    "linear, joint": Case(linear, joint, apart, WEIGHTS),
    "linear, inner": Case(linear, linear.inner, F.linear, LAYER, (FLOAT, HALF), learns=False),
    "linear, transposed": Case(linear, linear.transposed, torch.t, noise((48, 5)), (FLOAT, HALF)),
    **{
        f"linear, gradient of {e} by {d}{', matrix unit' if unit else ''}": Case(
            linear, linear.weight_gradient, lambda dy, x: dy.t() @ x, noise((32, e), (32, d)), (FLOAT,), unit=unit
        )
        for unit in (False, True)
        for e, d in ((linear.LARGE, linear.LARGE + 8), (linear.LARGE + 8, linear.LARGE), (16, 24))
    },
    **{
        f"onednn, {name}": Case(
            onednn, partial(fused_linear, f), partial(plain_linear, f), LAYER, (FLOAT, HALF), learns=False
        )
        for name, f in ACTIVATIONS.items()
    },
    **{
        f"prepacked, {name}": Case(
            prepacked, partial(prepacked_linear, f), partial(plain_linear, f), LAYER, (FLOAT, HALF), learns=False
        )
        for name, f in {**ACTIVATIONS, "tanh": torch.tanh}.items()
    },
    "dropout": Case(dropout, dropped, dropped_plainly, noise((B, T, D)), (FLOAT, HALF)),
    **{
        f"cross-entropy of {what}, smoothing {rate}": Case(
            cross_entropy, partial(kernel, rate), partial(plain, rate), given, (FLOAT, HALF)
        )
        for rate in (0.0, 0.1)
        for what, kernel, plain, given in (
            ("logits", of_logits, lambda rate, x, values: equation(x, values, rate), answers),
            ("a product", of_product, product_plainly, product),
        )
    },
    **{
        f"{cell}, one token": Case(
            recurrent, partial(stepped, cell), partial(stepped_plainly, cell), partial(cell_given, cell)
        )
        for cell in FUSED
    },
    **{
        f"{cell}, {'both directions' if both else 'sequences'}": Case(
            recurrent, partial(read, cell, both, False), partial(read, cell, both, True), sequences
        )
        for cell in FUSED
        for both in (False, True)
    },
}


def computed(function: Function, given: Sequence[Any], learns: bool) -> tuple[list[Tensor], list[Tensor | None]]:
    """Values, and gradients of the tensors of floats."""
    floats = [x for x in given if isinstance(x, Tensor) and x.is_floating_point()]
    if not learns:
        with torch.no_grad():
            found = function(*given)
        return [found] if isinstance(found, Tensor) else list(found), []
    found = function(*(x.requires_grad_() if x is not None and x.is_floating_point() else x for x in given))
    values = [found] if isinstance(found, Tensor) else list(found)
    total = sum((torch.linspace(0.5, 1, y.numel()).view(y.shape) * y.double()).sum() for y in values if y.requires_grad)
    assert isinstance(total, Tensor)
    return [y.detach() for y in values], list(torch.autograd.grad(total, floats, allow_unused=True))


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, case in CASES.items() for dtype in case.dtypes], ids=str
)
def test_a_kernel_computes_what_its_plain_form_computes(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    if case.module is onednn and dtype is HALF and imitates_bf16():
        pytest.skip("oneDNN has no products in bfloat16 here")
    monkeypatch.setattr(linear, "has_matrix_unit", lambda: case.unit)
    given = [x.to(dtype) if x.is_floating_point() else x for x in case.given(torch.Generator().manual_seed(0))]
    exact = [x.double() if x.is_floating_point() else x for x in given]
    values, gradients = computed(case.kernel, given, case.learns)
    wanted, right = computed(case.plain, exact, case.learns)
    for found, expected in zip([*values, *gradients], [*wanted, *right], strict=True):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            far = FAR[HALF if case.rounded else dtype]
            assert (found.double() - expected).abs().max() <= far * max(1.0, float(expected.abs().max()))


limits = pytest.mark.parametrize(
    ("causal", "window"), [(False, None), (True, None), (False, 1), (False, 2), (True, 2), (False, 9)]
)


@limits
def test_attention_by_boundaries_has_a_plain_form_that_equals_attention_by_the_mask(
    causal: bool, window: int | None
) -> None:
    given = QKV(torch.Generator().manual_seed(0))
    found = computed(partial(varlen(causal, window).plain, scale=0.3), given, True)
    torch.testing.assert_close(found, computed(partial(by_mask, causal, window), given, True))


@pytest.mark.gpu
@limits
def test_attention_by_boundaries_on_a_gpu_equals_its_plain_form(causal: bool, window: int | None) -> None:
    if not has_kernel(torch.device("cuda")):
        pytest.skip("this GPU, or this PyTorch, has no flash attention")
    given = [x.to("cuda", HALF) for x in QKV(torch.Generator().manual_seed(0))]
    one = varlen(causal, window)
    there = one._replace(boundaries=one.boundaries.cuda())
    assert there.fits(*given[:2])
    found = there.attend(*given, scale=0.3, rate=0.0).double().cpu()
    torch.testing.assert_close(found, one.plain(*(x.cpu().double() for x in given), scale=0.3), atol=3e-2, rtol=0)


def test_every_module_that_speaks_of_a_plain_form_is_compared_with_it() -> None:
    folder = Path(unmask.kernels.__file__).parent
    texts = {path.stem: ast.get_docstring(ast.parse(path.read_text())) or "" for path in folder.glob("[!_]*.py")}
    speak = {name for name, text in texts.items() if "plain form" in " ".join(text.split())}
    compared = {case.module.__name__.rpartition(".")[2] for case in CASES.values()}
    assert speak == compared | {varlen(False).__module__.rpartition(".")[2]}

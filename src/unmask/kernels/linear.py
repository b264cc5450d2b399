"""Linear layers while they learn: several that read the same x as one product, and the bias added inside it. The plain
form of each is `torch.nn.functional.linear`.

Shapes: D inputs, E outputs, N rows, V outputs that are a vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from unmask.kernels import onednn
from unmask.kernels.processor import has_matrix_unit, imitates_bf16

LARGE = 512
"""Width of both factors from which on transposing one of them pays; at 384 nothing was gained (docs/log.md)."""

BLOCKS = (64, 32, 16)
"""Rows that are transposed at a time, as many as divide all."""


class Logits(NamedTuple):
    """x W^T + b before it is multiplied. Over a vocabulary this is the largest product of a step, and a loss need not
    hold all of it at once (`kernels.cross_entropy`)."""

    x_MD: Tensor
    weight_VD: Tensor
    bias_V: Tensor | None

    def made(self) -> Tensor:
        """[..., D] -> [..., V]."""
        return linear(*self)


class Linear(nn.Linear):
    """x W^T + b, by the product that learns fastest; `torch.nn.Linear` in all else."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., E]."""
        return linear(x, self.weight, self.bias)


def is_plain(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer computes x W^T + b and nothing else."""
    return type(layer) in (nn.Linear, Linear)


def joint(x: Tensor, *layers: nn.Module) -> Sequence[Tensor]:
    """layer(x) of each layer, [..., D] -> [..., E]. While they learn, plain linear layers are one product, as its
    gradients are then fewer and larger products, too."""
    plain = [layer for layer in layers if is_plain(layer) and not hooked(layer)]
    if len(plain) < len(layers) or not torch.is_grad_enabled() or len({layer.bias is None for layer in plain}) > 1:
        return [layer(x) for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in plain if layer.bias is not None]
    y = linear(x, torch.cat([layer.weight for layer in plain]), torch.cat(biases) if biases else None)
    return y.split([layer.out_features for layer in plain], -1)


def hooked(layer: nn.Module) -> bool:
    """Whether a hook wants to be told when the layer is called."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks)


def linear(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    """x W^T + b, [..., D] -> [..., E], as `torch.nn.functional.linear`. On a CPU that one writes the bias into all rows
    before the product is added to it; where a layer learns in bfloat16 under autocast, oneDNN adds it to the result."""
    learning = torch.is_grad_enabled() and x.device.type == "cpu" and not torch.compiler.is_compiling()
    if bias_E is None or not learning or not torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight_ED, bias_E)
    if torch.get_autocast_dtype("cpu") is not torch.bfloat16 or imitates_bf16():
        return F.linear(x, weight_ED, bias_E)
    y: Tensor = _Linear.apply(*(part.to(torch.bfloat16) for part in (x, weight_ED, bias_E)))
    return y


def inner(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    """x W^T + b without gradients, within a function that computes them itself."""
    if bias_E is not None and x.device.type == "cpu" and x.dtype is torch.bfloat16 and not imitates_bf16():
        return onednn.linear(x, weight_ED, bias_E)
    return F.linear(x, weight_ED, bias_E)


class _Linear(torch.autograd.Function):
    """All of them bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_ED: Tensor, bias_E: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight_ED)
        return onednn.linear(x, weight_ED, bias_E)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_ED = ctx.saved_tensors
        dy_NE, x_ND = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
        wanted = ctx.needs_input_grad
        return (
            (dy_NE @ weight_ED).view(x.shape) if wanted[0] else None,
            weight_gradient(dy_NE, x_ND) if wanted[1] else None,
            dy_NE.sum(0) if wanted[2] else None,
        )


def weight_gradient(dy_NE: Tensor, x_ND: Tensor) -> Tensor:
    """dy^T x, [N, E] and [N, D] -> [E, D]. A matrix unit multiplies by a transposed factor at half its speed, so the
    smaller one is transposed in memory before, and what comes of it after (docs/log.md)."""
    (N, E), D = dy_NE.shape, x_ND.shape[1]
    if min(E, D) < LARGE or N % BLOCKS[-1] or not has_matrix_unit():
        return dy_NE.t() @ x_ND
    if E <= D:
        return transposed(dy_NE) @ x_ND
    return transposed(transposed(x_ND) @ dy_NE)


def transposed(x_ND: Tensor) -> Tensor:
    """x^T contiguous in memory, [D, N], by two copies that each stay in a cache; the plain form, `x.t().contiguous()`,
    runs through all of it for every row. Where no block divides the rows, it is that."""
    N, D = x_ND.shape
    rows = next((rows for rows in BLOCKS if N % rows == 0), None)
    if rows is None:
        return x_ND.t().contiguous()
    return x_ND.reshape(N // rows, rows, D).transpose(1, 2).contiguous().transpose(0, 1).reshape(D, N)

"""Linear layers where they learn: several that read the same from one product, and the bias added inside it.

Shapes: D width of what is read, E of what is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from unmask.nn.packed import product
from unmask.processor import has_matrix_unit, imitates_bf16

LARGE = 512
"""Width of both factors from which on turning one around pays; at 384 nothing was gained (docs/log.md)."""

BLOCKS = (64, 32, 16)
"""Rows that are turned around at a time, as many as divide all."""


def side_by_side(x: Tensor, *layers: nn.Module) -> Sequence[Tensor]:
    """What layers say about the same x. Where they learn, plain linear layers are one product, for its gradients are
    then fewer and larger products, too."""
    plain = [layer for layer in layers if type(layer) is nn.Linear and not hooked(layer)]
    if len(plain) < len(layers) or not torch.is_grad_enabled() or len({layer.bias is None for layer in plain}) > 1:
        return [layer(x) for layer in layers]
    if len(plain) == 1:
        return [linear(x, plain[0].weight, plain[0].bias)]
    biases: list[Tensor] = [layer.bias for layer in plain if layer.bias is not None]
    said = linear(x, torch.cat([layer.weight for layer in plain]), torch.cat(biases) if biases else None)
    return said.split([layer.out_features for layer in plain], -1)


def project(layer: nn.Module, x: Tensor) -> Tensor:
    """`layer(x)`, [..., D] -> [..., E], by the product that learns fastest."""
    (said,) = side_by_side(x, layer)
    return said


def hooked(layer: nn.Module) -> bool:
    """Whether somebody wants to be told when it is called."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks)


def linear(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    """x W^T + b, [..., D] -> [..., E], as `torch.nn.functional.linear`. On a CPU that one writes the bias into all rows
    before the product is added to it; learning in bfloat16 under autocast, it is added on the way out here."""
    learning = torch.is_grad_enabled() and x.device.type == "cpu" and not torch.compiler.is_compiling()
    if bias_E is None or not learning or not torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight_ED, bias_E)
    if torch.get_autocast_dtype("cpu") is not torch.bfloat16 or imitates_bf16():
        return F.linear(x, weight_ED, bias_E)
    said: Tensor = _Linear.apply(*(part.to(torch.bfloat16) for part in (x, weight_ED, bias_E)))
    return said


class _Linear(torch.autograd.Function):
    """All of them bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_ED: Tensor, bias_E: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight_ED)
        return product(x, weight_ED, bias_E)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, said: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_ED = ctx.saved_tensors
        said_NE, x_ND = said.reshape(-1, said.shape[-1]), x.reshape(-1, x.shape[-1])
        wanted = ctx.needs_input_grad
        return (
            (said_NE @ weight_ED).view(x.shape) if wanted[0] else None,
            weight_gradient(said_NE, x_ND) if wanted[1] else None,
            said_NE.sum(0) if wanted[2] else None,
        )


def weight_gradient(said_NE: Tensor, x_ND: Tensor) -> Tensor:
    """said^T x, [N, E] and [N, D] -> [E, D]. A matrix unit multiplies by a factor that lies turned around at half its
    speed, so the smaller one is turned before, and what comes of it after (docs/log.md)."""
    (N, E), D = said_NE.shape, x_ND.shape[1]
    if min(E, D) < LARGE or N % BLOCKS[-1] or not has_matrix_unit():
        return said_NE.t() @ x_ND
    if E <= D:
        return turned(said_NE) @ x_ND
    return turned(turned(x_ND) @ said_NE)


def turned(x_ND: Tensor) -> Tensor:
    """x^T as it lies in memory, [D, N], in two copies of which either keeps to a cache; `x.t().contiguous()` runs
    through all of it for every row. Where no block divides the rows, it is that."""
    N, D = x_ND.shape
    rows = next((rows for rows in BLOCKS if N % rows == 0), None)
    if rows is None:
        return x_ND.t().contiguous()
    return x_ND.reshape(N // rows, rows, D).transpose(1, 2).contiguous().transpose(0, 1).reshape(D, N)

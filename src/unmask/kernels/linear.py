"""Linear layers in training: one product for several layers that read the same x, and a product that adds the bias. The
plain form of each is `torch.nn.functional.linear`.

Shapes: D inputs, E outputs, N rows, M targets, V outputs of a vocabulary.
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
"""Smallest width of both factors for which transposing one of them is faster; 384 gained nothing (docs/log.md)."""

BLOCKS = (64, 32, 16)
"""Numbers of rows that are transposed at a time; the largest that divides all rows is used."""


class Logits(NamedTuple):
    """The factors of the logits x W^T + b. Over a vocabulary this is the largest product of a step, and a loss can
    compute it in parts (`kernels.cross_entropy`)."""

    x_MD: Tensor
    weight_VD: Tensor
    bias_V: Tensor | None

    def made(self) -> Tensor:
        """[..., D] -> [..., V]."""
        return linear(*self)


class Linear(nn.Linear):
    """`torch.nn.Linear` with the product that is fastest in training (`linear`)."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., E]."""
        return linear(x, self.weight, self.bias)


def is_plain(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer computes x W^T + b and nothing else."""
    return type(layer) in (nn.Linear, Linear)


def joint(x: Tensor, *layers: nn.Module) -> Sequence[Tensor]:
    """layer(x) of each layer, [..., D] -> [..., E]. In training, plain linear layers are computed as one product, whose
    gradients are then fewer and larger products too."""
    plain = [layer for layer in layers if is_plain(layer) and not hooked(layer)]
    if len(plain) < len(layers) or not torch.is_grad_enabled() or len({layer.bias is None for layer in plain}) > 1:
        return [layer(x) for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in plain if layer.bias is not None]
    y = linear(x, torch.cat([layer.weight for layer in plain]), torch.cat(biases) if biases else None)
    return y.split([layer.out_features for layer in plain], -1)


def hooked(layer: nn.Module) -> bool:
    """Whether a layer has hooks, which need a call of the layer itself."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks)


def linear(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    """x W^T + b, [..., D] -> [..., E], as `torch.nn.functional.linear`, which on a CPU copies the bias into all rows
    and then adds the product. For training in bfloat16 under autocast, oneDNN adds the bias to the result instead."""
    learning = torch.is_grad_enabled() and x.device.type == "cpu" and not torch.compiler.is_compiling()
    if bias_E is None or not learning or not torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight_ED, bias_E)
    if torch.get_autocast_dtype("cpu") is not torch.bfloat16 or imitates_bf16():
        return F.linear(x, weight_ED, bias_E)
    y: Tensor = _Linear.apply(*(part.to(torch.bfloat16) for part in (x, weight_ED, bias_E)))
    return y


def inner(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    """x W^T + b without gradients, for a function that computes its gradients itself."""
    if bias_E is not None and x.device.type == "cpu" and x.dtype is torch.bfloat16 and not imitates_bf16():
        return onednn.linear(x, weight_ED, bias_E)
    return F.linear(x, weight_ED, bias_E)


class _Linear(torch.autograd.Function):
    """x W^T + b by oneDNN, for tensors in bfloat16."""

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
    smaller factor is transposed in memory first; if that is x, the result is transposed back (docs/log.md)."""
    (N, E), D = dy_NE.shape, x_ND.shape[1]
    if min(E, D) < LARGE or N % BLOCKS[-1] or not has_matrix_unit():
        return dy_NE.t() @ x_ND
    if E <= D:
        return transposed(dy_NE) @ x_ND
    return transposed(transposed(x_ND) @ dy_NE)


def transposed(x_ND: Tensor) -> Tensor:
    """x^T contiguous in memory, [D, N], by two copies that each fit a cache. The plain form, `x.t().contiguous()`, runs
    through all of x for every row; it is used if no block divides the rows."""
    N, D = x_ND.shape
    rows = next((rows for rows in BLOCKS if N % rows == 0), None)
    if rows is None:
        return x_ND.t().contiguous()
    return x_ND.reshape(N // rows, rows, D).transpose(1, 2).contiguous().transpose(0, 1).reshape(D, N)

"""oneDNN, the library of matrix products on a CPU: its two operators that PyTorch has no public function for.

They are those that `torch.compile` uses. They are called here alone, so that a release of PyTorch that changes them is
noticed in one place. The plain form of `linear` is `torch.nn.functional.linear`, and the activation after it.

Shapes: D inputs, E outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Fused = tuple[str, list[Any], str]
PLAIN: Fused = ("none", [], "")
FUSED: dict[Any, Fused] = {F.gelu: ("gelu", [], "none"), F.relu: ("relu", [], ""), F.silu: ("swish", [], "")}
"""Activations that the product applies to its results, by the names that the operator has for them."""

ORDERED = (torch.float32, torch.bfloat16)
"""Number formats for which the library has a layout of weights of its own."""


def orders(weight_ED: Tensor) -> bool:
    """Whether the library has a layout of its own for these weights."""
    known = weight_ED.device.type == "cpu" and weight_ED.dtype in ORDERED
    return known and torch.backends.mkldnn.is_available()


def reorder(weight_ED: Tensor) -> Tensor:
    """The weights in the library's own layout; only `linear` can read it."""
    ordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_ED)
    return ordered


def linear(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None, fused: Fused = PLAIN) -> Tensor:
    """activation(x W^T + b), [..., D] -> [..., E]: bias and activation are applied to results that are in the cache."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_ED, bias_E, *fused)
    return y


def fused_activation(activation: Callable[[Tensor], Tensor] | None) -> Fused | None:
    """How the operator calls an activation; None for one that it does not know."""
    if isinstance(activation, partial) and activation.func is F.gelu:
        return ("gelu", [], "tanh") if activation.keywords == {"approximate": "tanh"} else None
    return FUSED.get(activation)

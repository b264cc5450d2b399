"""oneDNN, the library of matrix products on a CPU: two of its operators, for which PyTorch has no public function.

`torch.compile` uses the same operators. Only this file calls them, so that a change in a release of PyTorch affects one
place. The plain form of `linear` is `torch.nn.functional.linear`, followed by the activation.

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
"""Activations that the operator applies to its results, and their names in the operator."""

ORDERED = (torch.float32, torch.bfloat16)
"""Number formats for which the library has its own layout of weights."""


def orders(weight_ED: Tensor) -> bool:
    """Whether the library has its own layout for these weights."""
    known = weight_ED.device.type == "cpu" and weight_ED.dtype in ORDERED
    return known and torch.backends.mkldnn.is_available()


def reorder(weight_ED: Tensor) -> Tensor:
    """The weights in the library's layout, which only `linear` can read."""
    ordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_ED)
    return ordered


def linear(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None, fused: Fused = PLAIN) -> Tensor:
    """activation(x W^T + b), [..., D] -> [..., E]: bias and activation are applied while results are in the cache."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_ED, bias_E, *fused)
    return y


def fused_activation(activation: Callable[[Tensor], Tensor] | None) -> Fused | None:
    """The name of an activation in the operator; None for one that it does not support."""
    if isinstance(activation, partial) and activation.func is F.gelu:
        return ("gelu", [], "tanh") if activation.keywords == {"approximate": "tanh"} else None
    return FUSED.get(activation)

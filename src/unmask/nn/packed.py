"""PackedLinear: linear layers for answering alone, with weights in the order that the processor reads.

Shapes: D width of what is read, E of what is said, all layers together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.processor import imitates_bf16

Part = TypeVar("Part", bound=nn.Module)
DEVICES = ("cpu", "cuda", "mps")


def placed(part: Part, device: torch.device | str) -> Part:
    """A model on a device. Raises UnmaskError where there is no such device."""
    try:
        return part.to(device)
    except (RuntimeError, AssertionError, ValueError) as error:
        if str(device).partition(":")[0] not in DEVICES:
            raise UnmaskError(f"There is no device '{device}'; use cpu, cuda, cuda:1 or mps.") from None
        reason = str(error).split("\n", 1)[0].rstrip(".")
        raise UnmaskError(f"The device {device} cannot be used: {reason}. Leave --device out for the CPU.") from None


Fused = tuple[str, list[Any], str]
FUSED: dict[Any, tuple[str, str]] = {F.gelu: ("gelu", "none"), F.relu: ("relu", ""), F.silu: ("swish", "")}
"""Activations that a product on a CPU applies on its way out, and how they are called there."""


def product(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None, fused: Fused = ("none", [], "")) -> Tensor:
    """x W^T + b by the processor's library, [..., D] -> [..., E]: the bias, and an activation, on the way out."""
    said: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_ED, bias_E, *fused)
    return said


ORDERED = (torch.float32, torch.bfloat16)
"""Numbers whose products on a CPU read weights in an order of their own; those of others stay as they are."""


class PackedLinear(nn.Module):
    """x W^T + b of one or several linear layers that read the same, side by side: [..., D] of any float -> [..., E].
    No gradients, and nothing to store: it is made from layers that have both.

    PyTorch would put the weights in the order of the processor's matrix unit at every product, which takes as long as
    a product of some dozens of rows; here it is done once. A device that only imitates products in bfloat16 is given
    the rounded numbers in float32: the same products, sooner, and without the order that it lacks for them.

    dtype  of the factors, and of what comes out
    then   an activation of what comes out
    """

    def __init__(
        self,
        *layers: nn.Linear,
        dtype: torch.dtype = torch.bfloat16,
        then: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        weight_ED = torch.cat([layer.weight.detach() for layer in layers]).to(dtype)
        biases = [x.weight.new_zeros(len(x.weight)) if x.bias is None else x.bias.detach() for x in layers]
        unbiased = all(layer.bias is None for layer in layers)
        bias_E = None if unbiased else torch.cat(biases).to(dtype)
        imitated = dtype is torch.bfloat16 and imitates_bf16(weight_ED.device)
        self.dtype, self.factors = dtype, torch.float32 if imitated else dtype
        weight_ED, self.bias_E = weight_ED.to(self.factors), None if bias_E is None else bias_E.to(self.factors)
        known = weight_ED.device.type == "cpu" and self.factors in ORDERED
        self.ordered = known and torch.backends.mkldnn.is_available()
        self.weight_ED = torch.ops.mkldnn._reorder_linear_weight(weight_ED) if self.ordered else weight_ED
        name, kind = _named(then) if self.ordered else ("", "")
        self.fused: Fused = (name or "none", [], kind)
        self.then = None if name else then

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().to(self.dtype).to(self.factors)
        if self.ordered:
            said = product(x, self.weight_ED, self.bias_E, self.fused)
        else:
            said = F.linear(x, self.weight_ED, self.bias_E)
        return (said if self.then is None else self.then(said)).to(self.dtype)


def _named(activation: Callable[[Tensor], Tensor] | None) -> tuple[str, str]:
    """How an activation is called by the products that apply it themselves; "" for one that they do not know."""
    if isinstance(activation, partial) and activation.func is F.gelu:
        return ("gelu", "tanh") if activation.keywords == {"approximate": "tanh"} else ("", "")
    return FUSED.get(activation, ("", ""))


def packed(part: Part, *, but: nn.Module | None = None) -> Part:
    """The same with its linear layers packed. What lies between them stays in float32, and is shared with `part`: sums,
    norms, embeddings. Made for a model that has learned; what `part` learns later does not reach the packed layers.

    but  a part of it whose layers stay as they are
    """
    instead: dict[int, Any] = {id(parameter): parameter for parameter in part.parameters()}
    instead |= {id(module): module for module in but.modules()} if but is not None else {}
    linear = [module for module in part.modules() if type(module) is nn.Linear and id(module) not in instead]
    instead |= {id(module): PackedLinear(module) for module in linear}
    return copy.deepcopy(part, instead)  # which looks up here what stands for what, by identity

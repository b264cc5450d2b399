"""PrepackedLinear: linear layers for inference, with their weights in the memory layout of the processor's library.
Their plain form is the original layers.

Shapes: D inputs, E outputs of all layers together, N rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.kernels import onednn
from unmask.kernels.linear import is_plain
from unmask.kernels.processor import Precision, imitates_bf16, settle

Part = TypeVar("Part", bound=nn.Module)

LARGE, EVEN = 256, 64
"""In bfloat16, batches of more than LARGE rows are padded to a multiple of EVEN rows: for every new number of rows,
oneDNN generates code for each product, which takes longer than the product itself."""


class PrepackedLinear(nn.Module):
    """x W^T + b of one or several linear layers that read the same x, joined: [..., D] of any float -> [..., E].
    It has no parameters: no gradients, and nothing to store.

    PyTorch would convert the weights to the layout of the matrix unit at every product, which takes as long as a
    product of a few dozen rows; here they are converted once. A device that only emulates products in bfloat16 gets the
    rounded numbers in float32: the products are the same, but faster.

    dtype  number format of the factors and of the result
    then   an activation of the result
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
        self.ordered = onednn.orders(weight_ED)
        self.weight_ED = onednn.reorder(weight_ED) if self.ordered else weight_ED
        fused = onednn.fused_activation(then) if self.ordered else None
        self.fused = fused or onednn.PLAIN
        self.then = None if fused else then

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().to(self.dtype).to(self.factors)
        if self.ordered:
            y = onednn.linear(x, self.weight_ED, self.bias_E, self.fused)
        else:
            y = F.linear(x, self.weight_ED, self.bias_E)
        return (y if self.then is None else self.then(y)).to(self.dtype)


def prepacked(part: Part, dtype: torch.dtype = torch.bfloat16, *, but: nn.Module | None = None) -> Part:
    """A copy of a trained part with prepacked linear layers, and with the inference form of the modules that have one
    (their method `for_inference`). Everything else, such as norms and embeddings, stays in float32 and is shared with
    `part`. Later training of `part` does not change the prepacked layers.

    dtype  number format of the factors of the products
    but    a submodule whose layers stay unchanged
    """
    instead: dict[int, Any] = {id(parameter): parameter for parameter in part.parameters()}
    instead |= {id(module): module for module in but.modules()} if but is not None else {}
    kept, forms = set(instead), dict[int, nn.Module]()
    for module in part.modules():
        if id(module) in kept:
            continue
        form: Callable[[torch.dtype], nn.Module] | None = getattr(module, "for_inference", None)
        if form is not None:
            forms[id(module)] = form(dtype)
            kept |= {id(inner) for inner in module.modules()}
        elif is_plain(module):
            forms[id(module)] = PrepackedLinear(module, dtype=dtype)
    return copy.deepcopy(part, instead | forms)  # deepcopy looks up replacements here, by identity


def inference_dtype(part: nn.Module, precision: Precision) -> torch.dtype:
    """The number format of products in inference for a requested `precision` (see `settle`)."""
    weight = next(part.parameters())
    return settle(precision, weight.device).dtype or weight.dtype


def gains(part: nn.Module, dtype: torch.dtype) -> bool:
    """Whether inference is faster with prepacked layers: always on a CPU, and on other devices if `dtype` differs from
    the format of the part."""
    return next(part.parameters()).device.type == "cpu" or lowers(part, dtype)


def lowers(part: nn.Module, dtype: torch.dtype) -> bool:
    """Whether a number format differs from that of a part."""
    return dtype is not next(part.parameters()).dtype


def padded(x_ND: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows, padded with zeros to a multiple of EVEN rows if that makes products of this number format faster."""
    N = len(x_ND)
    return padded_to(x_ND, -(-N // EVEN) * EVEN) if dtype is torch.bfloat16 and N > LARGE else x_ND


def padded_to(x_ND: Tensor, N: int) -> Tensor:
    """The rows, padded with zeros to N rows."""
    return x_ND if len(x_ND) == N else F.pad(x_ND, (0, 0, 0, N - len(x_ND)))

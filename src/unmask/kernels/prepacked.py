"""PrepackedLinear: linear layers for inference, with their weights in the layout that the processor reads. The plain
form is those layers.

Shapes: D inputs, E outputs, of all layers together, N rows.
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

EVEN = 256
"""In bfloat16, larger batches are padded to a multiple of so many rows: for every new number of rows oneDNN generates
code for each product, which takes longer than the product itself."""


class PrepackedLinear(nn.Module):
    """x W^T + b of one or several linear layers that read the same x, joined: [..., D] of any float -> [..., E].
    No gradients, and nothing to store: it is made from layers that have both.

    PyTorch would bring the weights into the layout of the matrix unit at every product, which takes as long as a
    product of some dozens of rows; here it is done once. A device that only imitates products in bfloat16 is given
    the rounded numbers in float32: the same products, sooner, and without the layout that it lacks for them.

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
    """The same with its linear layers prepacked. Everything else stays in float32, and is shared with `part`: sums,
    norms, embeddings. Made for a model that has learned; what `part` learns later does not reach the prepacked layers.

    dtype  of the factors of their products
    but    a part of it whose layers stay as they are
    """
    instead: dict[int, Any] = {id(parameter): parameter for parameter in part.parameters()}
    instead |= {id(module): module for module in but.modules()} if but is not None else {}
    plain = [module for module in part.modules() if is_plain(module) and id(module) not in instead]
    instead |= {id(module): PrepackedLinear(module, dtype=dtype) for module in plain}
    return copy.deepcopy(part, instead)  # which looks up here what stands for what, by identity


def inference_dtype(part: nn.Module, precision: Precision) -> torch.dtype:
    """The number format in which a part that answers multiplies where `precision` is asked for (see `settle`)."""
    weight = next(part.parameters())
    return torch.bfloat16 if settle(precision, weight.device).precision == "bf16" else weight.dtype


def gains(part: nn.Module, dtype: torch.dtype) -> bool:
    """Whether a part that answers is faster with prepacked layers: on a CPU, and in a number format with fewer digits
    than its own anywhere."""
    return next(part.parameters()).device.type == "cpu" or lowers(part, dtype)


def lowers(part: nn.Module, dtype: torch.dtype) -> bool:
    """Whether a number format is another one than that of a part."""
    return dtype is not next(part.parameters()).dtype


def padded(x_ND: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows, and zeros behind them where products of this number format are faster for an even number of rows."""
    N = len(x_ND)
    return padded_to(x_ND, -(-N // EVEN) * EVEN) if dtype is torch.bfloat16 and N > EVEN else x_ND


def padded_to(x_ND: Tensor, N: int) -> Tensor:
    """The rows, and zeros behind them up to N."""
    return x_ND if len(x_ND) == N else F.pad(x_ND, (0, 0, 0, N - len(x_ND)))

"""Scaled dot-product attention with the fastest kernel for a device, a number format and a mask.

Measurements decide the choice (docs/decisions/0014-attention-by-measurement.md, `benchmarks/attention.py`). The plain
form is `unmask.nn.attention.attention`.

Shapes: B rows, T queries, S keys, H heads, N heads of the keys and values, K width of a head.
"""

from __future__ import annotations

import math
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.kernels.formats import exactly
from unmask.kernels.varlen import Varlen

FEW = 384
"""Largest number of queries for which the plain form is used in training in bfloat16 on a CPU."""


class Hidden(Protocol):
    """The bias of the scores as kernels need it: a tensor that broadcasts to [B, H, T, S], or one of the two forms for
    which kernels have their own arguments (causal, varlen)."""

    @property
    def causal(self) -> bool: ...

    @property
    def varlen(self) -> Varlen | None: ...

    def added(self, dtype: torch.dtype) -> Tensor | None: ...


Given = TypeVar("Given", bound=Hidden, contravariant=True)


class Plain(Protocol[Given]):
    """The signature of the plain form."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: Given, /, *, scale: float, rate: float) -> Tensor: ...


def attend(
    q_BHTK: Tensor,
    k_BNSK: Tensor,
    v_BNSK: Tensor,
    bias: Given,
    *,
    scale: float,
    rate: float,
    plain: Plain[Given],
    in_plain: bool = False,
) -> Tensor:
    """softmax(scale q k^T + bias) v (Vaswani et al. 2017, equation 1), [B, H, T, K]; H is a multiple of N.

    rate      rate of dropout on the weights
    plain     the plain form, which is the equation
    in_plain  whether to use the plain form in any case: only it shows the weights
    """
    if not in_plain:
        if bias.varlen is not None and bias.varlen.fits(q_BHTK, k_BNSK):
            return bias.varlen.attend(q_BHTK, k_BNSK, v_BNSK, scale=scale, rate=rate)
        if not plain_is_faster(q_BHTK, rate):
            mask = bias.added(q_BHTK.dtype)
            return fused(q_BHTK, k_BNSK, v_BNSK, mask, scale=scale, rate=rate, causal=bias.causal)
    with exactly(q_BHTK):  # under autocast the weights would go to float32 and back
        return plain(q_BHTK, k_BNSK, v_BNSK, bias, scale=scale, rate=rate)


def fused(
    q_BHTK: Tensor,
    k_BNSK: Tensor,
    v_BNSK: Tensor,
    mask: Tensor | None,
    *,
    scale: float,
    rate: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """Attention with PyTorch's fused kernel, which does not store the weights.

    mask     added to the scores, in the number format of the queries; None: no mask
    rate     rate of dropout on the weights
    causal   whether tokens do not see later ones; only without a mask
    """
    return F.scaled_dot_product_attention(
        q_BHTK,
        k_BNSK,
        v_BNSK,
        attn_mask=mask,
        dropout_p=rate,
        is_causal=causal,
        scale=scale,
        enable_gqa=q_BHTK.shape[1] != k_BNSK.shape[1],
    )


def additive(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias in the number format of the scores; a bool mask (true where visible) becomes 0 and -inf."""
    if bias.dtype is not torch.bool:
        return bias.to(dtype)
    return torch.zeros(bias.shape, dtype=dtype, device=bias.device).masked_fill_(~bias, -math.inf)


def plain_is_faster(q_BHTK: Tensor, rate: float) -> bool:
    """Whether the plain form is faster. On a CPU, the kernel of `fused` draws dropout slowly, in float32 for bfloat16
    too (see `kernels.dropout`). Without dropout, its training in bfloat16 takes up to three times as long, unless rows
    are so long that the weights do not fit the caches."""
    if q_BHTK.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return rate > 0 or (q_BHTK.requires_grad and q_BHTK.dtype is torch.bfloat16 and q_BHTK.shape[-2] <= FEW)

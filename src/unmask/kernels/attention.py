"""Scaled dot-product attention by the kernel that is fastest for a device, a number format and a mask.

The choice is by measurement (docs/decisions/0014-attention-by-measurement.md, `benchmarks/attention.py`). The plain
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

FEW = 256
"""Queries up to which the plain form is used where it learns in bfloat16 on a CPU."""


class Hidden(Protocol):
    """What a kernel needs to know of the bias: what is added to the scores, a tensor that broadcasts to [B, H, T, S],
    or one of the two forms that kernels know by name."""

    @property
    def causal(self) -> bool: ...

    @property
    def varlen(self) -> Varlen | None: ...

    def added(self, dtype: torch.dtype) -> Tensor | None: ...


Given = TypeVar("Given", bound=Hidden, contravariant=True)


class Plain(Protocol[Given]):
    """The plain form."""

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

    rate      of dropout on the weights
    plain     the equation written out
    in_plain  whether to use it whatever is faster: it alone shows the weights
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
    """The same by PyTorch's kernel, which keeps no weights.

    mask     added to the scores, in the format of the queries; None: nothing
    rate     of dropout on the weights
    causal   whether a token sees none after it; only without a mask
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
    """What is added to scores of this number format: 0 or -inf of what is bool (true where visible), else the bias."""
    if bias.dtype is not torch.bool:
        return bias.to(dtype)
    return torch.zeros(bias.shape, dtype=dtype, device=bias.device).masked_fill_(~bias, -math.inf)


def plain_is_faster(q_BHTK: Tensor, rate: float) -> bool:
    """Whether plain products are faster: on a CPU the kernel of `fused` draws dropout slowly, and bfloat16 in float32
    (see `kernels.dropout`); without dropout, it learns in bfloat16 up to three times as slowly, until rows are so long
    that the weights no longer fit the caches."""
    if q_BHTK.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return rate > 0 or (q_BHTK.requires_grad and q_BHTK.dtype is torch.bfloat16 and q_BHTK.shape[-2] <= FEW)

"""Attention of packed rows by the boundaries of their sequences (varlen), by the kernel that a GPU has for it.

Of a packed row it computes what lies within its sequences and nothing else, and keeps no weights (FlashAttention, Dao
et al. 2022 and Dao 2023; `flash_attn_varlen_func` of its authors). The plain form is `Varlen.plain`.

Shapes: B rows, T tokens of a row, H heads, K width of a head, R sequences of all rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16)
WIDEST = 128  # head; beyond, some GPUs draw no dropout


class Varlen(NamedTuple):
    """Which tokens see one another: those of a sequence, or of it those that are not later.

    boundaries  [R + 1] int32: where each sequence begins in the flattened rows, and where the last one ends; some may
                be empty (`unmask.types.boundaries_of`)
    longest     no sequence is longer
    causal      whether a token sees none after it
    """

    boundaries: Tensor
    longest: int
    causal: bool

    def fits(self, q_BHTK: Tensor, k_BHTK: Tensor) -> bool:
        """Whether the kernel takes these: numbers of 16 bits, as many heads of keys as of queries, of a width that it
        knows, on a device that has it."""
        width = q_BHTK.shape[-1]
        known = q_BHTK.dtype in DTYPES and q_BHTK.shape == k_BHTK.shape and width <= WIDEST and width % 8 == 0
        return known and has_kernel(q_BHTK.device)

    def attend(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, scale: float, rate: float) -> Tensor:
        """softmax(scale q k^T) v within each sequence (Vaswani et al. 2017, equation 1), [B, H, T, K], with this rate
        of dropout on the weights."""
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q_BHTK, k_BHTK, v_BHTK))  # [B * T, H, K], as they lie
        ends, longest = self.boundaries, self.longest
        # That of `torch.nn.attention.varlen`, which draws no dropout; nested tensors call it just so.
        y, *_ = torch.ops.aten._flash_attention_forward(
            q, k, v, ends, ends, longest, longest, rate, self.causal, False, scale=scale
        )
        attended: Tensor = y.unflatten(0, (len(q_BHTK), -1)).transpose(1, 2)
        return attended

    def plain(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, scale: float) -> Tensor:
        """The plain form of `attend`, without dropout: one sequence after the other."""
        q, k, v = (x.transpose(1, 2).flatten(0, 1).transpose(0, 1) for x in (q_BHTK, k_BHTK, v_BHTK))  # [H, B * T, K]
        parts = []
        for begin, end in pairwise(self.boundaries.tolist()):
            scores_HTT = scale * q[:, begin:end] @ k[:, begin:end].mT
            if self.causal:
                later_TT = torch.ones_like(scores_HTT[0], dtype=torch.bool).triu(1)
                scores_HTT = scores_HTT.masked_fill(later_TT, -torch.inf)
            parts.append(scores_HTT.softmax(-1) @ v[:, begin:end])
        return torch.cat(parts, 1).transpose(0, 1).unflatten(0, (len(q_BHTK), -1)).transpose(1, 2)


@torch.compiler.assume_constant_result
def has_kernel(device: torch.device) -> bool:
    """Whether a device has the kernel: NVIDIA's from Ampere on, unless PyTorch was told to leave it
    (`torch.backends.cuda.enable_flash_sdp`)."""
    if device.type != "cuda" or torch.version.cuda is None:
        return False
    known = torch.backends.cuda.is_flash_attention_available() and torch.backends.cuda.flash_sdp_enabled()
    return known and torch.cuda.get_device_capability(device) >= (8, 0)

"""Attention within runs: sequences that lie one after the other, by the kernel that is made for them on a GPU.

Of a packed row it computes what lies within its sequences and nothing else, and holds no weights (FlashAttention, Dao
et al. 2022 and Dao 2023; `flash_attn_varlen_func` of its authors).

Shapes: B rows, T tokens of a row, H heads, K width of a head, R runs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16)
WIDEST = 128  # head; beyond, some GPUs draw no dropout


class Runs(NamedTuple):
    """Which tokens see one another: those of a run, or of it those that are not later.

    begins   [R + 1] int32: where each run begins in the flattened rows, and where the last one ends; some may be empty
    longest  no run is longer
    causal   whether a token sees none after it
    """

    begins: Tensor
    longest: int
    causal: bool

    def fit(self, q_BHTK: Tensor, k_BHTK: Tensor) -> bool:
        """Whether the kernel takes these: numbers of 16 bits, as many heads of keys as of queries, of a width that it
        knows."""
        width = q_BHTK.shape[-1]
        return q_BHTK.dtype in DTYPES and q_BHTK.shape == k_BHTK.shape and width <= WIDEST and width % 8 == 0

    def attend(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, scale: float, dropout: float) -> Tensor:
        """softmax(scale q k^T) v within each run (Vaswani et al. 2017, equation 1), [B, H, T, K]."""
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q_BHTK, k_BHTK, v_BHTK))  # [B * T, H, K], as they lie
        ends, longest = self.begins, self.longest
        # That of `torch.nn.attention.varlen`, which draws no dropout; nested tensors call it just so.
        said, *_ = torch.ops.aten._flash_attention_forward(
            q, k, v, ends, ends, longest, longest, dropout, self.causal, False, scale=scale
        )
        attended: Tensor = said.unflatten(0, (len(q_BHTK), -1)).transpose(1, 2)
        return attended

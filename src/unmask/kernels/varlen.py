"""Attention of packed rows by sequence boundaries (varlen), with a kernel for GPUs.

The kernel computes only the scores within each sequence of a packed row, and stores no weights (FlashAttention, Dao et
al. 2022 and Dao 2023; `flash_attn_varlen_func` of its authors). The plain form is `Varlen.plain`.

Shapes: B rows, T tokens of a row, H heads, K width of a head, R sequences of all rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16)
WIDEST = 128  # width of a head; for wider heads, some GPUs do not support dropout


class Varlen(NamedTuple):
    """A mask by sequence boundaries: a token sees the tokens of its sequence; if causal, only those up to itself.

    boundaries  [R + 1] int32: the place where each sequence begins in the flattened rows, and where the last one ends;
                sequences may be empty (`unmask.types.boundaries_of`)
    longest     upper bound of the length of a sequence
    causal      whether tokens do not see later ones
    window      only tokens less than this many places away are visible, on either side; None: no limit
    """

    boundaries: Tensor
    longest: int
    causal: bool
    window: int | None = None

    def fits(self, q_BHTK: Tensor, k_BHTK: Tensor) -> bool:
        """Whether the kernel supports these queries and keys: 16-bit numbers, equal shapes, a supported width of heads,
        and a device that has the kernel."""
        width = q_BHTK.shape[-1]
        known = q_BHTK.dtype in DTYPES and q_BHTK.shape == k_BHTK.shape and width <= WIDEST and width % 8 == 0
        return known and has_kernel(q_BHTK.device)

    def attend(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, scale: float, rate: float) -> Tensor:
        """softmax(scale q k^T) v within each sequence (Vaswani et al. 2017, equation 1), [B, H, T, K].

        rate  rate of dropout on the weights
        """
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q_BHTK, k_BHTK, v_BHTK))  # [B * T, H, K]
        ends, longest = self.boundaries, self.longest
        reach = None if self.window is None else self.window - 1
        sides = {"window_size_left": reach, "window_size_right": 0 if self.causal and reach is not None else reach}
        # The operator behind `torch.nn.attention.varlen`, which has no dropout. Nested tensors call it the same way.
        y, *_ = torch.ops.aten._flash_attention_forward(
            q, k, v, ends, ends, longest, longest, rate, self.causal, False, scale=scale, **sides
        )
        attended: Tensor = y.unflatten(0, (len(q_BHTK), -1)).transpose(1, 2)
        return attended

    def plain(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, *, scale: float) -> Tensor:
        """The plain form of `attend`, without dropout, for one sequence after another."""
        q, k, v = (x.transpose(1, 2).flatten(0, 1).transpose(0, 1) for x in (q_BHTK, k_BHTK, v_BHTK))  # [H, B * T, K]
        parts = []
        for begin, end in pairwise(self.boundaries.tolist()):
            scores_HTT = scale * q[:, begin:end] @ k[:, begin:end].mT
            far = self.longest if self.window is None else self.window
            seen_TT = torch.ones_like(scores_HTT[0], dtype=torch.bool).triu(1 - far)
            seen_TT = seen_TT.tril(0 if self.causal else far - 1)
            scores_HTT = scores_HTT.masked_fill(~seen_TT, -torch.inf)
            parts.append(scores_HTT.softmax(-1) @ v[:, begin:end])
        return torch.cat(parts, 1).transpose(0, 1).unflatten(0, (len(q_BHTK), -1)).transpose(1, 2)


def has_kernel(device: torch.device) -> bool:
    """Whether a device has the kernel: NVIDIA GPUs from Ampere on, unless the user disabled it
    (`torch.backends.cuda.enable_flash_sdp`)."""
    if device.type != "cuda" or torch.version.cuda is None:
        return False
    known = torch.backends.cuda.is_flash_attention_available() and torch.backends.cuda.flash_sdp_enabled()
    return known and torch.cuda.get_device_capability(device) >= (8, 0)


def settle_for_compiler() -> None:
    """Call it before a model is compiled: whether there is the kernel is then a constant of the graph.

    As a decorator of `has_kernel`, it would load the compiler in every process.
    """
    torch.compiler.assume_constant_result(has_kernel)

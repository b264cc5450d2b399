"""SegmentModel: reads a text in segments, with a memory of earlier ones; SegmentState, its state while it writes.

Shapes: L layers, B rows, T tokens of a segment, M tokens of the memory, S = M + T keys, D width, V vocabulary;
W hypotheses of each row, N = B * W of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmask.errors import unknown
from unmask.models.causal import CausalModel, left_aligned
from unmask.models.writer import State
from unmask.nn import Mask
from unmask.nn.attention import Bias
from unmask.nn.dropout import Dropout
from unmask.nn.position import distances
from unmask.types import Batch


class SegmentStack(nn.Module):
    """Blocks that run one after the other, each with its own memory.

    memory   M, tokens that a block remembers, and tokens that it reads at once
    dropout  on the outputs of the last block
    """

    def __init__(self, blocks: Sequence[nn.Module], memory: int, dropout: float = 0.0):
        super().__init__()
        self.blocks, self.memory = nn.ModuleList(blocks), memory
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor, *, mask: Mask | None = None, positions_BT: Tensor | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D], M tokens at a time, from an empty memory.

        mask  has no effect: what a token sees follows from its position
        """
        hidden, memory = [], None
        for x_BtD, positions_Bt in zip(
            x_BTD.split(self.memory, 1), _places(x_BTD, positions_BT).split(self.memory, 1), strict=True
        ):
            h_BtD, memory = self.read(x_BtD, positions_Bt, memory)
            hidden.append(h_BtD)
        return torch.cat(hidden, 1)

    def read(self, h_BTD: Tensor, positions_BT: Tensor, memory_LBMD: Tensor | None) -> tuple[Tensor, Tensor]:
        """Read a segment: the outputs of the last block [B, T, D], and the memory after the segment.

        memory_LBMD  the last inputs of each block; None or empty before the first segment

        A token at position p of its sequence sees the p tokens before it, as far back as the memory goes. So no token
        sees what the memory holds of another sequence, or of padding before its own.
        """
        B, T, D = h_BTD.shape
        if memory_LBMD is None:
            memory_LBMD = h_BTD.new_empty(len(self.blocks), B, 0, D)
        S = memory_LBMD.shape[2] + T
        back_TS = -distances(T, S, h_BTD.device)
        visible_BTS = (back_TS >= 0) & (back_TS <= positions_BT[..., None])
        bias, read = Bias(visible_BTS[:, None]), []
        for block, memory_BMD in zip(self.blocks, memory_LBMD, strict=True):
            read.append(h_BTD.detach())
            h_BTD = block(h_BTD, memory_BMD, bias)
        after_LBMD = torch.cat([memory_LBMD, torch.stack(read).to(memory_LBMD.dtype)], 2)[:, :, -self.memory :]
        return self.dropout(h_BTD), after_LBMD


def _places(x_BTD: Tensor, positions_BT: Tensor | None) -> Tensor:
    """[B, T] position of each token in its sequence: as given, or 0 … T-1."""
    if positions_BT is not None:
        return positions_BT
    return torch.arange(x_BTD.shape[1], device=x_BTD.device).expand(x_BTD.shape[:2])


@dataclass(eq=False)
class SegmentState(State):
    """The state of a Transformer-XL while it writes; the memories of all hypotheses have the same number of tokens.

    memory_LNMD  of each hypothesis; that of a short prompt is padded on the left
    places_N     position of the next token of each hypothesis
    """

    width: int
    first: Tensor
    memory_LNMD: Tensor | None
    places_N: Tensor

    def select(self, rows_N: Tensor) -> None:
        self.first, self.places_N = self.first[rows_N], self.places_N[rows_N]
        if self.memory_LNMD is not None:
            self.memory_LNMD = self.memory_LNMD[:, rows_N]


class SegmentModel(CausalModel):
    """Tokens in, hidden states out; `read` continues where the previous call ended.

    `forward` begins with an empty memory and reads a row M tokens at a time. Its cost grows linearly with the length of
    a row, and in every layer a token sees at least the M tokens before it.
    """

    stack: SegmentStack

    def read(self, batch: Batch, memory_LBMD: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Hidden states [B, T, D] of a segment, and the memory [L, B, M, D] after it, which has no gradient.

        memory_LBMD  the memory that the previous call returned, for which `batch.positions` must count the earlier
                     tokens of each sequence, those in the memory included; None at the beginning
        """
        x_BTD = self.embedding(batch.tokens)
        return self.stack.read(x_BTD, _places(x_BTD, batch.positions), memory_LBMD)

    # -- writing: see `models.writer.Writer`

    @torch.no_grad()
    def prefill(self, batch: Batch, width: int = 1) -> State:
        """Read the prompts `batch` [B, T], one per row, except for their last tokens, which are fed first.

        Short prompts may be padded on either side. Raises UnmaskError for a prompt without a token.
        """
        if "next" not in self.heads:
            raise unknown("head of this model", "next", self.heads)
        tokens_BT, lengths_B = left_aligned(batch)
        T = tokens_BT.shape[1]
        places_BT = torch.arange(T, device=tokens_BT.device) - (T - lengths_B)[:, None]  # of rows that end together
        tokens_BT, places_BT = tokens_BT.gather(1, places_BT % T), places_BT.clamp(min=0)
        memory: Tensor | None = None
        for begin in range(0, T - 1, self.stack.memory):
            here = slice(begin, min(begin + self.stack.memory, T - 1))
            _, memory = self.read(Batch(tokens_BT[:, here], positions=places_BT[:, here]), memory)
        repeated = None if memory is None else memory.repeat_interleave(width, 1)
        first_N, places_N = (x[:, -1].repeat_interleave(width) for x in (tokens_BT, places_BT))
        return SegmentState(width, first_N, repeated, places_N)

    @torch.no_grad()
    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, SegmentState)
        batch = Batch(tokens_N[:, None], positions=state.places_N[:, None])
        hidden_N1D, state.memory_LNMD = self.read(batch, state.memory_LNMD)
        state.places_N = state.places_N + 1
        logits_NV: Tensor = self.heads["next"](hidden_N1D.squeeze(1))
        return logits_NV

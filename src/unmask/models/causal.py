"""CausalModel: a stack that reads from left to right, so that it can write; CausalState, its state while it writes.

Shapes: B rows, T tokens of a row, D width, V vocabulary; W hypotheses of each row, N = B * W of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.models.model import ModelConfig
from unmask.models.stack_model import StackModel
from unmask.models.writer import State
from unmask.nn import Cache, Mask, Stack
from unmask.types import Batch


@dataclass(eq=False)
class CausalState(State):
    """The state of a causal model while it writes.

    cache      keys and values of all blocks; those of a prompt are stored once for its W hypotheses
    places_BW  position of the next token of each hypothesis
    """

    width: int
    first: Tensor
    cache: Cache
    places_BW: Tensor

    def select(self, rows_N: Tensor) -> None:
        self.first = self.first[rows_N]
        self.places_BW = self.places_BW.flatten()[rows_N].view(-1, self.width)
        self.cache.select(rows_N)


class CausalModel(StackModel):
    """Tokens in, hidden states out; the state of a token depends on the tokens of its sequence up to it.

    The summary of a sequence is the state of its last token, the only one that has seen the whole sequence.
    """

    def __init__(
        self, config: ModelConfig, embedding: nn.Module, stack: nn.Module, heads: Mapping[str, nn.Module]
    ) -> None:
        super().__init__(config, embedding, stack, heads=heads, mask=Mask(causal=True))

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        assert batch is not None, "where a sequence ends is read off its batch"
        _, last_M = ends(batch, places_M)
        return hidden_BTD.flatten(0, 1)[last_M]

    @property
    def causal(self) -> bool:
        return True

    # -- writing: see `models.writer.Writer`

    @torch.no_grad()
    def prefill(self, batch: Batch, width: int = 1) -> State:
        """Read the prompts `batch` [B, T], one per row, except for their last tokens, which are fed first.

        Short prompts may be padded on either side. Raises UnmaskError for a prompt without a token or longer than the
        positions.
        """
        if "next" not in self.heads:
            raise unknown("head of this model", "next", self.heads)
        assert isinstance(self.stack, Stack)
        tokens_BT, lengths_B = left_aligned(batch)
        before_B = lengths_B - 1  # tokens before the one that is fed first
        cache, read = self.stack.begin(), int(before_B.max())
        if read:
            self.stack(self.embedding(tokens_BT[:, :read]), cache=cache)
        ragged = int(before_B.min()) < read
        visible_BS = torch.arange(read, device=before_B.device) < before_B[:, None] if ragged else None
        cache.fork(width, visible_BS)
        first_B = tokens_BT.gather(1, before_B[:, None]).squeeze(1)
        return CausalState(width, first_B.repeat_interleave(width), cache, before_B[:, None].repeat(1, width))

    @torch.no_grad()
    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, CausalState)
        x_BWD = self.embedding(tokens_N.view_as(state.places_BW), None, state.places_BW)
        hidden_BWD = self.stack(x_BWD, positions_BT=state.places_BW, cache=state.cache)
        state.places_BW = state.places_BW + 1
        logits_NV: Tensor = self.heads["next"](hidden_BWD.flatten(0, 1))
        return logits_NV

    def room(self, lengths_B: Tensor) -> Tensor | None:
        """As `Model.room`; the last token needs no position, because it is never fed."""
        return None if self.positions is None else self.positions + 1 - lengths_B


def left_aligned(batch: Batch) -> tuple[Tensor, Tensor]:
    """The rows [B, T] of one sequence each, moved so that all begin at the left, and their lengths [B].

    Raises UnmaskError for a row without a token.
    """
    tokens_BT = batch.tokens
    B, T = tokens_BT.shape
    if batch.documents is None:
        return tokens_BT, tokens_BT.new_full((B,), T)
    real_BT = batch.documents > 0
    lengths_B = real_BT.sum(1)
    if not int(lengths_B.min()):
        raise UnmaskError(f"Row {int(lengths_B.argmin())} has no token to continue from; give it the start token.")
    order_BT = torch.arange(T, device=tokens_BT.device) + real_BT.int().argmax(1)[:, None]
    return tokens_BT.gather(1, order_BT % T), lengths_B


def ends(batch: Batch, places_M: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the last place of the sequences that hold these places of the flattened rows, [M] each."""
    T = batch.tokens.shape[1]
    rows_M = places_M // T * T
    if batch.documents is None:
        return rows_M, rows_M + T - 1
    places_T = torch.arange(T, device=batch.tokens.device)
    edges_BT = batch.documents[:, :-1] != batch.documents[:, 1:]
    begins_BT = F.pad(edges_BT, (1, 0), value=True)
    ends_BT = F.pad(edges_BT, (0, 1), value=True)
    first_BT = torch.where(begins_BT, places_T, -1).cummax(1).values  # the nearest beginning on the left
    last_BT = torch.where(ends_BT, places_T, T).flip(1).cummin(1).values.flip(1)  # the nearest end on the right
    return rows_M + first_BT.flatten()[places_M], rows_M + last_BT.flatten()[places_M]

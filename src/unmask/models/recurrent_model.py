"""RecurrentModel: a recurrent network over tokens, with heads; it can write if it reads from left to right.

Shapes: B rows, T tokens of a row, N sequences of all rows (or hypotheses), S tokens of the longest, D width of token
vectors, H width of a state, E width of the outputs (H, or 2 H if bidirectional), V vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.models.causal import ends, left_aligned
from unmask.models.recurrent_decoder import Seq2SeqState
from unmask.models.stack_model import StackModel
from unmask.models.writer import State
from unmask.nn import Embedding, RecurrentLayer, RecurrentStack, RecurrentState
from unmask.nn.sequences import Sequences
from unmask.types import Batch

if TYPE_CHECKING:
    from unmask.models.recurrent import RecurrentNetwork


MOST_PADDED = 4
"""Up to this many places per token, padding included, padding is read as if it were text."""


class RecurrentModel(StackModel):
    """Tokens in, outputs of a recurrent network out. Every sequence starts from a state of zero, so packed, padded and
    single sequences give the same outputs.

    The summary of a sequence is the state after its last token and, if bidirectional, the backward state at its first
    token.
    """

    config: RecurrentNetwork
    embedding: Embedding
    stack: RecurrentStack

    def __init__(
        self, config: RecurrentNetwork, embedding: Embedding, stack: RecurrentStack, heads: Mapping[str, nn.Module]
    ) -> None:
        super().__init__(config, embedding, stack, heads=heads)

    def forward(self, batch: Batch) -> Tensor:
        """Outputs [B, T, E], zero at padding.

        Raises UnmaskError for a sequence that is longer than `length`.
        """
        x_BTD = self.embedding(batch.tokens)
        if batch.documents is None:
            self._fits(batch.tokens.shape[1])
            return self.read(x_BTD)
        sequences = Sequences.of(batch.documents)
        x_NSD = sequences.unpack(x_BTD)
        self._fits(x_NSD.shape[1])
        return sequences.pack(self.read(x_NSD, sequences.lengths.cpu()))

    def read(self, x_NSD: Tensor, lengths_N: Tensor | None = None) -> Tensor:
        """Token vectors [N, S, D] of sequences, one per row -> outputs [N, S, E]."""
        outputs_NSE, _ = self.stack(x_NSD, lengths_N=None if self._through(x_NSD, lengths_N) else lengths_N)
        return outputs_NSE

    def _through(self, x_NSD: Tensor, lengths_N: Tensor | None) -> bool:
        """Whether to read the padding after the sequences too, which does not change the outputs before it if the
        network reads in one direction: on a CPU, the backward pass of the kernels without lengths is several times
        faster. Not where most places are padding."""
        if lengths_N is None or self.config.bidirectional:
            return False
        N, S = x_NSD.shape[:2]
        return MOST_PADDED * int(lengths_N.sum()) >= N * S

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        assert batch is not None, "where a sequence ends is read off its batch"
        H, flat = self.config.hidden, hidden_BTD.flatten(0, 1)
        first_M, last_M = ends(batch, places_M)
        return torch.cat([flat[last_M, :H], flat[first_M, H:]], -1)

    @property
    def causal(self) -> bool:
        return not self.config.bidirectional

    def units(self, tokens_BT: Tensor) -> list[Tensor]:
        x_BTD, layers = self.embedding(tokens_BT), []
        for block in self.stack.blocks:
            assert isinstance(block, RecurrentLayer)
            trace = block.network.trace(x_BTD)
            x_BTD = torch.cat(list(trace.hidden), -1)  # both directions side by side
            layers.append(x_BTD if trace.cell is None else torch.cat(list(trace.cell), -1).tanh())
        return layers

    # -- writing: see `models.writer.Writer`

    @torch.no_grad()
    def prefill(self, batch: Batch, width: int = 1) -> Seq2SeqState:
        """Read the prompts `batch` [B, T], one per row, except for their last tokens, which are fed first.

        Short prompts may be padded on either side. Raises UnmaskError for a prompt without a token.
        """
        if "next" not in self.heads:
            raise unknown("head of this model", "next", self.heads)
        tokens_BT, lengths_B = left_aligned(batch)
        first_B = tokens_BT.gather(1, lengths_B[:, None] - 1).squeeze(1)
        last = self._after(tokens_BT, lengths_B - 1)
        return Seq2SeqState(width, first_B.repeat_interleave(width), last.repeat(width))

    @torch.no_grad()
    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, Seq2SeqState)
        output_NH, state.recurrent = self.stack.step(self.embedding(tokens_N), state.recurrent)
        logits_NV: Tensor = self.heads["next"](output_NH)
        return logits_NV

    def _after(self, tokens_BT: Tensor, lengths_B: Tensor) -> RecurrentState:
        """The state after the first `lengths_B` tokens of each row; a length may be 0."""
        order_B = lengths_B.argsort(descending=True, stable=True)
        _, last = self.stack(self.embedding(tokens_BT[order_B]), lengths_N=lengths_B[order_B].clamp(min=1))
        last = last.select(order_B.argsort())
        nothing = (lengths_B == 0)[:, None]
        return last.map(lambda x: x.masked_fill(nothing, 0.0))

    def _fits(self, tokens: int) -> None:
        if self.positions is not None and tokens > self.positions:
            raise UnmaskError(
                f"A sequence of {tokens} tokens is longer than the {self.positions} that this model was made for. "
                f"Shorten it, or set --length {tokens} or more."
            )

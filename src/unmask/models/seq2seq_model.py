"""Seq2SeqModel: a recurrent encoder reads the source, a recurrent decoder writes the target.

Shapes: B rows (sources), T tokens written, S tokens read, E width of the encoder's outputs, H width of the decoder's
state, V vocabulary; N = B * width hypotheses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.models.encoder_decoder import TextToText
from unmask.models.recurrent_decoder import Decoder, Seq2SeqState
from unmask.models.writer import State
from unmask.nn import Dropout, Embedding, RecurrentEncoder, record_attention
from unmask.types import Batch

if TYPE_CHECKING:
    from unmask.models.seq2seq import Seq2Seq


class Seq2SeqModel(TextToText):
    """An encoder, a decoder, and an embedding before each; the two embeddings may share their table.

    source, target    tokens -> vectors
    encoder, decoder  the recurrent networks
    """

    config: Seq2Seq
    source: Embedding
    encoder: RecurrentEncoder
    decoder: Decoder

    def __init__(self, config: Seq2Seq, **parts: Any) -> None:
        super().__init__(config, **parts)
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, H]. Raises UnmaskError without a source, for empty ones, or for too long sequences.

        Padding is at the end of the rows, after all real tokens.
        """
        if batch.source is None:
            raise UnmaskError("A Seq2Seq reads a source, but this batch has no source.")
        self._fits(batch.tokens.shape[1])
        state = self.read(batch.source)
        hidden_BTH: Tensor = self.dropout(self.decoder(self.target(batch.tokens), state))
        return hidden_BTH

    def read(self, source: Batch, width: int = 1) -> Seq2SeqState:
        """Run the encoder: the state from which `width` hypotheses of each source start."""
        self._fits(source.tokens.shape[1])
        outputs_BSE, last = self.encoder(self.source(source.tokens), source.lengths)
        first_N = self.first(len(source.tokens), width, source.tokens.device)
        return Seq2SeqState(width, first_N, last.repeat(width), self.decoder.keys(outputs_BSE, source.lengths))

    @torch.no_grad()
    def prefill(self, batch: Batch, width: int = 1) -> Seq2SeqState:
        """Read the sources `batch`, one per row, and prepare to write `width` hypotheses for each."""
        return self.read(batch, width)

    @torch.no_grad()
    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, Seq2SeqState)
        logits_NV: Tensor = self.heads["next"](self.dropout(self.decoder.step(self.target(tokens_N), state)))
        return logits_NV

    def alignment(self, batch: Batch) -> Tensor:
        """The attention of each predicted token to each token of the source, [B, T, S]; a row sums to 1.

        Raises UnmaskError for a model without attention.
        """
        with record_attention(self.decoder) as maps:
            self(batch)
        if not maps:
            raise UnmaskError("This model has no attention, and so no alignment to show.")
        return torch.cat([m.weights for m in maps], 2)[:, 0]

    def _fits(self, tokens: int) -> None:
        if self.positions is not None and tokens > self.positions:
            raise UnmaskError(
                f"A sequence of {tokens} tokens is longer than the {self.positions} that this model was made for. "
                f"Shorten it, or set --length {tokens} or more."
            )

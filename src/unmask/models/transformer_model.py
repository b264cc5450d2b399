"""TransformerModel: an encoder reads the source; a decoder attends to it and writes the target.

Shapes: B rows (sources), T tokens written, S tokens read, D width, V vocabulary; N = B * width hypotheses.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.models.encoder_decoder import TextToText
from unmask.models.writer import State
from unmask.nn import Cache, CrossMask, Embedding, Mask, Stack
from unmask.types import Batch


class TransformerState(State):
    """The state of a Transformer while it writes: the keys and values of the source and of the tokens written."""

    def __init__(self, cache: Cache, first_N: Tensor) -> None:
        self.cache, self.first, self.width = cache, first_N, cache.width

    def select(self, rows_N: Tensor) -> None:
        self.first = self.first[rows_N]
        self.cache.select(rows_N)


class TransformerModel(TextToText):
    """An encoder, a decoder, and an embedding before each; the two embeddings may share their table.

    source, target    tokens and positions -> vectors
    encoder, decoder  the blocks
    """

    source: Embedding
    encoder: Stack
    decoder: Stack
    crossing = "cross"

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, D] of the decoder. Raises UnmaskError without a source, or for too long sequences.

        In rows of one sequence, padding is at the end, where the causal mask hides it from all real tokens. In packed
        rows, sequence i of a row attends to sequence i of its source.
        """
        if batch.source is None:
            raise UnmaskError("A Transformer reads a source, but this batch has no source.")
        memory_BSD = self.encode(batch.source)
        x_BTD = self._embed(self.target, batch)
        causal = Mask(causal=True) & _sequences(batch) if _packed(batch) else Mask(causal=True)
        crossing = _crossing(batch, batch.source)
        hidden_BTD: Tensor = self.decoder(
            x_BTD, mask=causal, memory=memory_BSD, memory_mask=crossing, positions_BT=batch.positions
        )
        return hidden_BTD

    def encode(self, source: Batch) -> Tensor:
        """The encoder's hidden states of the sources, [B, S, D]. Raises UnmaskError for a source that is too long."""
        mask = _sequences(source) if _packed(source) else _padding(source)
        memory_BSD: Tensor = self.encoder(self._embed(self.source, source), mask=mask, positions_BT=source.positions)
        return memory_BSD

    def _embed(self, embedding: Embedding, batch: Batch) -> Tensor:
        if not _packed(batch) and batch.signal is None:  # a picture has as many places as its embedding
            self.check_length(batch.tokens.shape[1])
        x_BTD: Tensor = embedding(batch.tokens, positions_BT=batch.positions, signal=batch.signal)
        return x_BTD

    @torch.no_grad()
    def prefill(self, batch: Batch, width: int = 1) -> TransformerState:
        """Read the sources `batch`, one per row, and prepare to write `width` hypotheses for each."""
        cache = self.decoder.begin(self.encode(batch), memory_mask=_padding(batch), width=width)
        return TransformerState(cache, self.first(len(batch.tokens), width, batch.tokens.device))

    @torch.no_grad()
    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`.

        The hypotheses of a source are W tokens at the same position, in one row [B, W]; each sees its past alone.
        Raises UnmaskError beyond the length of the model.
        """
        assert isinstance(state, TransformerState)
        cache = state.cache
        self.check_length(cache.length + 1)
        positions_1W = cache.positions(cache.width, tokens_N.device)
        x_BWD = self.target(tokens_N.view(-1, cache.width), positions_BT=positions_1W)
        hidden_BWD = self.decoder(x_BWD, positions_BT=positions_1W, cache=cache)
        logits_NV: Tensor = self.heads["next"](hidden_BWD.flatten(0, 1))
        return logits_NV

    def check_length(self, tokens: int) -> None:
        """Raise UnmaskError for a sequence of more tokens than the model has positions."""
        if self.positions is not None and tokens > self.positions:
            raise UnmaskError(
                f"A sequence of {tokens} tokens does not fit this model, which has {self.positions} positions. "
                f"Shorten it, or set --length {self.positions} or less."
            )


def _padding(source: Batch) -> Mask | None:
    """A mask that hides the padding at the end of the sources; None where there is none."""
    lengths = source.lengths
    return None if lengths is None else Mask(lengths=lengths)


def _sequences(batch: Batch) -> Mask:
    """A mask that hides the other sequences of a row."""
    return Mask(documents=batch.documents, boundaries=batch.boundaries)


def _packed(batch: Batch) -> bool:
    """Whether rows may hold several sequences: the batch then has both positions and documents."""
    return batch.positions is not None and batch.documents is not None


def _crossing(batch: Batch, source: Batch) -> Mask | CrossMask | None:
    """Which source tokens each token sees. Raises UnmaskError where only one of the two batches is packed."""
    if _packed(batch) != _packed(source):
        raise UnmaskError("Either both a batch and its source must be packed, or neither.")
    if batch.documents is None or source.documents is None or not _packed(batch):
        return _padding(source)
    return CrossMask(batch.documents, source.documents)

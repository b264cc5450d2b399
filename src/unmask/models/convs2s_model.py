"""ConvS2SModel: a convolutional encoder reads the source, a convolutional decoder writes the target.

Shapes: B rows (sources), T tokens written, S tokens read, E width of the vectors, O width of the output, V vocabulary;
N = B * width hypotheses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.models.encoder_decoder import TextToText
from unmask.models.writer import State
from unmask.nn import ConvolutionalDecoder, ConvolutionalEncoder, Embedding, Memory, Window, scaled_sum
from unmask.types import Batch

if TYPE_CHECKING:
    from unmask.models.convs2s import ConvS2S


class ConvS2SState(State):
    """The state of a ConvS2S while it writes: the sources, the last inputs of each convolution, the next position."""

    def __init__(self, memory: Memory, windows: list[Window], first_N: Tensor, width: int) -> None:
        self.memory, self.windows, self.first, self.width = memory, windows, first_N, width
        self.place = 0

    def select(self, rows_N: Tensor) -> None:
        self.first = self.first[rows_N]
        for window in self.windows:
            window.select(rows_N)
        sources_B = rows_N[:: self.width] // self.width
        if not torch.equal(sources_B, torch.arange(len(self.memory.keys), device=sources_B.device)):
            self.memory.select(sources_B)


class ConvS2SModel(TextToText):
    """A convolutional encoder and decoder, and an embedding before each.

    source, target    tokens and positions -> vectors
    encoder, decoder  the blocks
    """

    config: ConvS2S
    source: Embedding
    encoder: ConvolutionalEncoder
    decoder: ConvolutionalDecoder

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, O] of the decoder. Raises UnmaskError without a source, or for too long sequences.

        Padding is at the end of the rows, where the causal convolutions of real tokens do not reach.
        """
        if batch.source is None:
            raise UnmaskError("A ConvS2S reads a source, but this batch has no source.")
        memory = self.encode(batch.source)
        self._fits(batch.tokens.shape[1])
        hidden_BTO: Tensor = self.decoder(self.target(batch.tokens, positions_BT=batch.positions), memory)
        return hidden_BTO

    def encode(self, source: Batch) -> Memory:
        """Read the sources. Raises UnmaskError for a source that is too long.

        Every decoder layer sends one gradient through the keys and one through the values. So the gradient of the
        encoder's output is divided by twice the number of layers, as in the authors' code (section 3.4 divides by the
        number of attention layers). The gradient of the token vectors is not scaled.
        """
        S = source.tokens.shape[1]
        self._fits(S)
        e_BSE = self.source(source.tokens, positions_BT=source.positions)
        lengths_B, real_BS = source.lengths, None
        if lengths_B is None:
            lengths_B = torch.full((len(source.tokens),), S, device=e_BSE.device)
        else:  # a source of padding alone sees its first place, so that its attention is finite
            lengths_B = lengths_B.clamp(min=1)
            real_BS = torch.arange(S, device=e_BSE.device) < lengths_B[:, None]
        z_BSE = self.encoder(e_BSE, None if real_BS is None else real_BS[..., None].to(e_BSE.dtype))
        if z_BSE.requires_grad:
            share = 1 / (2 * len(self.decoder.blocks))
            z_BSE.register_hook(lambda gradient: gradient * share)
        return Memory(
            keys=z_BSE,
            values=scaled_sum(z_BSE, e_BSE),
            visible=None if real_BS is None else real_BS[:, None],
            scale=lengths_B.to(z_BSE.dtype).sqrt()[:, None, None],
        )

    @torch.no_grad()
    def prefill(self, batch: Batch, width: int = 1) -> ConvS2SState:
        """Read the sources `batch`, one per row, and prepare to write `width` hypotheses for each."""
        memory = self.encode(batch)
        first_N = self.first(len(batch.tokens), width, batch.tokens.device)
        return ConvS2SState(memory, self.decoder.windows(), first_N, width)

    @torch.no_grad()
    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`.

        Raises UnmaskError beyond the length of the model.
        """
        assert isinstance(state, ConvS2SState)
        self._fits(state.place + 1)
        places_11 = torch.full((1, 1), state.place, device=tokens_N.device)
        g_N1E = self.target(tokens_N[:, None], positions_BT=places_11)
        hidden_N1O = self.decoder(g_N1E, state.memory, state.windows)
        state.place += 1
        logits_NV: Tensor = self.heads["next"](hidden_N1O.squeeze(1))
        return logits_NV

    def _fits(self, tokens: int) -> None:
        if tokens > self.config.length:
            raise UnmaskError(
                f"A sequence of {tokens} tokens does not fit this model, which has {self.config.length} positions. "
                f"Shorten it, or set --length {self.config.length} or less."
            )

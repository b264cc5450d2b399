"""VectorDecoder: one to many, a recurrent network that writes a sequence from a vector, as of an image or a class.

Shapes: B rows, F numbers of a vector, T tokens written, D width of token vectors, H width of a state, V vocabulary,
L layers; N = B * width hypotheses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from unmask.models.heads import head_of
from unmask.models.recurrent_decoder import Bottleneck, Seq2SeqState
from unmask.models.writer import State
from unmask.nn import Embedding, ProjectedHead, Recurrent, RecurrentState, Token, xavier_uniform
from unmask.types import Batch, Head


@dataclass(frozen=True, kw_only=True)
class VectorDecoder(EncoderDecoderConfig):
    """The numbers that make a network that writes from vectors, as Vinyals et al. 2015 ("Show and Tell") do of images.

    vocabulary    V                               features  F, numbers of a vector
    dim, hidden   D and H                         layers, cell  of the network
    length        longest sequence, in tokens; None: no limit
    dropout       on token vectors, between layers and before the output
    start, end, padding  ids of the token that starts a sequence, of the one that ends it, of padding
    """

    vocabulary: int = 8_000
    features: int = 256
    dim: int = 256
    hidden: int = 512
    layers: int = 1
    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    length: int | None = None
    dropout: float = 0.1
    padding: int = 0
    start: int = 1
    end: int = 2

    @property
    def width(self) -> int:
        return self.hidden

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return ProjectedHead(token, self.hidden)

    def build(
        self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> VectorDecoderModel:
        """As `ModelConfig.build`; the default head is that of the next token. Raises UnmaskError for a pooler."""
        self.refuse_pooler(pooler)
        model = VectorDecoderModel(self, {"next": Head("next_token")} if heads is None else heads)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set the initial weights of a model, or of a part of one: see `xavier_uniform`."""
        xavier_uniform(module, seed, padding=self.padding)


class VectorDecoderModel(EncoderDecoder):
    """A language model that starts from h_0 = tanh(W v) in each layer and, for an LSTM, c_0 = W' v.

    The vectors are the signal of the source: `batch.source.signal.values` [B, F], one for each sequence to write.
    """

    config: VectorDecoder
    decoder: Bottleneck

    def __init__(self, config: VectorDecoder, heads: Mapping[str, Head]) -> None:
        super().__init__(config)
        self.source = self.encoder = None
        token = Token(config.vocabulary, config.dim, padding=config.padding)
        self.target = Embedding(token, dropout=config.dropout)
        self.decoder = Bottleneck(
            Recurrent(config.cell, config.dim, config.hidden, config.layers, dropout=config.dropout)
        )
        self.hidden = nn.Linear(config.features, config.layers * config.hidden)
        self.cell = nn.Linear(config.features, config.layers * config.hidden) if config.cell == "lstm" else None
        self.dropout = nn.Dropout(config.dropout)
        self.heads = nn.ModuleDict({name: head_of(config, head, token) for name, head in heads.items()})

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, H]. Raises UnmaskError without vectors, or for vectors of another width."""
        if batch.source is None:
            raise UnmaskError("A VectorDecoder writes from vectors, but this batch has no source.")
        hidden_BTH: Tensor = self.dropout(self.decoder(self.target(batch.tokens), self.read(batch.source)))
        return hidden_BTH

    def read(self, vectors: Batch, width: int = 1) -> Seq2SeqState:
        """The state from which `width` hypotheses of each vector start."""
        config = self.config
        if vectors.signal is None:
            raise UnmaskError("A VectorDecoder writes from vectors, but this source has tokens alone.")
        v_BF = vectors.signal.values
        if v_BF.shape[1] != config.features:
            raise UnmaskError(f"This model reads vectors of {config.features} numbers, not of {v_BF.shape[1]}.")
        first = RecurrentState(self.hidden(v_BF).tanh(), None if self.cell is None else self.cell(v_BF))
        first = first.map(lambda x: x.unflatten(1, (config.layers, config.hidden)).transpose(0, 1).contiguous())
        return Seq2SeqState(width, self.first(len(v_BF), width, v_BF.device), first.repeat(width))

    @torch.no_grad()
    def prefill(self, batch: Batch, width: int = 1) -> Seq2SeqState:
        """Read the vectors of `batch`, one per row, and prepare to write `width` hypotheses for each."""
        return self.read(batch, width)

    @torch.no_grad()
    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, Seq2SeqState)
        logits_NV: Tensor = self.heads["next"](self.dropout(self.decoder.step(self.target(tokens_N), state)))
        return logits_NV

"""Seq2Seq: recurrent encoder–decoders, with a fixed vector between the two (Sutskever et al. 2014) or with attention.

Shapes: B rows (sources), T tokens written, S tokens read, D width of token vectors, H width of the decoder's state, E
width of the encoder's outputs, V vocabulary, L layers; N = B * width hypotheses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.recurrent_decoder import (
    BahdanauDecoder,
    Bottleneck,
    Decoder,
    InputFeedingDecoder,
    LuongDecoder,
    Seq2SeqState,
)
from unmask.models.sequence import EncoderDecoder, State
from unmask.nn import (
    AdditiveAttention,
    DotAttention,
    Dropout,
    Embedding,
    GeneralAttention,
    Recurrent,
    RecurrentState,
    TiedHead,
    Token,
    record_attention,
)
from unmask.types import Batch, Head


@dataclass(frozen=True, kw_only=True)
class Seq2Seq(Config):
    """The numbers and the parts that make a recurrent encoder–decoder.

    vocabulary     V, entries of the tokenizer       source_vocabulary  where the source has a tokenizer of its own;
                                                     None: one vocabulary and one table of vectors for both
    dim            D, width of the token vectors     length  longest sequence, in tokens; None: no end is known
    hidden         H, width of the decoder's state and of the encoder's outputs, both directions together
    layers, cell   of the encoder and of the decoder alike
    attention      "none": the encoder's last state is all that the decoder has; "dot", "general": as Luong et al. 2015;
                   "additive": as Bahdanau et al. 2014
    input_feeding  the decoder also reads what attention made of the token before (Luong et al. 2015, section 3.3)
    bidirectional  the encoder reads from both ends  reverse  it reads the source from its end (Sutskever et al. 2014,
                                                     section 3.3), which brings the first words of the two closer
    tied           the output's weights are the token vectors (Press & Wolf 2017)
    dropout        on token vectors, between layers and before the output (Zaremba et al. 2014)
    scale          initial weights are uniform between -scale and scale (0.08 in Sutskever et al. 2014, section 3.4);
                   None: Xavier's uniform (Glorot & Bengio 2010), which suits small widths too
    start, end, padding  ids of the token that starts a target, of </s>, of padding
    """

    vocabulary: int = 32_000
    source_vocabulary: int | None = None
    dim: int = 256
    hidden: int = 512
    layers: int = 1
    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    attention: Literal["none", "dot", "general", "additive"] = "general"
    input_feeding: bool = False
    bidirectional: bool = True
    reverse: bool = False
    length: int | None = None
    tied: bool = True
    dropout: float = 0.2
    scale: float | None = None
    padding: int = 0
    start: int = 1
    end: int = 2

    def token(self, vocabulary: int) -> Token:
        """The table of token vectors."""
        return Token(vocabulary, self.dim, padding=self.padding)

    def network(self, dim: int) -> Recurrent:
        """The decoder's layers over inputs of this width."""
        return Recurrent(self.cell, dim, self.hidden, self.layers, dropout=self.dropout)

    def encoder(self) -> Encoder:
        """The layers that read the source."""
        kind = ReversedEncoder if self.reverse else Encoder
        if not self.bidirectional:
            return kind(self.network(self.dim), nn.Identity())
        if self.hidden % 2:
            raise UnmaskError(f"Two directions cannot share {self.hidden} hidden units evenly; choose an even number.")
        both = Recurrent(self.cell, self.dim, self.hidden // 2, self.layers, bidirectional=True, dropout=self.dropout)
        return kind(both, Bridge(self.hidden, cell=self.cell == "lstm"))

    def decoder(self) -> Decoder:
        """The layers that write the target, and their attention to what the encoder says."""
        dim, hidden = self.dim, self.hidden
        if self.input_feeding and self.attention in ("none", "additive"):
            raise UnmaskError(
                f"Input feeding goes with dot or general attention, not with '{self.attention}': without attention "
                "there is nothing to feed, and additive attention feeds its context anyway."
            )
        if self.attention == "none":
            return Bottleneck(self.network(dim))
        if self.attention == "additive":
            return BahdanauDecoder(self.network(dim + hidden), AdditiveAttention(hidden, hidden), dim)
        attention = {"dot": DotAttention, "general": GeneralAttention}[self.attention](hidden, hidden)
        if self.input_feeding:
            return InputFeedingDecoder(self.network(dim + hidden), attention)
        return LuongDecoder(self.network(dim), attention)

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Over the vocabulary."""
        if not self.tied:
            return nn.Linear(self.hidden, self.vocabulary)
        tied = TiedHead(token, bias=True)
        return tied if self.hidden == self.dim else nn.Sequential(nn.Linear(self.hidden, self.dim, bias=False), tied)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0) -> Seq2SeqModel:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together.

        heads  name -> what is asked; default: the next token
        seed   of the initialisation; None leaves that to the caller, who fills the parameters anyway
        """
        heads = {"next": Head("next_token")} if heads is None else heads
        written = self.token(self.vocabulary)
        read = written if self.source_vocabulary is None else self.token(self.source_vocabulary)
        model = Seq2SeqModel(
            self,
            source=Embedding(read, dropout=self.dropout),
            target=Embedding(written, dropout=self.dropout),
            encoder=self.encoder(),
            decoder=self.decoder(),
            heads={name: head_of(self, head, written) for name, head in heads.items()},
        )
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Give a model, or a part of one, the weights it starts from; the padding's vector is zero."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if self.scale is not None:
                for parameter in part.parameters(recurse=False):
                    nn.init.uniform_(parameter, -self.scale, self.scale, generator=generator)
            elif isinstance(part, Recurrent):
                xavier(part, generator)
            elif isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight, generator=generator)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif isinstance(part, Token):
                nn.init.normal_(part.weight, std=self.dim**-0.5, generator=generator)
            if isinstance(part, Token):
                with torch.no_grad():
                    part.weight[self.padding].zero_()


def xavier(network: Recurrent, generator: torch.Generator) -> None:
    """Xavier's uniform for the matrices of each gate, biases 0, and 1 for an LSTM's forget gate, so that it remembers
    from the start (Gers et al. 2000; Jozefowicz et al. 2015)."""
    lstm = isinstance(network.kernel, nn.LSTM)
    with torch.no_grad():
        for name, parameter in network.kernel.named_parameters():
            gates = parameter.split(network.hidden)
            for gate in gates:
                if gate.dim() == 2:
                    nn.init.xavier_uniform_(gate, generator=generator)
                else:
                    nn.init.zeros_(gate)
            if lstm and name.startswith("bias_ih"):
                nn.init.ones_(gates[1])


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "hidden": 128, "layers": 1},
    "small": {"dim": 256, "hidden": 512, "layers": 1},
    "medium": {"dim": 512, "hidden": 512, "layers": 2},
    "large": {"dim": 1_000, "hidden": 1_000, "layers": 4},
}
"""Sizes: large as published (Sutskever et al. 2014, section 3.4; Luong et al. 2015, section 4.1)."""


class Bridge(nn.Module):
    """From the last states of an encoder that reads from both ends to the first state of a decoder.

    h = tanh(W [forward; backward]), as the first state of Bahdanau et al. 2014 (appendix A.2.2), each layer alike; an
    LSTM's cell, which no tanh bounds, goes through a linear map of its own.

    width  H, of both directions together
    cell   whether there is a cell
    """

    def __init__(self, width: int, *, cell: bool):
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.cell = nn.Linear(width, width) if cell else None

    def forward(self, state: RecurrentState) -> RecurrentState:
        """[2 L, B, H / 2] -> [L, B, H]."""
        both = state.map(lambda x: torch.cat([x[0::2], x[1::2]], -1))
        cell = None if self.cell is None else self.cell(both.cell)
        return RecurrentState(self.hidden(both.hidden).tanh(), cell)


class Encoder(nn.Module):
    """Reads the source: an output for every token, and the state from which the decoder starts.

    network  the layers             bridge  from their last state to the decoder's first
    """

    def __init__(self, network: Recurrent, bridge: nn.Module):
        super().__init__()
        self.network, self.bridge = network, bridge

    def forward(self, x_BSD: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, RecurrentState]:
        """Outputs [B, S, E], zero at padding, and the decoder's first state [L, B, H]."""
        outputs_BSE, last = self.network(x_BSD, None, lengths_B)
        return outputs_BSE, self.bridge(last)


class ReversedEncoder(Encoder):
    """Reads each source from its last token to its first; outputs stay at the place of their token."""

    def forward(self, x_BSD: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, RecurrentState]:
        outputs_BSE, first = super().forward(backwards(x_BSD, lengths_B), lengths_B)
        return backwards(outputs_BSE, lengths_B), first


def backwards(x_BSD: Tensor, lengths_B: Tensor | None) -> Tensor:
    """The tokens of each row from last to first, with the padding still at its end."""
    if lengths_B is None:
        return x_BSD.flip(1)
    places_S = torch.arange(x_BSD.shape[1], device=x_BSD.device)
    last_B1 = lengths_B.to(x_BSD.device)[:, None] - 1
    places_BS = torch.where(places_S <= last_B1, last_B1 - places_S, places_S)
    return x_BSD.gather(1, places_BS[..., None].expand_as(x_BSD))


class Seq2SeqModel(EncoderDecoder):
    """An encoder, a decoder, and an embedding before each; the two embeddings may share their table.

    source, target    tokens -> vectors
    encoder, decoder  the recurrent networks
    """

    config: Seq2Seq

    def __init__(
        self,
        config: Seq2Seq,
        *,
        source: Embedding,
        target: Embedding,
        encoder: Encoder,
        decoder: Decoder,
        heads: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        self.config, self.source, self.target = config, source, target
        self.encoder, self.decoder = encoder, decoder
        self.dropout = Dropout(config.dropout)
        self.heads = nn.ModuleDict(dict(heads))

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, H]. Raises UnmaskError without a source, for empty ones, or for too long sequences.

        Padding stands at the end of the rows, where no token that counts is yet to come.
        """
        if batch.source is None:
            raise UnmaskError("A Seq2Seq writes while it reads, but this batch has no source.")
        self._fits(batch.tokens.shape[1])
        state = self.read(batch.source)
        hidden_BTH: Tensor = self.dropout(self.decoder(self.target(batch.tokens), state))
        return hidden_BTH

    def read(self, source: Batch, width: int = 1) -> Seq2SeqState:
        """Run the encoder: the state from which `width` hypotheses of each source start."""
        self._fits(source.tokens.shape[1])
        outputs_BSE, last = self.encoder(self.source(source.tokens), source.lengths)
        first_N = torch.full((len(source.tokens) * width,), self.config.start, device=source.tokens.device)
        return Seq2SeqState(width, first_N, last.repeat(width), self.decoder.keys(outputs_BSE, source.lengths))

    @torch.no_grad()
    def begin(self, batch: Batch, width: int = 1) -> Seq2SeqState:
        """Read the sources `batch`, one a row, and get ready to write `width` hypotheses for each."""
        return self.read(batch, width)

    @torch.no_grad()
    def next(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, Seq2SeqState)
        logits_NV: Tensor = self.heads["next"](self.dropout(self.decoder.step(self.target(tokens_N), state)))
        return logits_NV

    def alignment(self, batch: Batch) -> Tensor:
        """How much each token that is guessed looks at each token of the source, [B, T, S]; a row sums to 1.

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

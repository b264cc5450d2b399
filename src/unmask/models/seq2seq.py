"""Seq2Seq: recurrent encoder–decoders, with a fixed vector between the two (Sutskever et al. 2014) or with attention.

Shapes: B rows (sources), T tokens written, S tokens read, D width of token vectors, H width of the decoder's state, E
width of the encoder's outputs, V vocabulary, L layers; N = B * width hypotheses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.encoder_decoder import TextToTextConfig
from unmask.models.recurrent_decoder import (
    BahdanauDecoder,
    Bottleneck,
    Decoder,
    InputFeedingDecoder,
    LuongDecoder,
)
from unmask.models.seq2seq_model import Seq2SeqModel
from unmask.nn import (
    AdditiveAttention,
    Bridge,
    DotAttention,
    Embedding,
    GeneralAttention,
    Recurrent,
    RecurrentEncoder,
    ReversedEncoder,
    TiedHead,
    Token,
    xavier_gates,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class Seq2Seq(TextToTextConfig):
    """The numbers and the parts that make a recurrent encoder–decoder.

    vocabulary     V, entries of the tokenizer       source_vocabulary  entries of the source's own tokenizer;
                                                     None: one vocabulary and one table of vectors for both
    dim            D, width of the token vectors     length  longest sequence, in tokens; None: no limit
    hidden         H, width of the decoder's state and of the encoder's outputs, both directions together
    layers, cell   of the encoder and of the decoder alike
    attention      "none": the decoder has only the encoder's last state; "dot", "general": as Luong et al. 2015;
                   "additive": as Bahdanau et al. 2014
    input_feeding  the decoder also reads the attentional vector of the previous token (Luong et al. 2015, section 3.3)
    bidirectional  the encoder reads both ways       reverse  it reads the source backwards (Sutskever et al. 2014,
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

    @property
    def width(self) -> int:
        return self.hidden

    def token(self, vocabulary: int) -> Token:
        """The table of token vectors."""
        return Token(vocabulary, self.dim, padding=self.padding)

    def tables(self) -> tuple[Token, Token]:
        written = self.token(self.vocabulary)
        return written if self.source_vocabulary is None else self.token(self.source_vocabulary), written

    def embedding(self, token: Token) -> Embedding:
        return Embedding(token, dropout=self.dropout)

    def network(self, dim: int) -> Recurrent:
        """The decoder's layers over inputs of this width."""
        return Recurrent(self.cell, dim, self.hidden, self.layers, dropout=self.dropout)

    def encoder(self) -> RecurrentEncoder:
        """The layers that read the source."""
        kind = ReversedEncoder if self.reverse else RecurrentEncoder
        if not self.bidirectional:
            return kind(self.network(self.dim), nn.Identity())
        if self.hidden % 2:
            raise UnmaskError(f"Two directions cannot share {self.hidden} hidden units evenly; choose an even number.")
        half = Recurrent(self.cell, self.dim, self.hidden // 2, self.layers, bidirectional=True, dropout=self.dropout)
        return kind(half, Bridge(self.hidden, cell=self.cell == "lstm"))

    def decoder(self) -> Decoder:
        """The layers that write the target, and their attention to the encoder's outputs."""
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
        """Logits over the vocabulary."""
        if not self.tied:
            return nn.Linear(self.hidden, self.vocabulary)
        tied = TiedHead(token, bias=True)
        return tied if self.hidden == self.dim else nn.Sequential(nn.Linear(self.hidden, self.dim, bias=False), tied)

    def assemble(self, **parts: Any) -> Seq2SeqModel:
        return Seq2SeqModel(self, **parts)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set the initial weights of a model, or of a part of one; the vector of the padding token is zero."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if self.scale is not None:
                for parameter in part.parameters(recurse=False):
                    nn.init.uniform_(parameter, -self.scale, self.scale, generator=generator)
            elif isinstance(part, Recurrent):
                xavier_gates(part, generator)
            elif isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight, generator=generator)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif isinstance(part, Token):
                nn.init.normal_(part.weight, std=self.dim**-0.5, generator=generator)
            if isinstance(part, Token):
                with torch.no_grad():
                    part.weight[self.padding].zero_()


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "hidden": 128, "layers": 1},
    "small": {"dim": 256, "hidden": 512, "layers": 1},
    "medium": {"dim": 512, "hidden": 512, "layers": 2},
    "large": {"dim": 1_000, "hidden": 1_000, "layers": 4},
}
"""Sizes: large as published (Sutskever et al. 2014, section 3.4; Luong et al. 2015, section 4.1)."""

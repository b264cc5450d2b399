"""Transformer: an encoder reads the source; a decoder attends to it and writes the target (Vaswani et al. 2017).

D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from unmask.models.encoder_decoder import TextToTextConfig
from unmask.models.transformer_model import TransformerModel
from unmask.nn import (
    ACTIVATIONS,
    ActivationName,
    Attention,
    Block,
    Embedding,
    FeedForward,
    Residual,
    ScaledToken,
    Sinusoidal,
    SinusoidalHalves,
    Stack,
    TiedHead,
    Token,
)
from unmask.types import Head

POSITIONS: dict[str, type[Sinusoidal]] = {"interleaved": Sinusoidal, "halves": SinusoidalHalves}


@dataclass(frozen=True, kw_only=True)
class Transformer(TextToTextConfig):
    """The numbers that make a Transformer; the defaults are the base model of the paper.

    vocabulary  V, entries of the tokenizer     source_vocabulary  entries of the source's own tokenizer; None:
                                                one vocabulary and one table of vectors for both (section 3.4)
    dim         D, width of the hidden states   length  longest sequence, in tokens; None: no limit
    encoder_layers, decoder_layers              number of blocks
    encoder_heads, decoder_heads                attention heads of each
    encoder_hidden, decoder_hidden              width inside the feed-forward
    norm        "post": after each residual sum, as published; "pre": before each sub-layer (Xiong et al. 2020)
    dropout     after embeddings and sub-layers (section 5.4)
    attention_dropout, hidden_dropout           on attention weights, and inside the feed-forward
    positions   sines and cosines "interleaved", as the paper has them, or in "halves", as Marian has
    scale_embedding  multiply token vectors by sqrt(D) (section 3.4)
    output_bias  whether the logit of each token has a bias, as in Marian
    std         of the initialisation; None: Xavier's uniform, and D^-0.5 for token vectors
    start, end, padding  ids of the token that starts a target, of </s>, of padding
    """

    vocabulary: int = 32_000
    source_vocabulary: int | None = None
    dim: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_heads: int = 8
    decoder_heads: int = 8
    encoder_hidden: int = 2_048
    decoder_hidden: int = 2_048
    length: int | None = None
    norm: Literal["post", "pre"] = "post"
    activation: ActivationName = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    eps: float = 1e-5
    positions: Literal["interleaved", "halves"] = "interleaved"
    scale_embedding: bool = True
    output_bias: bool = False
    std: float | None = None
    padding: int = 0
    start: int = 1
    end: int = 2

    @property
    def width(self) -> int:
        return self.dim

    def token(self, vocabulary: int) -> Token:
        """The table of token vectors."""
        kind = ScaledToken if self.scale_embedding else Token
        return kind(vocabulary, self.dim, padding=self.padding)

    def tables(self) -> tuple[Token, Token]:
        written = self.token(self.vocabulary)
        return written if self.source_vocabulary is None else self.token(self.source_vocabulary), written

    def embedding(self, token: Token) -> Embedding:
        """Token + position (sections 3.4 and 3.5)."""
        return Embedding(token, position=POSITIONS[self.positions](self.dim), dropout=self.dropout)

    def residual(self, f: nn.Module) -> Residual:
        """LayerNorm(x + Sublayer(x)) (section 3.1); pre-norm is x + Sublayer(LayerNorm(x))."""
        norm = nn.LayerNorm(self.dim, self.eps)
        if self.norm == "post":
            return Residual(f, after=norm, dropout=self.dropout)
        return Residual(f, before=norm, dropout=self.dropout)

    def final_norm(self) -> nn.Module | None:
        """The norm at the end of a pre-norm stack, whose blocks do not normalise their sum; None for post-norm."""
        return nn.LayerNorm(self.dim, self.eps) if self.norm == "pre" else None

    def attention(self, heads: int) -> Residual:
        """Multi-head attention (section 3.2.2) as a sub-layer."""
        return self.residual(Attention(self.dim, heads, dropout=self.attention_dropout))

    def feedforward(self, hidden: int) -> Residual:
        """FFN(x) = max(0, x W1 + b1) W2 + b2 (section 3.3, equation 2) as a sub-layer."""
        activation = ACTIVATIONS[self.activation]
        return self.residual(FeedForward(self.dim, hidden, activation, dropout=self.hidden_dropout))

    def encoder(self) -> Stack:
        """Blocks of self-attention and feed-forward (section 3.1)."""
        blocks = [
            Block(self.attention(self.encoder_heads), self.feedforward(self.encoder_hidden))
            for _ in range(self.encoder_layers)
        ]
        return Stack(blocks, norm=self.final_norm())

    def decoder(self) -> Stack:
        """Blocks of causal self-attention, attention to the encoder's outputs, and feed-forward (section 3.1)."""
        blocks = [
            Block(
                self.attention(self.decoder_heads),
                self.feedforward(self.decoder_hidden),
                cross=self.attention(self.decoder_heads),
            )
            for _ in range(self.decoder_layers)
        ]
        return Stack(blocks, norm=self.final_norm())

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Logits over the vocabulary, with the token vectors as weights (section 3.4)."""
        return TiedHead(token, bias=self.output_bias)

    def assemble(self, **parts: Any) -> TransformerModel:
        return TransformerModel(self, **parts)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set the initial weights of a model, or of a part of one; biases and the padding token's vector are zero."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, nn.Linear):
                if self.std is None:
                    nn.init.xavier_uniform_(part.weight, generator=generator)
                else:
                    nn.init.normal_(part.weight, std=self.std, generator=generator)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif isinstance(part, Token):
                nn.init.normal_(part.weight, std=self.std or self.dim**-0.5, generator=generator)
                with torch.no_grad():
                    part.weight[self.padding].zero_()


SIZES: dict[str, dict[str, int]] = {
    name: {
        "dim": dim,
        **{f"{side}_layers": layers for side in ("encoder", "decoder")},
        **{f"{side}_heads": heads for side in ("encoder", "decoder")},
        **{f"{side}_hidden": hidden for side in ("encoder", "decoder")},
    }
    for name, (dim, layers, heads, hidden) in {
        "tiny": (256, 3, 4, 512),
        "small": (256, 4, 4, 1_024),
        "base": (512, 6, 8, 2_048),
        "big": (1_024, 6, 16, 4_096),
    }.items()
}
"""Sizes: base and big as published (table 3); with 10,000 tokens, tiny has 6.5 million parameters, small 9.9."""

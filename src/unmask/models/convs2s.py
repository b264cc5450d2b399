"""ConvS2S: gated convolutions that read and write, with attention in every decoder layer (Gehring et al. 2017).

Shapes: B rows (sources), T tokens written, S tokens read, E width of the vectors, C width of a layer, O width of the
output, V vocabulary; N = B * width hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.convs2s_model import ConvS2SModel
from unmask.models.encoder_decoder import TextToTextConfig
from unmask.nn import (
    AttentiveBlock,
    CausalConvolution,
    CentredConvolution,
    Convolution,
    ConvolutionalDecoder,
    ConvolutionalEncoder,
    Embedding,
    GatedBlock,
    GatedConvolution,
    Learned,
    MultiStepAttention,
    TiedHead,
    Token,
    normalised_linear,
    weight_norm,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class ConvS2S(TextToTextConfig):
    """The numbers that make a ConvS2S; the defaults are the published model for WMT'16 English-Romanian.

    vocabulary  V, entries of the tokenizer     source_vocabulary  entries of the source's own tokenizer; None: one
                                                vocabulary for both
    tied        which tables are shared: "none", as published; "output", the target's vectors and the weights of the
                output; "all", the source's vectors as well, which needs one vocabulary
    dim         E, width of token and position vectors
    output_dim  O, width of the output layer's input; None is `dim`
    encoder_widths, decoder_widths              C of each layer; as many layers as widths
    kernel      tokens that a layer sees        pointwise  how many of the last layers of each side see one token only
    length      longest sequence, in tokens     std        of the initial vectors (section 3.5)
    dropout     on vectors, inputs of convolutions, and the output layer's input (section 4.2)
    start, end, padding  ids of the token that starts a target, of </s>, of padding
    """

    vocabulary: int = 40_000
    source_vocabulary: int | None = None
    tied: Literal["none", "output", "all"] = "none"
    dim: int = 512
    output_dim: int | None = None
    encoder_widths: tuple[int, ...] = (512,) * 20
    decoder_widths: tuple[int, ...] = (512,) * 20
    kernel: int = 3
    pointwise: int = 0
    length: int = 1_024
    dropout: float = 0.1
    std: float = 0.1
    padding: int = 0
    start: int = 1
    end: int = 2

    @property
    def width(self) -> int:
        """O, the width of the output layer's input."""
        return self.output_dim or self.dim

    def tables(self) -> tuple[Token, Token]:
        if self.tied == "all" and self.source_vocabulary not in (None, self.vocabulary):
            raise UnmaskError("Two vocabularies cannot share one table; set tied to 'output' or 'none'.")
        written = Token(self.vocabulary, self.dim)
        read = written if self.tied == "all" else Token(self.source_vocabulary or self.vocabulary, self.dim)
        return read, written

    def embedding(self, token: Token) -> Embedding:
        """Token + position (section 3.1)."""
        return Embedding(token, position=Learned(self.length, self.dim), dropout=self.dropout)

    def encoder(self) -> ConvolutionalEncoder:
        """Blocks of centred convolutions (section 3.2)."""
        blocks = [
            GatedBlock(
                GatedConvolution(weight_norm(CentredConvolution(before, 2 * width, kernel)), dropout=self.dropout),
                project=None if before == width else normalised_linear(before, width),
            )
            for before, width, kernel in self._layers(self.encoder_widths)
        ]
        first, last = self.encoder_widths[0], self.encoder_widths[-1]
        return ConvolutionalEncoder(normalised_linear(self.dim, first), blocks, normalised_linear(last, self.dim))

    def decoder(self) -> ConvolutionalDecoder:
        """Blocks of causal convolutions with attention (sections 3.2 and 3.3)."""
        blocks = [
            AttentiveBlock(
                GatedConvolution(weight_norm(CausalConvolution(before, 2 * width, kernel)), dropout=self.dropout),
                MultiStepAttention(width, self.dim),
                project=None if before == width else normalised_linear(before, width),
            )
            for before, width, kernel in self._layers(self.decoder_widths)
        ]
        widths = self.decoder_widths
        outputs = self.width
        return ConvolutionalDecoder(
            normalised_linear(self.dim, widths[0]), blocks, normalised_linear(widths[-1], outputs), dropout=self.dropout
        )

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Logits over the vocabulary."""
        if self.tied == "none":
            return normalised_linear(self.width, self.vocabulary)
        if self.output_dim not in (None, self.dim):
            raise UnmaskError(
                f"Tied vectors are {self.dim} wide, so output_dim cannot be {self.output_dim}; leave it out."
            )
        return TiedHead(token, bias=True)

    def assemble(self, **parts: Any) -> ConvS2SModel:
        return ConvS2SModel(self, **parts)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set weights that keep the variance of the activations at 1 (section 3.5); biases are zero.

        N(0, sqrt(1 / n)) for n inputs. A gated unit quarters the variance, so its convolution gets sqrt(4 / n). Where
        dropout keeps a share p of the inputs, sqrt(p / n) and sqrt(4 p / n).
        """
        assert isinstance(module, ConvS2SModel)
        generator = torch.Generator().manual_seed(seed)
        keep = 1 - self.dropout
        dropped = [module.encoder.input, module.decoder.input, *module.heads.values()]
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                nn.init.normal_(part.weight, std=self.std, generator=generator)
            elif isinstance(part, nn.Linear):
                gain = 4 * keep if isinstance(part, Convolution) else keep if part in dropped else 1.0
                std = math.sqrt(gain / part.in_features)
                with torch.no_grad():  # assigned, not filled: the weight is a product of its length and direction
                    part.weight = torch.randn(part.weight.shape, generator=generator) * std
                nn.init.zeros_(part.bias)

    def _layers(self, widths: Sequence[int]) -> list[tuple[int, int, int]]:
        """(width before, width, kernel) of each layer of a side."""
        if not 0 <= self.pointwise <= len(widths) or not widths:
            raise UnmaskError(
                f"Each side needs at least one layer; {self.pointwise} of {len(widths)} layers cannot be pointwise."
            )
        kernels = [self.kernel] * (len(widths) - self.pointwise) + [1] * self.pointwise
        return list(zip((widths[0], *widths[:-1]), widths, kernels, strict=True))


_EN_DE = (512,) * 9 + (1_024,) * 4 + (2_048,) * 2

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 128, "encoder_widths": (128,) * 3, "decoder_widths": (128,) * 2},
    "small": {"dim": 256, "encoder_widths": (256,) * 4, "decoder_widths": (256,) * 3},
    "base": {"dim": 512, "encoder_widths": (512,) * 20, "decoder_widths": (512,) * 20},
    "big": {"dim": 768, "output_dim": 512, "encoder_widths": _EN_DE, "decoder_widths": _EN_DE, "pointwise": 2},
}
"""Sizes of the authors' code: small for IWSLT'14 German-English, base for WMT'16 English-Romanian, big for WMT'14
English-German; tiny is ours. With 10,000 tokens and nothing tied, small has 11.6 million parameters."""

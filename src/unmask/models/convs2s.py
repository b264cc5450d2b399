"""ConvS2S: gated convolutions read and write, with attention in every layer of the decoder (Gehring et al. 2017).

Shapes: B rows (sources), T tokens written, S tokens read, E width of the vectors, C width of a layer, O width of the
output, V vocabulary; N = B * width hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.sequence import EncoderDecoder, State
from unmask.nn import (
    CausalConvolution,
    CentredConvolution,
    Convolution,
    Dropout,
    Embedding,
    GatedBlock,
    GatedConvolution,
    Learned,
    Memory,
    MultiStepAttention,
    TiedHead,
    Token,
    Window,
    scaled_sum,
    weight_norm,
)
from unmask.types import Batch, Head


@dataclass(frozen=True, kw_only=True)
class ConvS2S(Config):
    """The numbers that make a ConvS2S; the defaults are the published model for WMT'16 English-Romanian.

    vocabulary  V, entries of the tokenizer     source_vocabulary  where the source has a tokenizer of its own; None:
                                                one vocabulary for both
    tied        which vectors are one table: "none", as published; "output", those written and the weights of the
                output; "all", those read as well, which takes one vocabulary
    dim         E, width of token and position vectors
    output_dim  O, width of what the output layer reads; None is `dim`
    encoder_widths, decoder_widths              C of each layer; as many layers as widths
    kernel      tokens that a layer sees        pointwise  of the last layers of each side, those that see one token
    length      longest sequence, in tokens     std        of the initial vectors (section 3.5)
    dropout     on vectors, inputs of convolutions, and what the output layer reads (section 4.2)
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

    def embedding(self, token: Token) -> Embedding:
        """Token + position (section 3.1)."""
        return Embedding(token, position=Learned(self.length, self.dim), dropout=self.dropout)

    def encoder(self) -> ConvolutionalEncoder:
        """Blocks of centred convolutions (section 3.2)."""
        blocks = [
            GatedBlock(
                GatedConvolution(weight_norm(CentredConvolution(before, 2 * width, kernel)), dropout=self.dropout),
                project=None if before == width else linear(before, width),
            )
            for before, width, kernel in self._layers(self.encoder_widths)
        ]
        widths = self.encoder_widths
        return ConvolutionalEncoder(linear(self.dim, widths[0]), blocks, linear(widths[-1], self.dim))

    def decoder(self) -> ConvolutionalDecoder:
        """Blocks of causal convolutions with attention (sections 3.2 and 3.3)."""
        blocks = [
            AttentiveBlock(
                GatedConvolution(weight_norm(CausalConvolution(before, 2 * width, kernel)), dropout=self.dropout),
                MultiStepAttention(width, self.dim),
                project=None if before == width else linear(before, width),
            )
            for before, width, kernel in self._layers(self.decoder_widths)
        ]
        widths = self.decoder_widths
        outputs = self.output_dim or self.dim
        return ConvolutionalDecoder(
            linear(self.dim, widths[0]), blocks, linear(widths[-1], outputs), dropout=self.dropout
        )

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Over the vocabulary."""
        if self.tied == "none":
            return linear(self.output_dim or self.dim, self.vocabulary)
        if self.output_dim not in (None, self.dim):
            raise UnmaskError(
                f"Tied vectors are {self.dim} wide, so output_dim cannot be {self.output_dim}; leave it out."
            )
        return TiedHead(token, bias=True)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0) -> ConvS2SModel:
        """A freshly initialised model.

        heads  name -> what is asked; default: the next token
        seed   of the initialisation; None leaves that to the caller, who fills the parameters anyway

        Raises UnmaskError for widths, kernels or ties that do not go together.
        """
        heads = {"next": Head("next_token")} if heads is None else heads
        if self.tied == "all" and self.source_vocabulary not in (None, self.vocabulary):
            raise UnmaskError("Two vocabularies cannot share one table; set tied to 'output' or 'none'.")
        written = Token(self.vocabulary, self.dim)
        read = written if self.tied == "all" else Token(self.source_vocabulary or self.vocabulary, self.dim)
        model = ConvS2SModel(
            self,
            source=self.embedding(read),
            target=self.embedding(written),
            encoder=self.encoder(),
            decoder=self.decoder(),
            heads={name: head_of(self, head, written) for name, head in heads.items()},
        )
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, model: ConvS2SModel, seed: int) -> None:
        """Weights that keep the variance of what passes through at 1 (section 3.5); biases are zero.

        N(0, sqrt(1 / n)) for n inputs; a gated unit quarters the variance, so that its convolution gets sqrt(4 / n);
        where dropout keeps a share p of the inputs, sqrt(p / n) and sqrt(4 p / n).
        """
        generator = torch.Generator().manual_seed(seed)
        keep = 1 - self.dropout
        dropped = [model.encoder.input, model.decoder.input, *model.heads.values()]
        for part in model.modules():
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
                f"Each side needs at least one layer, and of {len(widths)} layers {self.pointwise} cannot be pointwise."
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


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear map, weight-normalised as every layer but the tables is (section 3.5)."""
    return weight_norm(nn.Linear(inputs, outputs))


class AttentiveBlock(nn.Module):
    """A layer of the decoder: a gated causal convolution, then attention, within one residual sum (section 3.3)."""

    def __init__(self, gated: GatedConvolution, attention: MultiStepAttention, *, project: nn.Module | None = None):
        super().__init__()
        self.gated, self.attention, self.project = gated, attention, project or nn.Identity()

    def forward(self, x_BTD: Tensor, g_BTE: Tensor, memory: Memory, window: Window) -> Tensor:
        """[B, T, D] -> [B, T, C]."""
        return scaled_sum(self.project(x_BTD), self.attention(self.gated(x_BTD, window), g_BTE, memory))


class ConvolutionalEncoder(nn.Module):
    """To the width of the blocks, through them, and back to that of the vectors."""

    def __init__(self, input: nn.Linear, blocks: Sequence[GatedBlock], output: nn.Linear):
        super().__init__()
        self.input, self.blocks, self.output = input, nn.ModuleList(blocks), output

    def forward(self, e_BSE: Tensor, real_BS1: Tensor | None = None) -> Tensor:
        """[B, S, E] -> z [B, S, E]. `real_BS1` is 0 at padding; None: there is none."""
        x_BSC = self.input(e_BSE)
        for block in self.blocks:
            x_BSC = block(x_BSC, real_BS1)
        z_BSE: Tensor = self.output(x_BSC)
        return z_BSE


class ConvolutionalDecoder(nn.Module):
    """To the width of the blocks, through them, and to that of the output layer."""

    def __init__(self, input: nn.Linear, blocks: Sequence[AttentiveBlock], output: nn.Linear, *, dropout: float = 0.0):
        super().__init__()
        self.input, self.blocks, self.output = input, nn.ModuleList(blocks), output
        self.dropout = Dropout(dropout)

    def windows(self) -> list[Window]:
        """Of each block, before the first token."""
        return [Window() for _ in self.blocks]

    def forward(self, g_BTE: Tensor, memory: Memory, windows: Sequence[Window] | None = None) -> Tensor:
        """[B, T, E] -> [B, T, O]; with `windows`, the tokens go on where those of the call before ended."""
        x_BTC = self.input(g_BTE)
        for block, window in zip(self.blocks, windows or self.windows(), strict=True):
            x_BTC = block(x_BTC, g_BTE, memory, window)
        hidden_BTO: Tensor = self.dropout(self.output(x_BTC))
        return hidden_BTO


class ConvS2SState(State):
    """What a ConvS2S keeps while it writes: the sources, the last inputs of each convolution, the place it is at."""

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


class ConvS2SModel(EncoderDecoder):
    """A convolutional encoder and decoder, and an embedding before each.

    source, target    tokens and positions -> vectors
    encoder, decoder  the blocks
    """

    config: ConvS2S

    def __init__(
        self,
        config: ConvS2S,
        *,
        source: Embedding,
        target: Embedding,
        encoder: ConvolutionalEncoder,
        decoder: ConvolutionalDecoder,
        heads: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        self.config, self.source, self.target = config, source, target
        self.encoder, self.decoder = encoder, decoder
        self.heads = nn.ModuleDict(dict(heads))

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, O] of the decoder. Raises UnmaskError without a source, or for too long sequences.

        Padding stands at the end of the rows, where no token that counts looks for its past.
        """
        if batch.source is None:
            raise UnmaskError("A ConvS2S writes while it reads, but this batch has no source.")
        memory = self.encode(batch.source)
        self._fits(batch.tokens.shape[1])
        hidden_BTO: Tensor = self.decoder(self.target(batch.tokens, positions_BT=batch.positions), memory)
        return hidden_BTO

    def encode(self, source: Batch) -> Memory:
        """Read the sources. Raises UnmaskError for a source that is too long.

        Every layer of the decoder sends a gradient through the keys and one through the values, so what the encoder
        gets of them is divided by twice the number of layers; the vectors of the tokens get theirs whole (section 3.4
        divides by the number of attention layers, the authors' code by twice that).
        """
        S = source.tokens.shape[1]
        self._fits(S)
        e_BSE = self.source(source.tokens, positions_BT=source.positions)
        lengths_B, real_BS = source.lengths, None
        if lengths_B is None:
            lengths_B = torch.full((len(source.tokens),), S, device=e_BSE.device)
        else:  # a source of nothing but padding sees its first place, which is finite and harmless
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
    def begin(self, batch: Batch, width: int = 1) -> ConvS2SState:
        """Read the sources `batch`, one a row, and get ready to write `width` hypotheses for each."""
        memory = self.encode(batch)
        first_N = torch.full((len(batch.tokens) * width,), self.config.start, device=batch.tokens.device)
        return ConvS2SState(memory, self.decoder.windows(), first_N, width)

    @torch.no_grad()
    def next(self, tokens_N: Tensor, state: State) -> Tensor:
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

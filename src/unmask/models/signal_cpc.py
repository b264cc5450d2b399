"""SignalCpc: a recurrent network over the segments of a record, which predicts the next ones (CPC, van den Oord et al.
2018, on records of sensors).

Shapes: B rows, T places of a row, R records, K segments of the longest, L leads, N samples, C channels of a segment, D
width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.cpc import Predictions
from unmask.models.signal_model import SignalConfig, SignalModel
from unmask.nn import Recurrent, RecurrentLayer, RecurrentStack
from unmask.nn.initialise import uniform_linear, xavier_gates
from unmask.types import Batch, Head


@dataclass(frozen=True, kw_only=True)
class SignalCpc(SignalConfig):
    """The numbers that make a CPC of records.

    channels  of the convolutions from samples to segments, the last one C
    strides   of these; each reads as many places as it moves, so that a segment, of their product of samples, says
              nothing of the next one
    dim       D, width of the hidden states       layers   number of recurrent layers
    cell      "gru", "lstm" or "rnn"              dropout  on the hidden states

    Raises UnmaskError for different numbers of channels and strides, and for numbers below 1.
    """

    channels: tuple[int, ...] = (64, 128)
    strides: tuple[int, ...] = (5, 5)
    dim: int = 128
    layers: int = 1
    cell: Literal["rnn", "lstm", "gru"] = "gru"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not len(self.channels) == len(self.strides) > 0 or min(*self.channels, *self.strides, self.dim) < 1:
            raise UnmaskError("channels and strides must have one number, at least 1, for each convolution.")

    @property
    def segment(self) -> int:
        return math.prod(self.strides)

    @property
    def width(self) -> int:
        return self.dim

    @property
    def offers(self) -> frozenset[str]:
        return super().offers | {"next segments"}

    def embedding(self) -> SegmentReader:
        inputs = (self.leads, *self.channels)
        return SegmentReader(
            [SegmentLayer(*size) for size in zip(inputs, self.channels, self.strides, strict=False)],
        )

    def stack(self) -> RecurrentStack:
        """c = g_ar(z): recurrent layers."""
        widths = [self.channels[-1]] + [self.dim] * (self.layers - 1)
        return RecurrentStack([RecurrentLayer(Recurrent(self.cell, width, self.dim), self.dropout) for width in widths])

    def predictions_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Predictions(self.dim, self.channels[-1], head.outputs)

    def assemble(self, heads: Mapping[str, nn.Module]) -> SignalCpcModel:
        return SignalCpcModel(self, self.embedding(), self.stack(), heads=heads)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """As the CPC of recordings: convolutions by their inputs (He et al. 2015, forward form), Xavier's uniform for
        the matrices of each gate, and the default of PyTorch for linear layers."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, nn.Conv1d) and part.bias is not None:
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
                nn.init.zeros_(part.bias)
            elif isinstance(part, Recurrent):
                xavier_gates(part, generator)
            elif isinstance(part, nn.Linear):
                uniform_linear(part, generator)


class SegmentLayer(nn.Module):
    """relu(norm(convolution(x))); the norm is that of each place (Rivière et al. 2020, section 3.1)."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv1d(inputs, channels, stride, stride), nn.LayerNorm(channels)

    def forward(self, x_RLN: Tensor) -> Tensor:
        """[R, L, N] -> [R, C, N / stride]."""
        x_RCN: Tensor = self.norm(self.convolution(x_RLN).transpose(1, 2)).relu().transpose(1, 2)
        return x_RCN


class SegmentReader(nn.Module):
    """z = g_enc(x): the layers from samples to segments."""

    def __init__(self, layers: list[SegmentLayer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x_RLN: Tensor) -> Tensor:
        """[R, L, N] -> [R, K, C]."""
        for layer in self.layers:
            x_RLN = layer(x_RLN)
        return x_RLN.transpose(1, 2)


class SignalCpcModel(SignalModel):
    """Reads records; the state of a segment depends on it and on those before it."""

    config: SignalCpc
    embedding: SegmentReader
    stack: RecurrentStack

    def states(self, samples_RLN: Tensor, lengths_R: Tensor) -> Tensor:
        # What lies behind the end of a record is read, too, which changes nothing before it and is faster.
        states_RKD: Tensor = self.stack(self.embedding(samples_RLN))[0]
        return states_RKD

    def forward_with_frames(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """(hidden states [B, T, D], segments [B, T, C], the same segments) of one pass."""
        found: list[Tensor] = []
        handle = self.embedding.register_forward_hook(lambda _, __, z_RKC: found.append(z_RKC))
        try:
            hidden_BTD = self(batch)  # a call of the model itself, which gathers sharded parameters
        finally:
            handle.remove()
        segments_BTC = self.records(batch)[0].pack(found[0])
        return hidden_BTD, segments_BTC, segments_BTC

    @property
    def causal(self) -> bool:
        return True

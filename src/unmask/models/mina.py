"""Mina: an electrocardiogram in frequency bands, with attention to beats, rhythm and bands (Hong et al. 2019).

Shapes: L leads, S samples of a segment, E width of the state of a segment in one band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.mina_model import MinaModel
from unmask.models.signal_model import SignalConfig
from unmask.nn import Classifier, Recurrent, xavier_gates
from unmask.nn.rhythms import BandFilters, BandNetwork, Bands, EqualAttention, KnowledgeAttention, SegmentConvolution
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class Mina(SignalConfig):
    """The numbers that make a MINA; the defaults are those of the authors, and `SIZES` has the ablations of the paper.

    segment    S, samples of a segment
    low, high  bounds of each band in hertz; 0: no such bound. By default the signal itself, P waves, QRS complexes, and
               the wander of the baseline
    filters    channels of the convolution         kernel, stride  its samples, and the step from one place to the next
    recurrent  whether an LSTM reads the segments in both directions
    hidden     width of that LSTM in one direction
    attention  "knowledge": attention to beats, rhythm and bands reads the knowledge features; "rhythm": attention to
               the segments alone, without knowledge; "none": means
    compared   width in which attention to beats and rhythm compares
    band_compared  the same for attention to bands
    outputs    numbers of a band                   dropout  on them

    Raises UnmaskError for sizes that do not go together.
    """

    segment: int = 50
    low: tuple[float, ...] = (0.0, 0.67, 10.0, 0.001)
    high: tuple[float, ...] = (0.0, 5.0, 50.0, 0.5)
    filters: int = 64
    kernel: int = 32
    stride: int = 2
    recurrent: bool = True
    hidden: int = 32
    attention: Literal["knowledge", "rhythm", "none"] = "knowledge"
    compared: int = 8
    band_compared: int = 2
    outputs: int = 8
    dropout: float = 0.5

    def __post_init__(self) -> None:
        if not self.low or len(self.low) != len(self.high) or not 1 <= self.kernel <= self.segment or self.stride < 1:
            raise UnmaskError(
                f"low = {list(self.low)} and high = {list(self.high)} must name two bounds for each band, and a "
                f"segment of {self.segment} samples must hold the kernel of {self.kernel}."
            )
        for low, high in zip(self.low, self.high, strict=True):
            if min(low, high) < 0 or max(low, high) >= self.rate / 2 or (low and high and low >= high):
                raise UnmaskError(
                    f"A band from {low} to {high} Hz does not exist at {self.rate} samples a second: its bounds must "
                    f"ascend and be below {self.rate / 2} Hz."
                )

    @property
    def band_width(self) -> int:
        """E."""
        return 2 * self.hidden if self.recurrent else self.filters

    @property
    def width(self) -> int:
        """Of each band the state of the segment, its deviation, and the power of the record."""
        return len(self.low) * (self.band_width + 2)

    def embedding(self) -> BandFilters:
        return BandFilters(self.rate, self.low, self.high)

    def band(self) -> BandNetwork:
        """The network of one band."""
        one, numbers = self.attention == "knowledge", int(self.attention == "knowledge")
        return BandNetwork(
            SegmentConvolution(self.leads, self.filters, self.kernel, self.stride),
            SegmentConvolution(self.leads, 1, self.kernel, self.stride),
            KnowledgeAttention(self.filters, self.compared) if one else EqualAttention(),
            EqualAttention()
            if self.attention == "none"
            else KnowledgeAttention(self.band_width, self.compared, numbers),
            nn.Linear(self.band_width, self.outputs),
            recurrent=Recurrent("lstm", self.filters, self.hidden, bidirectional=True) if self.recurrent else None,
            dropout=self.dropout,
        )

    def stack(self) -> Bands:
        attention = KnowledgeAttention(self.outputs, self.band_compared) if self.attention == "knowledge" else None
        return Bands([self.band() for _ in self.low], attention or EqualAttention())

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.outputs, head.outputs)  # the numbers have had dropout

    def assemble(self, heads: Mapping[str, nn.Module]) -> MinaModel:
        return MinaModel(self, self.embedding(), self.stack(), heads=heads)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Convolutions from a normal with variance 2 / inputs (He et al. 2015), linear layers and the LSTM by Xavier's
        uniform, biases 0, but 0.5 for the numbers of a band, so that none of the few is silent from the start.
        PyTorch's defaults, as the authors have them, learn several times as slowly."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, nn.Conv1d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
            elif isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight, generator=generator)
            elif isinstance(part, Recurrent):
                xavier_gates(part, generator)
            if isinstance(part, nn.Conv1d | nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
        for band in (part for part in module.modules() if isinstance(part, BandNetwork)):
            nn.init.constant_(band.output.bias, 0.5)


WHOLE: dict[str, Any] = {"low": (0.0,), "high": (0.0,)}
SIZES: dict[str, dict[str, Any]] = {
    "mina": {},
    "acrnn": {**WHOLE, "attention": "rhythm"},
    "crnn": {**WHOLE, "attention": "none"},
    "cnn": {**WHOLE, "attention": "none", "recurrent": False},
}
"""MINA, and its ablations on the signal itself: without knowledge, without attention, without an LSTM."""

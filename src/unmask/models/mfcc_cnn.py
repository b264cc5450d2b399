"""MfccCnn: convolutions over the mel-frequency cepstra of a recording, the conventional classifier of short sounds.

Shapes: B rows, T places of a row, R recordings, K frames of the longest, M places, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.stack_model import StackModel
from unmask.nn import ACTIVATIONS, Classifier
from unmask.nn.recording_heads import Prototypes
from unmask.nn.sequences import means
from unmask.nn.spectra import Cepstra, FrameConvolution
from unmask.types import Batch, Head


@dataclass(frozen=True, kw_only=True)
class MfccCnn(ModelConfig):
    """The numbers that make a network of convolutions over cepstra.

    rate     samples a second                bands    mel bands of a spectrum
    cepstra  coefficients of a frame; 0: the spectra themselves
    widths   channels of each convolution    strides  frames from one output of each to the next
    kernel   frames that a convolution reads, odd
    dropout  rate before the heads           vector  numbers of an x-vector
    vocabulary, length, padding  no vocabulary, no limit and no padding

    A frame has 25 ms, and begins 10 ms after the one before it (Davis & Mermelstein 1980; Sainath & Parada 2015,
    section 3). Raises UnmaskError for sizes that do not go together.
    """

    rate: int = 16_000
    bands: int = 40
    cepstra: int = 20
    widths: tuple[int, ...] = (128, 128, 192, 192)
    strides: tuple[int, ...] = (1, 2, 1, 2)
    kernel: int = 5
    dropout: float = 0.1
    vector: int = 128
    vocabulary: int = 0
    length: int | None = None
    padding: int | None = None

    def __post_init__(self) -> None:
        sizes = (*self.widths, *self.strides, self.rate, self.bands)
        if not self.widths or len(self.widths) != len(self.strides) or min(sizes) < 1 or self.kernel % 2 == 0:
            raise UnmaskError(
                f"widths = {list(self.widths)} and strides = {list(self.strides)} must name one number for each "
                "convolution, at least 1, and the kernel must be odd."
            )

    @property
    def step(self) -> int:
        """Samples from one frame of cepstra to the next."""
        return self.rate // 100

    @property
    def hop(self) -> int:
        """Samples from one state to the next."""
        return self.step * prod(self.strides)

    @property
    def window(self) -> int:
        """Samples that a recording needs for one state."""
        return self.rate // 40

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"recordings", "frame states"})

    @property
    def width(self) -> int:
        return self.widths[-1]

    def embedding(self) -> Cepstra:
        return Cepstra(self.rate, self.step, self.window, bands=self.bands, cepstra=self.cepstra)

    def stack(self) -> Convolutions:
        relu, inputs = ACTIVATIONS["relu"], [self.cepstra or self.bands, *self.widths]
        blocks = [
            FrameConvolution(dim, outputs, self.kernel, stride, relu)
            for dim, outputs, stride in zip(inputs, self.widths, self.strides, strict=False)
        ]
        return Convolutions(blocks)

    def token_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.width, head.outputs, self.dropout)

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.width, head.outputs, self.dropout)

    def embedding_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """The layer of a classifier, whose outputs are the numbers of a vector."""
        return self.sequence_head(head, token)

    def prototypes_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Prototypes(self.vector, head.outputs)

    def in_folder(self, heads: Mapping[str, Head]) -> ModelConfig:
        """The numbers of an x-vector that the field of a folder states."""
        found = next((head.outputs for head in heads.values() if head.kind == "embedding"), self.vector)
        return self.replace(vector=found)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; the default has no heads. Heads read a mean, so that there is never a pooler."""
        page = self.in_folder(heads or {})
        made = {name: head_of(page, head) for name, head in (heads or {}).items()}
        model = CepstralModel(self, self.embedding(), self.stack(), heads=made)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Linear maps from a normal with variance 2 / inputs (He et al. 2015, equation 10); biases zero."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, nn.Linear):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)


class Convolutions(nn.Module):
    """The convolutions in their order."""

    def __init__(self, blocks: list[FrameConvolution]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x_RKC: Tensor, real_RK: Tensor) -> tuple[Tensor, Tensor]:
        for block in self.blocks:
            x_RKC, real_RK = block(x_RKC, real_RK)
        return x_RKC, real_RK


class CepstralModel(StackModel):
    """Reads recordings one by one, however they are packed."""

    config: MfccCnn

    def forward(self, batch: Batch) -> Tensor:
        """[B, T, D]: the states at the places of the frames, zero at padding. Raises UnmaskError for a batch without
        recordings."""
        signal = batch.signal
        if signal is None or signal.lengths is None:
            raise UnmaskError("This model reads recordings, but the batch has only tokens.")
        states_RKD, real_RK = self.stack(*self.embedding(signal.values, signal.lengths))
        k_K = torch.arange(real_RK.shape[1], device=real_RK.device)
        places = (signal.places[:, None] + k_K)[real_RK]
        rows_D = states_RKD.new_zeros(batch.tokens.numel(), states_RKD.shape[-1])
        return rows_D.index_copy(0, places, states_RKD[real_RK]).unflatten(0, batch.tokens.shape)

    @property
    def sequences_apart(self) -> bool:
        return True

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """The mean state [M, D] of the recordings that begin at these places; without a batch, each row is one."""
        return means(hidden_BTD, places_M, None if batch is None else batch.documents)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"widths": (64, 64, 96, 96)},
    "small": {},
}
"""A network of 0.15 M parameters, and one of 0.5 M."""

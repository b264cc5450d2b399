"""EcgCnn: a deep network of convolutions over an electrocardiogram, which labels each segment of it (Rajpurkar et al.
2017; Hannun et al. 2019).

Shapes: R records, L leads, N samples of the longest, K segments, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.signal_model import SignalConfig, SignalModel, is_real
from unmask.nn.initialise import uniform_linear
from unmask.nn.records import RecordBlock, RecordConvolution, RecordLayer, RecordNorm


@dataclass(frozen=True, kw_only=True)
class EcgCnn(SignalConfig):
    """The numbers that make the network; the defaults are those of the authors for the CinC challenge of 2017.

    blocks   residual blocks of two convolutions; every second one halves the places, so that a segment has
             2 ** (blocks // 2) samples
    filters  channels of the first blocks      doubled  blocks after which the channels are doubled
    kernel   places that a convolution reads   dropout  between the convolutions of a block

    Raises UnmaskError for sizes that do not go together.
    """

    blocks: int = 16
    filters: int = 32
    doubled: int = 4
    kernel: int = 16
    dropout: float = 0.2

    def __post_init__(self) -> None:
        if min(self.blocks, self.filters, self.doubled) < 1 or self.kernel < 2 or self.blocks > 32:
            raise UnmaskError(
                f"blocks = {self.blocks} must be 1 to 32, filters = {self.filters} and doubled = {self.doubled} at "
                f"least 1, and kernel = {self.kernel} at least 2."
            )

    @property
    def segment(self) -> int:
        return 1 << self.blocks // 2

    @property
    def width(self) -> int:
        return self._channels(self.blocks - 1)

    def _channels(self, block: int) -> int:
        return self.filters << block // self.doubled

    def embedding(self) -> First:
        return First(RecordConvolution(self.leads, self.filters, self.kernel), RecordLayer(self.filters))

    def stack(self) -> Blocks:
        blocks = [
            RecordBlock(
                self._channels(max(i - 1, 0)),
                self._channels(i),
                self.kernel,
                stride=1 + i % 2,
                dropout=self.dropout,
                first=i == 0,
            )
            for i in range(self.blocks)
        ]
        return Blocks(blocks, RecordLayer(self.width))

    def assemble(self, heads: Mapping[str, nn.Module]) -> EcgCnnModel:
        return EcgCnnModel(self, self.embedding(), self.stack(), heads=heads)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Convolutions from a normal with variance 2 / inputs (He et al. 2015), with biases 0; linear layers from a
        uniform in +- 1 / sqrt(inputs)."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, nn.Conv1d) and part.bias is not None:
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
                nn.init.zeros_(part.bias)
            elif isinstance(part, nn.Linear):
                uniform_linear(part, generator)
            elif isinstance(part, RecordNorm):
                part.reset_parameters()


class First(nn.Module):
    """layer(convolution(x)): the first layers."""

    def __init__(self, convolution: RecordConvolution, layer: RecordLayer) -> None:
        super().__init__()
        self.convolution, self.layer = convolution, layer

    def forward(self, x_RLN: Tensor, real_RN: Tensor | None) -> Tensor:
        x_RCN: Tensor = self.layer(self.convolution(x_RLN), real_RN)
        return x_RCN


class Blocks(nn.Module):
    """The residual blocks, and a layer after the last one."""

    def __init__(self, blocks: list[RecordBlock], layer: RecordLayer) -> None:
        super().__init__()
        self.blocks, self.layer = nn.ModuleList(blocks), layer

    def forward(self, x_RCN: Tensor, real_RN: Tensor | None) -> Tensor:
        for block in self.blocks:
            x_RCN, real_RN = block(x_RCN, real_RN)
        x_RDK: Tensor = self.layer(x_RCN, real_RN)
        return x_RDK


class EcgCnnModel(SignalModel):
    """Reads whole records; a state belongs to the segment of samples that it stands for, and sees beyond it."""

    config: EcgCnn

    def states(self, samples_RLN: Tensor, lengths_R: Tensor) -> Tensor:
        N, same = samples_RLN.shape[-1], bool(lengths_R[-1] == lengths_R[0])  # descending
        real_RN = None if same else is_real(lengths_R * self.config.segment, N)
        states_RKD: Tensor = self.stack(self.embedding(samples_RLN, real_RN), real_RN).transpose(1, 2)
        return states_RKD


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"blocks": 12, "filters": 8, "dropout": 0.1},
    "base": {},
}
"""A network of 0.2 M parameters with a state for each 64 samples, and the published one (10 M)."""

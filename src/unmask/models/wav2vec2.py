"""wav2vec 2.0: masked frames are found among others by a Transformer over frames (Baevski et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from unmask.models.convolutional_speech import ConvolutionalSpeech
from unmask.models.speech import OFFERS
from unmask.nn.initialise import uniform_linear
from unmask.nn.quantiser import ProductQuantiser, QuantisedHead
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class Wav2Vec2(ConvolutionalSpeech):
    """The numbers that make a wav2vec 2.0; the defaults are the base model of the paper (section 4.2).

    codebooks, entries  G and V of the quantiser
    codes               width of a quantised frame
    quantiser_dropout   on the frames that are quantised
    """

    codebooks: int = 2
    entries: int = 320
    codes: int = 256
    quantiser_dropout: float = 0.0

    @property
    def offers(self) -> frozenset[str]:
        return OFFERS | {"quantised frames"}

    def quantised_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """The quantiser, and the vectors that are compared (section 3.2)."""
        quantiser = ProductQuantiser(self.channels[-1], self.codebooks, self.entries, self.codes)
        return QuantisedHead(quantiser, self.dim, head.outputs or self.compared, dropout=self.quantiser_dropout)

    def initialise(self, module: nn.Module, seed: int) -> None:
        super().initialise(module, seed)
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, QuantisedHead):
                part.quantizer.initialise(generator)
                uniform_linear(part.project_hid, generator)
                uniform_linear(part.project_q, generator)


_LARGE: dict[str, Any] = {
    "layers": 24, "dim": 1_024, "heads": 16, "hidden": 4_096,
    "codes": 768, "compared": 768,
}  # fmt: skip
_STABLE: dict[str, Any] = {"conv_norm": "layer", "conv_bias": True, "pre_norm": True}

SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": _LARGE | {"feature_dropout": 0.1, "quantiser_dropout": 0.1},
    "xls-r-0.3b": _LARGE | _STABLE,
    "xls-r-1b": _LARGE | _STABLE | {"layers": 48, "dim": 1_280, "hidden": 5_120, "codes": 1_024, "compared": 1_024},
    "xls-r-2b": _LARGE | _STABLE | {"layers": 48, "dim": 1_920, "hidden": 7_680, "codes": 1_024, "compared": 1_024},
}
"""Published sizes: Baevski et al. 2020, section 4.2; XLS-R (Babu et al. 2021, table 2), whose convolutions and
Transformer are normalised as those of the large model of Conneau et al. 2020."""

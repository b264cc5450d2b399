"""HuBERT: the clusters of masked frames are predicted by a Transformer over frames (Hsu et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from unmask.models.convolutional_speech import ConvolutionalSpeech
from unmask.models.speech import OFFERS
from unmask.nn.clusters import ClusterHead
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class Hubert(ConvolutionalSpeech):
    """The numbers that make a HuBERT; the defaults are the base model of the paper (table 1).

    compared  width of the vectors that stand for clusters
    """

    compared: int = 256

    @property
    def offers(self) -> frozenset[str]:
        return OFFERS | {"clusters"}

    def clusters_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """The cosine of a state and a vector for each cluster (equation 3)."""
        return ClusterHead(self.dim, head.outputs, width=self.compared)

    def initialise(self, module: nn.Module, seed: int) -> None:
        super().initialise(module, seed)
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, ClusterHead):
                part.initialise(generator)


_STABLE: dict[str, Any] = {"conv_norm": "layer", "conv_bias": True, "pre_norm": True}

SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": _STABLE | {"layers": 24, "dim": 1_024, "heads": 16, "hidden": 4_096, "compared": 768},
    "x-large": _STABLE | {"layers": 48, "dim": 1_280, "heads": 16, "hidden": 5_120, "compared": 1_024},
}
"""Published sizes: Hsu et al. 2021, table 1."""

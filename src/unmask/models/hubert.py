"""HuBERT: the clusters of masked frames are predicted by a Transformer over frames (Hsu et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unmask.models.convolutional_speech import ConvolutionalSpeech
from unmask.models.speech import OFFERS


@dataclass(frozen=True, kw_only=True)
class Hubert(ConvolutionalSpeech):
    """The numbers that make a HuBERT; the defaults are the base model of the paper (table 1)."""

    @property
    def offers(self) -> frozenset[str]:
        return OFFERS


_STABLE: dict[str, Any] = {"conv_norm": "layer", "conv_bias": True, "pre_norm": True}

SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": _STABLE | {"layers": 24, "dim": 1_024, "heads": 16, "hidden": 4_096, "compared": 768},
    "x-large": _STABLE | {"layers": 48, "dim": 1_280, "heads": 16, "hidden": 5_120, "compared": 1_024},
}
"""Published sizes: Hsu et al. 2021, table 1."""

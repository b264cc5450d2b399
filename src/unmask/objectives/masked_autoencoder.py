"""Masked autoencoder: the encoder reads the visible patches alone, and a decoder restores the hidden ones (MAE, He et
al. 2022).

Shapes: B pictures, N patches of a picture, K hidden ones, T visible places with the class token, S all places, F
numbers of a patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives.objective import Objective, Term
from unmask.objectives.pictures import MaskedPictures, PictureConfig
from unmask.types import Batch, Head, Loss, Signal, Target


class MaskedAutoencoder(MaskedPictures):
    """Random patches are left out of the rows, and restored from the others (section 3).

    rate        share of the patches that are hidden
    normalised  whether patches are compared after normalisation by their own mean and variance

    Raises UnmaskError for pictures of one patch.
    """

    name = "pixels"
    terms = (Term("pixels", "masked patches"),)
    head_labels = (("pixels", "pixel decoder"),)

    def __init__(self, processor: ImageProcessor, *, rate: float, normalised: bool = False) -> None:
        super().__init__(processor, rate=rate)
        self.normalised = normalised
        self.heads = {self.name: Head("pixels", processor.channels * processor.patch**2, pretraining=True)}
        if self.grid < 2:
            raise UnmaskError("A picture of one patch has none to hide: choose a larger size or smaller patches.")

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Keep the visible patches, the same number in every picture, with their positions. The target, at the class
        token of each picture, holds its hidden patches [K, F]; they stand at the positions that its row lacks."""
        assert batch.signal is not None
        B, N = len(batch.tokens), self.grid**2
        first = batch.tokens.shape[1] - N
        kept_BK = np.sort(np.stack([self.visible(rng) for _ in range(B)]), 1)
        seen = torch.zeros(B, N, dtype=torch.bool).scatter(1, torch.from_numpy(kept_BK), True)
        patches_BNF = batch.signal.values.unflatten(0, (B, N))
        summaries = torch.arange(first).expand(B, first)
        positions = torch.cat([summaries, torch.from_numpy(kept_BK) + first], 1)
        T = positions.shape[1]
        starts = torch.arange(B) * T
        places = (starts[:, None] + torch.arange(first, T)).flatten()
        short = Batch(
            batch.tokens[:, :T].contiguous(),
            positions=positions,
            signal=Signal(places, patches_BNF[seen]),
            starts=starts,
        )
        return short.with_targets(**{self.name: Target(starts, patches_BNF[~seen].unflatten(0, (B, -1)))})

    def visible(self, rng: np.random.Generator) -> np.ndarray:
        """Which patches of a picture are visible: N * (1 - rate) of them, rounded down as the authors do, at least one
        and not all."""
        N = self.grid**2
        return rng.permutation(N)[: min(max(int(N * (1 - self.rate)), 1), N - 1)]

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """The squared error of hidden pixels, a mean over those of each picture, summed over pictures."""
        target = batch.targets[self.name]
        assert batch.positions is not None
        restored_BSF = model.answer(self.name, hidden_BTD, target.places, batch).float()
        missing = torch.ones(restored_BSF.shape[:2], dtype=torch.bool, device=restored_BSF.device)
        restored_BKF = restored_BSF[missing.scatter(1, batch.positions, False)].view_as(target.values)
        wanted_BKF = target.values.float()
        if self.normalised:
            wanted_BKF = normalise(wanted_BKF)
        return Loss((restored_BKF - wanted_BKF).square().mean((1, 2)).sum(), len(restored_BKF))


def normalise(patches: Tensor) -> Tensor:
    """[..., F] by the mean and the unbiased variance of each patch (section 3, "Reconstruction target")."""
    mean, variance = patches.mean(-1, keepdim=True), patches.var(-1, keepdim=True)
    return (patches - mean) / (variance + 1e-6).sqrt()


@dataclass(frozen=True, kw_only=True)
class MaskedAutoencoderConfig(PictureConfig):
    """Hide patches from the encoder and restore their pixels by a decoder.

    rate        share of the patches that are hidden
    normalised  whether patches are normalised by their own mean and variance before they are compared
    """

    rate: float = 0.75
    normalised: bool = False

    kind: ClassVar[str] = "masked autoencoder"
    learned: ClassVar[str] = "pictures from their visible patches"
    example: ClassVar[str] = "mae-tiny"
    objective = MaskedAutoencoder
    requires: ClassVar[frozenset[str]] = frozenset({"pixel decoder"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"pixels"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("patches", "left-out"),)
    of_folder: ClassVar[tuple[str, ...]] = (*PictureConfig.of_folder, "rate", "normalised")

    def model_fields(self, processor: ImageProcessor) -> dict[str, Any]:
        return {**super().model_fields(processor), **self.model_settings()}

    def model_settings(self) -> dict[str, Any]:
        return {**super().model_settings(), "rate": self.rate, "normalised": self.normalised}

    def build(self, processor: ImageProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        return MaskedAutoencoder(processor, rate=self.rate, normalised=self.normalised)

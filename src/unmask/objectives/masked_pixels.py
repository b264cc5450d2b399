"""Masked pixels: the base of objectives that predict the pixels of masked patches, and their reconstructions.

Shapes: B pictures, N patches of a picture, M masked patches of all pictures, F numbers of a patch, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask.models.model import Model
from unmask.objectives.pictures import MaskedPictures, RestoredPictures
from unmask.objectives.reconstruction import GREY, Reconstruction
from unmask.types import Batch


class MaskedPixels(RestoredPictures, MaskedPictures):
    """Predicts the pixels of masked patches. A subclass says which patches are masked (`masked`), and what the model
    predicts there (`predicted`)."""

    given: ClassVar[str] = "masked"
    about: ClassVar[str] = (
        "The model sees the patches that are not grey, and restores the others. A restored picture has the visible "
        "patches of the original; its error is the mean absolute difference of the masked pixels, from 0 to 1."
    )

    def masked(self, batch: Batch) -> Tensor:
        """[B, N] bool: the masked patches of a batch that `rows` made."""
        raise NotImplementedError(f"{type(self).__name__} does not say which patches are masked.")

    def predicted(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """The predictions for the masked patches [M, F], picture by picture, as `score` compares them."""
        raise NotImplementedError(f"{type(self).__name__} does not say what is predicted.")

    def pixels(self, predicted_MF: Tensor, wanted_MF: Tensor) -> Tensor:
        """Predictions as patches of a picture; `wanted_MF` are the true patches, for targets that are relative to
        them."""
        return predicted_MF

    def reconstruct(
        self, model: Model, pictures: Sequence[np.ndarray], rng: np.random.Generator
    ) -> list[Reconstruction]:
        """The visible patches are those of the picture: the model predicts only the masked ones."""
        signals = [signal for one in pictures if (signal := self.processor.example(one).signal) is not None]
        whole_BNF = torch.from_numpy(np.stack([values_NF for _, values_NF in signals]))
        batch = self.rows(pictures, rng).to(model.device)
        masked_BN = self.masked(batch).cpu()
        predicted_MF = self.predicted(model, model(batch), batch).float().cpu()
        restored_BNF = whole_BNF.clone()
        restored_BNF[masked_BN] = self.pixels(predicted_MF, whole_BNF[masked_BN])
        found = []
        for whole_NF, restored_NF, masked_N in zip(whole_BNF, restored_BNF, masked_BN, strict=True):
            picture, restored = (self.processor.picture(one.numpy()) for one in (whole_NF, restored_NF))
            cells = masked_N.numpy().reshape(self.grid, self.grid)
            hidden = cells.repeat(self.processor.patch, 0).repeat(self.processor.patch, 1)
            seen = np.where(hidden[..., None], np.uint8(GREY), picture)
            found.append(Reconstruction(picture, seen, restored, hidden))
        return found

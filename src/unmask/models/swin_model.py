"""The forward pass of Swin (`models/swin.py`).

Shapes: B pictures, G patches of a side of a picture, N = G * G, N' places of the last stage, D' its width, M targets, K
patches that a place of the last stage covers, C outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.models.stack_model import StackModel
from unmask.types import Batch

if TYPE_CHECKING:
    from unmask.models.swin import Swin


class SwinModel(StackModel):
    """Reads pictures one by one, however they are packed; its hidden states have one row a picture."""

    config: Swin

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, N', D'] of the last stage, one row a picture, in the order of the signal. Raises
        UnmaskError for pictures of another size."""
        N = self.config.grid**2
        places = _places(batch) if batch.signal is not None else batch.tokens.new_zeros(0)
        if len(places) % N:
            raise UnmaskError(f"Pictures must have {N} patches for this model: prepare them by its image processor.")
        positions = torch.zeros_like(batch.tokens).flatten()
        positions[places] = torch.arange(len(places), device=places.device) % N
        x_BTD = self.embedding(batch.tokens, None, positions.view_as(batch.tokens), batch.signal)
        hidden_BND: Tensor = self.stack(x_BTD.flatten(0, 1)[places].unflatten(0, (-1, N)))
        return hidden_BND

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """The mean of the last stage over each picture that holds one of these places, [M, D']."""
        N = self.config.grid**2
        if batch is None:
            return hidden_BTD.mean(1)[places_M // N]
        inside_MB = places_M[:, None] - _places(batch)[::N]
        return hidden_BTD.mean(1)[((inside_MB >= 0) & (inside_MB < N)).int().argmax(1)]

    def answer(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """As `Model.answer`. A head for patches runs on all states, each of which answers for K patches."""
        if name in self.of_sequences:
            return super().answer(name, hidden_BTD, places_M, batch)
        G, side = self.config.grid, self.config.merged
        patches_M = places_M if batch is None else torch.searchsorted(_places(batch), places_M)
        picture_M, patch_M = patches_M // G**2, patches_M % G**2
        row_M, column_M = patch_M // G, patch_M % G
        state_M = row_M // side * (G // side) + column_M // side
        within_M = row_M % side * side + column_M % side
        answers_BNKC: Tensor = self.heads[name](hidden_BTD)
        return answers_BNKC[picture_M, state_M, within_M]


def _places(batch: Batch) -> Tensor:
    assert batch.signal is not None  # `Places` has refused others
    return batch.signal.places

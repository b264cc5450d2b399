"""Masked patches: mask patches of a picture and predict their pixels, as SimMIM does (Xie et al. 2022).

Shapes: M masked patches, N patches of a picture, F numbers of a patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives.masked_pixels import MaskedPixels
from unmask.objectives.objective import Objective, Term
from unmask.objectives.pictures import PictureConfig
from unmask.types import Batch, Head, Kind, Loss, Target


class MaskedPatches(MaskedPixels):
    """Squares of patches are masked: their places hold MASK, and a linear head predicts their pixels (section 3).

    rate    share of the squares that are masked      square  patches along a side of each square
    """

    name = "patches"
    terms = (Term("patches", "masked patches"),)
    head_labels = (("patches", "masked-patch"),)

    def __init__(self, processor: ImageProcessor, *, rate: float, square: int) -> None:
        super().__init__(processor, rate=rate)
        self.square = square
        self.heads = {self.name: Head("token", processor.channels * processor.patch**2, pretraining=True)}
        if square < 1 or self.grid % square:
            raise UnmaskError(f"Squares of {square} patches do not divide the {self.grid} patches of a side evenly.")

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Mask patches of every picture; their values stay in the signal, which the model does not read at MASK."""
        assert batch.signal is not None
        hidden = np.concatenate([self.hidden(rng) for _ in range(len(batch.tokens))])
        chosen = torch.from_numpy(hidden)
        target = Target(batch.signal.places[chosen], batch.signal.values[chosen])
        tokens = batch.tokens.flatten().index_fill(0, target.places, int(Kind.MASK)).view_as(batch.tokens)
        return replace(batch, tokens=tokens).with_targets(**{self.name: target})

    def hidden(self, rng: np.random.Generator) -> np.ndarray:
        """[N] bool: which patches of a picture are masked: the same number in each, at least one and not all."""
        side = self.grid // self.square
        count = min(max(round(self.rate * side**2), 1), max(side**2 - 1, 1))
        squares = np.zeros(side**2, dtype=bool)
        squares[rng.permutation(side**2)[:count]] = True
        return squares.reshape(side, side).repeat(self.square, 0).repeat(self.square, 1).ravel()

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """The mean absolute error of the pixels of each masked patch, summed over patches (section 3.4, "Raw pixel
        value regression")."""
        restored_MF = self.predicted(model, hidden_BTD, batch)
        return Loss((restored_MF - batch.targets[self.name].values.float()).abs().mean(-1).sum(), len(restored_MF))

    def masked(self, batch: Batch) -> Tensor:
        return (batch.tokens == Kind.MASK)[:, -(self.grid**2) :]

    def predicted(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        return model.answer(self.name, hidden_BTD, batch.targets[self.name].places, batch).float()


@dataclass(frozen=True, kw_only=True)
class MaskedPatchesConfig(PictureConfig):
    """Hide squares of patches and restore their pixels.

    rate    share of a picture that is hidden
    square  patches of a side of each hidden square; published: 32 pixels
    """

    rate: float = 0.6
    square: int = 1

    kind: ClassVar[str] = "masked patches"
    learned: ClassVar[str] = "masked patches of pictures"
    example: ClassVar[str] = "simmim-tiny"
    objective = MaskedPatches
    requires: ClassVar[frozenset[str]] = frozenset({"masked patches"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"patches"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("patches", "masked"),)

    def model_fields(self, processor: ImageProcessor) -> dict[str, Any]:
        return {**super().model_fields(processor), "hides": True}

    def check_folder(self, model: Model, words: Sequence[str], folder: object) -> None:
        """Raises UnmaskError for a model that has no vector for masked patches."""
        if not getattr(model.config, "hides", False):
            raise UnmaskError(
                f"{folder} holds a model without a vector for masked patches: start from new weights, with a recipe "
                f"such as {self.example}, or from a model that learned {self.learned}."
            )

    def build(self, processor: ImageProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        return MaskedPatches(processor, rate=self.rate, square=self.square)

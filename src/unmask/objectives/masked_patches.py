"""Masked patches: mask patches of a picture and predict their pixels, as SimMIM does (Xie et al. 2022).

Shapes: M masked patches, N patches of a picture, F numbers of a patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from unmask.data import collate
from unmask.data.loader import Collated, Loader
from unmask.data.order import Shuffled
from unmask.data.pictures.folder import PictureFolder, Pictures
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.source import Joined
from unmask.errors import UnmaskError
from unmask.models.model import Model, ModelConfig
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.objective import Objective, StreamOptions, Term
from unmask.types import Batch, Head, Kind, Loss, Target

BLOCK = 256  # pictures whose order is drawn at once


class MaskedPatches(Objective):
    """Squares of patches are masked: their places hold MASK, and a linear head predicts their pixels (section 3).

    rate    share of the squares that are masked      square  patches along a side of each square
    """

    name = "patches"
    terms = (Term("patches", "masked patches"),)
    head_labels = (("patches", "masked-patch"),)

    def __init__(self, processor: ImageProcessor, *, rate: float, square: int) -> None:
        self.processor, self.rate, self.square = processor, rate, square
        self.heads = {self.name: Head("token", processor.channels * processor.patch**2, pretraining=True)}
        self.grid = processor.size // processor.patch
        if not 0 < rate < 1:
            raise UnmaskError(f"The rate is the share of a picture that is masked, between 0 and 1, not {rate}.")
        if square < 1 or self.grid % square:
            raise UnmaskError(f"Squares of {square} patches do not divide the {self.grid} patches of a side evenly.")

    def stream(self, splits: Sequence[Pictures], options: StreamOptions) -> Loader:
        order = Shuffled(self._source(splits), BLOCK, seed=options["seed"])
        return Loader(Collated(order, self.rows), cut=options["cut"], workers=options["workers"])

    def evaluation_rows(self, splits: Sequence[Pictures], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        source, rng = self._source(splits), np.random.default_rng(0)
        pictures = [source.read(unit) for unit in range(min(limit_rows, len(source.cost)))]
        return [self.rows(pictures[i : i + rows], rng) for i in range(0, len(pictures), rows)]

    def _source(self, splits: Sequence[Pictures]) -> Joined:
        return Joined([split.of_channels(self.processor.channels) for split in splits])

    def rows(self, pictures: Sequence[np.ndarray], rng: np.random.Generator) -> Batch:
        """Pictures [H, W, C] as a batch with masked patches."""
        batch = collate.pad([self.processor.example(one) for one in pictures], Kind.PADDING, multiple=1)
        return self.corrupt(batch, rng)

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
        target = batch.targets[self.name]
        restored_MF = model.answer(self.name, hidden_BTD, target.places, batch).float()
        return Loss((restored_MF - target.values.float()).abs().mean(-1).sum(), len(restored_MF))


@dataclass(frozen=True, kw_only=True)
class MaskedPatchesConfig(ObjectiveConfig):
    """Mask squares of patches and predict their pixels.

    rate      share of a picture that is masked
    square    patches along a side of each masked square; published: 32 pixels
    size      pixels of a side of the model's input         patch  pixels of a side of a patch
    channels  numbers of a pixel: 3, or 1 for grey
    """

    rate: float = 0.6
    square: int = 1
    size: int = 32
    patch: int = 4
    channels: int = 3

    kind: ClassVar[str] = "masked patches"
    learned: ClassVar[str] = "masked patches of pictures"
    example: ClassVar[str] = "simmim-tiny"
    objective = MaskedPatches
    requires: ClassVar[frozenset[str]] = frozenset({"pictures"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"patches"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("patches", "masked"),)

    @classmethod
    def opens(cls, folder: Path | str) -> PictureFolder:
        """A folder of pictures."""
        return PictureFolder(folder)

    def processor(self, processor: ImageProcessor) -> ImageProcessor:
        """The processor of the folder, set to this size of pictures and patches and to this number of channels."""
        if processor.channels != self.channels:
            mean = (float(np.mean(processor.mean)),) * self.channels
            processor = replace(processor, mean=mean, std=(float(np.mean(processor.std)),) * self.channels)
        return replace(processor, size=self.size, patch=self.patch, resize_to=None)

    def model_fields(self, processor: ImageProcessor) -> dict[str, int]:
        return {"size": self.size, "patch": self.patch, "channels": self.channels, "hides": True}

    def of_model(self, model: ModelConfig) -> Self:
        fields = {name: getattr(model, name) for name in ("size", "patch", "channels") if hasattr(model, name)}
        return replace(self, **fields)

    def check_folder(self, model: Model, words: Sequence[str], folder: object) -> None:
        """Raises UnmaskError for a model that has no vector for masked patches."""
        if not getattr(model.config, "hides", False):
            raise UnmaskError(
                f"{folder} holds a model without a vector for masked patches: start from new weights, with a recipe "
                f"such as {self.example}, or from a model that learned {self.learned}."
            )

    def build(self, processor: ImageProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        return MaskedPatches(processor, rate=self.rate, square=self.square)

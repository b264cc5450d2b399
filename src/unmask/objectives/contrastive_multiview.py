"""Contrastive multiview coding: the lightness of a picture is matched with its colours (CMC, Tian, Krishnan & Isola
2020).

Shapes: M pictures, P width of the projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data.augmentation import compose
from unmask.data.pictures.augmentation import HorizontalFlip, RandomResizedCrop
from unmask.data.pictures.colour import chroma, lightness
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.objectives.contrastive import PairedViews
from unmask.objectives.objective import Objective, Term
from unmask.objectives.pictures import ColourConfig, require_colours
from unmask.types import Batch, Head, Loss


class ContrastiveMultiview(PairedViews):
    """The lightness of each picture must find its colours among those of the micro-batch, and its colours its lightness
    (section 3.2). The views are L and ab of one crop.

    temperature  that cosine similarities are divided by
    crop         smallest share of a picture that is read
    projection   P, width of the vectors that are compared

    The paper has an encoder for each view. Here one trunk reads both, so that the result is one model of pictures in
    RGB: in the view of lightness a = b = 0, in that of colours L = 50. Each view has its own projection. The paper
    compares with a memory of former pictures, and this class with the other pictures of the micro-batch: the result
    depends on --micro-batch and on the number of processes.
    """

    name = "lab"
    terms = (Term("lab", "lightness and colours", accuracy="views whose nearest neighbour is the other view"),)
    head_labels = (("lightness_view", "view of lightness"), ("colour_view", "view of colours"))

    def __init__(self, processor: ImageProcessor, *, temperature: float, crop: float, projection: int) -> None:
        require_colours(processor)
        if not temperature > 0:
            raise UnmaskError(f"The temperature divides similarities and must be above 0, not {temperature}.")
        if not 0 < crop <= 1:
            raise UnmaskError(f"The smallest crop is a share of the picture above 0 and at most 1, not {crop}.")
        if projection < 1:
            raise UnmaskError(f"The projection must have a width of at least 1, not {projection}.")
        self.processor, self.temperature = processor, temperature
        head = Head("projection", projection, pretraining=True)
        self.heads = {name: head for name, _ in self.head_labels}
        self.augment = compose(RandomResizedCrop(processor.size, (crop, 1.0)), HorizontalFlip())

    def views(self, picture: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """L and ab of the same crop."""
        crop = self.augment(picture, rng)
        return lightness(crop), chroma(crop)

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """As `across`."""
        places = self.places(batch)
        one, other = self.heads
        lightness_MP = model.answer(one, hidden_BTD, places[::2], batch)
        colour_MP = model.answer(other, hidden_BTD, places[1::2], batch)
        with exactly(hidden_BTD):
            return across(lightness_MP.float(), colour_MP.float(), self.temperature)


def across(one_MP: Tensor, other_MP: Tensor, temperature: float) -> Loss:
    """The contrastive loss of two views in both directions, in nats, summed over the 2 M views; row k of both is the
    same picture. The paper adds the means of the two directions, so its loss is twice the mean over the views (section
    3.2). `correct` counts the views whose nearest neighbour in the other view is the one of their picture."""
    similar_MM = F.normalize(one_MP, dim=-1) @ F.normalize(other_MP, dim=-1).T / temperature
    own_M = torch.arange(len(similar_MM), device=similar_MM.device)
    directions = (similar_MM, similar_MM.T)
    total = torch.stack([F.cross_entropy(similar, own_M, reduction="sum") for similar in directions]).sum()
    with torch.no_grad():
        correct = torch.stack([(similar.argmax(-1) == own_M).sum() for similar in directions]).sum()
    return Loss(total, 2 * len(own_M), {"correct": correct})


@dataclass(frozen=True, kw_only=True)
class ContrastiveMultiviewConfig(ColourConfig):
    """Match the lightness of a picture with its colours, among the pictures of the micro-batch.

    similarity_temperature  divides cosine similarities (tau)
    crop         smallest share of a picture that is read
    projection   width of the vectors that are compared
    """

    similarity_temperature: float = 0.07
    crop: float = 0.2
    projection: int = 128

    kind: ClassVar[str] = "contrastive multiview"
    learned: ClassVar[str] = "lightness and colours of pictures"
    example: ClassVar[str] = "cmc-tiny"
    objective = ContrastiveMultiview
    requires: ClassVar[frozenset[str]] = frozenset({"pictures", "projections"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"lightness_view", "colour_view"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("patches", "lightness-colour"),)

    def build(self, processor: ImageProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        return ContrastiveMultiview(
            processor, temperature=self.similarity_temperature, crop=self.crop, projection=self.projection
        )

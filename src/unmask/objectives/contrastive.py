"""SimCLR: two augmented views of a picture are recognised among the views of others (Chen et al. 2020).

Shapes: N views, two of each picture; P width of the projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data import collate
from unmask.data.augmentation import Maybe, compose
from unmask.data.pictures.augmentation import (
    ColourJitter,
    GaussianBlur,
    HorizontalFlip,
    RandomGrey,
    RandomResizedCrop,
)
from unmask.data.pictures.folder import Pictures
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.objectives.objective import Objective, Term
from unmask.objectives.pictures import PictureConfig, PictureObjective
from unmask.types import Batch, Head, Kind, Loss, Target

UNBLURRED = 32  # pixels of a side up to which pictures are not blurred (appendix B.9)


class PairedViews(PictureObjective):
    """Two views of a picture are neighbouring rows, which are compared with the rows of the other pictures of the
    micro-batch. A subclass makes the views (`views`) and scores them."""

    def views(self, picture: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Two views of a picture [H, W, C] uint8, each [H', W', C] uint8."""
        raise NotImplementedError(f"{type(self).__name__} makes no views of pictures.")

    def evaluation_rows(self, splits: Sequence[Pictures], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        """Views of held-out pictures, the same at every call. A picture that would be alone in its batch is left out,
        because it has no negatives. Raises UnmaskError for an odd number of rows."""
        if rows % 2:
            raise UnmaskError(f"A micro-batch of {rows} rows separates the two views of a picture: use an even number.")
        source, rng = self.source(splits), np.random.default_rng(0)
        pictures = [source.read(unit) for unit in range(min(max(limit_rows // 2, 1), len(source.cost)))]
        batches = (pictures[i : i + rows // 2] for i in range(0, len(pictures), rows // 2))
        return [self.rows(batch, rng) for batch in batches if len(batch) > 1]

    def rows(self, pictures: Sequence[np.ndarray], rng: np.random.Generator) -> Batch:
        """Two neighbouring rows of each picture; the target at the class token says which view it is, 0 or 1."""
        views = [view for one in pictures for view in self.views(one, rng)]
        batch = collate.pad([self.processor.example(one) for one in views], Kind.PADDING, multiple=1)
        rows_N = torch.arange(len(views))
        return batch.with_targets(**{self.name: Target(rows_N * batch.tokens.shape[1], rows_N % 2)})

    def places(self, batch: Batch) -> Tensor:
        """[N] places of the class tokens, of both views of each picture in turn. Raises UnmaskError for a micro-batch
        that separates them."""
        target = batch.targets[self.name]
        if len(target.values) % 2 or target.values[::2].any() or not target.values[1::2].all():
            raise UnmaskError("The micro-batch separates the two views of a picture: use an even number of rows.")
        return target.places


class Contrastive(PairedViews):
    """Each view must find the other view of its picture among all other views of the micro-batch (equation 1).

    temperature  that cosine similarities are divided by
    colour       strength of the colour jitter (appendix A); 0 leaves colours as they are, apart from random grey
    crop         smallest share of a picture that a view covers
    projection   P, width of the vectors that are compared

    The two views of a picture are neighbouring rows. The negatives of a view are the other rows of its micro-batch. A
    smaller micro-batch therefore means fewer negatives and another loss: the result depends on --micro-batch and on the
    number of processes.
    """

    name = "views"
    terms = (Term("views", "views of pictures", accuracy="views whose nearest neighbour is the other view"),)
    head_labels = (("views", "views of pictures"),)

    def __init__(
        self, processor: ImageProcessor, *, temperature: float, colour: float, crop: float, projection: int
    ) -> None:
        if not temperature > 0:
            raise UnmaskError(f"The temperature divides similarities and must be above 0, not {temperature}.")
        if not 0 < crop <= 1:
            raise UnmaskError(f"The smallest crop is a share of the picture above 0 and at most 1, not {crop}.")
        if not 0 <= colour <= 2.5:
            raise UnmaskError(f"The strength of the colour jitter is between 0 and 2.5, not {colour}.")
        if projection < 1:
            raise UnmaskError(f"The projection must have a width of at least 1, not {projection}.")
        self.processor, self.temperature = processor, temperature
        self.heads = {self.name: Head("projection", projection, pretraining=True)}
        jitter = ColourJitter(0.8 * colour, 0.8 * colour, 0.8 * colour, 0.2 * colour)
        crops = RandomResizedCrop(processor.size, (crop, 1.0))
        blur = Maybe(GaussianBlur(), 0.5 if processor.size > UNBLURRED else 0.0)
        self.augment = compose(crops, HorizontalFlip(), Maybe(jitter, 0.8), RandomGrey(0.2), blur)

    def views(self, picture: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The picture, augmented twice."""
        return self.augment(picture, rng), self.augment(picture, rng)

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """NT-Xent summed over views, in nats; `correct` counts the views whose nearest neighbour is the other view."""
        projected_NP = model.answer(self.name, hidden_BTD, self.places(batch), batch)
        with exactly(hidden_BTD):
            return nt_xent(projected_NP.float(), self.temperature)


def nt_xent(projected_NP: Tensor, temperature: float) -> Loss:
    """The normalised temperature-scaled cross-entropy (equation 1), summed over the N views; rows 2k and 2k + 1 are the
    views of a picture. `correct` counts the views whose nearest neighbour is the other one."""
    units_NP = F.normalize(projected_NP, dim=-1)
    own_N = torch.arange(len(units_NP), device=units_NP.device)
    similar_NN = (units_NP @ units_NP.T / temperature).masked_fill(own_N[:, None] == own_N, float("-inf"))
    other_N = own_N ^ 1
    total = F.cross_entropy(similar_NN, other_N, reduction="sum")
    return Loss(total, len(own_N), {"correct": (similar_NN.detach().argmax(-1) == other_N).sum()})


@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig(PictureConfig):
    """Recognise the two augmented views of a picture among those of the micro-batch.

    similarity_temperature  divides cosine similarities (tau)
    colour       strength of the colour jitter; published: 1.0, and 0.5 for pictures of 32 pixels
    crop         smallest share of a picture that a view covers
    projection   width of the vectors that are compared
    """

    similarity_temperature: float = 0.1
    colour: float = 0.5
    crop: float = 0.08
    projection: int = 128

    kind: ClassVar[str] = "contrastive views"
    learned: ClassVar[str] = "views of pictures"
    example: ClassVar[str] = "simclr-tiny"
    objective = Contrastive
    requires: ClassVar[frozenset[str]] = frozenset({"pictures", "projections"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"views"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("patches", "views"),)

    def build(self, processor: ImageProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        return Contrastive(
            processor,
            temperature=self.similarity_temperature,
            colour=self.colour,
            crop=self.crop,
            projection=self.projection,
        )

"""Colourisation: the colours of a picture are predicted from its lightness (Zhang, Isola & Efros 2016).

Shapes: B pictures, M patches, K cells of a patch, Q = 313 classes of colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data import collate
from unmask.data.pictures.colour import CLASSES, lightness, to_lab, to_rgb
from unmask.data.pictures.decoding import resize
from unmask.data.pictures.folder import Pictures
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.objectives.objective import Objective, Term
from unmask.objectives.pictures import ColourConfig, RestoredPictures, require_colours
from unmask.objectives.reconstruction import Reconstruction
from unmask.types import Batch, Head, Kind, Loss, Target

NEAREST, SIGMA = 5, 5.0  # classes of a soft target, and the deviation of its Gaussian (section 2.2)
COUNTED = 500  # pictures whose colours are counted
TEMPERATURE = 0.38  # of the annealed mean, between the mode (0) and the mean (1) of the classes (section 2.3)


class Colourisation(RestoredPictures):
    """The model reads the lightness, and predicts the class of the mean ab of every cell of every patch (section 2.1).

    cell      pixels of the side of a cell; raises UnmaskError for cells that do not divide a patch evenly
    uniform   lambda, the share of the uniform distribution in the frequencies of colours from which the weights of the
              classes follow (equation 4); 1 weights all alike
    splits    pictures of training, in which colours are counted; without any, all colours are equally frequent

    The paper smooths the frequencies with a Gaussian; here they are those of the soft targets, which spread each colour
    by the same Gaussian over the nearest classes.
    """

    name = "colours"
    terms = (Term("colours", "colours", accuracy="cells whose nearest class was predicted"),)
    head_labels = (("colours", "colour"),)
    given: ClassVar[str] = "lightness"
    about: ClassVar[str] = (
        "The model sees the lightness, and predicts the colours of cells, between which they are interpolated. The "
        "error is the mean absolute difference of the pixels, from 0 to 1."
    )

    def __init__(
        self, processor: ImageProcessor, *, cell: int = 4, uniform: float = 0.5, splits: Sequence[Pictures] = ()
    ) -> None:
        require_colours(processor)
        if cell < 1 or processor.patch % cell:
            raise UnmaskError(
                f"Cells of {cell} pixels do not divide patches of {processor.patch} pixels: change --colour-cell."
            )
        if not 0 < uniform <= 1:
            raise UnmaskError(f"The share of the uniform distribution is above 0 and at most 1, not {uniform}.")
        self.processor, self.cell, self.uniform, self.splits = processor, cell, uniform, splits
        cells = (processor.patch // cell) ** 2
        self.heads = {self.name: Head("token", cells * len(CLASSES), pretraining=True)}

    def rows(self, pictures: Sequence[np.ndarray], rng: np.random.Generator) -> Batch:
        """The lightness of each picture; the target of each patch is the mean a and b of its cells, [K, 2] float32."""
        squares = [self.square(one) for one in pictures]
        batch = collate.pad([self.processor.example(lightness(one)) for one in squares], Kind.PADDING, multiple=1)
        assert batch.signal is not None
        colours_MK2 = np.concatenate([self.colours(one) for one in squares])
        return batch.with_targets(**{self.name: Target(batch.signal.places, torch.from_numpy(colours_MK2))})

    def square(self, picture: np.ndarray) -> np.ndarray:
        """The pixels that the model reads, [size, size, 3] uint8."""
        size = self.processor.size
        return resize(picture, size, size, self.processor.resample)

    def colours(self, square: np.ndarray) -> np.ndarray:
        """The mean a and b of the cells of every patch, [N, K, 2] float32, both from left to right and from top to
        bottom."""
        C = self.cell
        side, K = self.processor.patch // C, (self.processor.patch // C) ** 2
        grid = len(square) // self.processor.patch
        means = to_lab(square)[..., 1:].reshape(grid, side, C, grid, side, C, 2).mean((2, 5))
        return means.transpose(0, 2, 1, 3, 4).reshape(grid**2, K, 2).astype(np.float32)

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """The cross-entropy of soft targets, weighted by the rarity of the nearest class, in nats (equation 2): a mean
        over the cells of each patch, summed over patches. `frequencies` is the same of the best prediction that is
        the same for every cell."""
        target = batch.targets[self.name]
        logits_MQ = model.answer(self.name, hidden_BTD, target.places, batch)
        log_p_MKQ = logits_MQ.float().unflatten(-1, (-1, len(CLASSES))).log_softmax(-1)
        classes_MK5, shares_MK5 = soft_targets(target.values.view(*log_p_MKQ.shape[:2], 2))
        nearest_MK = classes_MK5[..., 0]
        nll_MK = -(shares_MK5 * log_p_MKQ.gather(-1, classes_MK5)).sum(-1)
        rarity_MK = self.rarity_Q.to(nll_MK.device)[nearest_MK]
        with torch.no_grad():
            hits_MK = (log_p_MKQ.argmax(-1) == nearest_MK).float()
            alone_MK = -(shares_MK5 * self.constant_Q.to(nll_MK.device)[classes_MK5]).sum(-1)
            found = {"correct": hits_MK, "frequencies": rarity_MK * alone_MK}
            metrics = {name: values_MK.mean(-1).sum() for name, values_MK in found.items()}
        return Loss((rarity_MK * nll_MK).mean(-1).sum(), len(nll_MK), metrics)

    def reconstruct(
        self, model: Model, pictures: Sequence[np.ndarray], rng: np.random.Generator
    ) -> list[Reconstruction]:
        """The lightness of each picture with the colours of the annealed mean of the classes (section 2.3, equation
        5), interpolated between the middles of the cells."""
        squares = [self.square(one) for one in pictures]
        batch = self.rows(squares, rng).to(model.device)
        logits_MQ = model.answer(self.name, model(batch), batch.targets[self.name].places, batch).float().cpu()
        shares_MKQ = (logits_MQ.unflatten(-1, (-1, len(CLASSES))).log_softmax(-1) / TEMPERATURE).softmax(-1)
        grid, side = self.processor.size // self.processor.patch, self.processor.patch // self.cell
        with exactly(shares_MKQ):
            cells = (shares_MKQ @ torch.from_numpy(CLASSES)).view(-1, grid, grid, side, side, 2)
        colours_B2YX = cells.permute(0, 5, 1, 3, 2, 4).reshape(-1, 2, grid * side, grid * side)
        colours_B2HW = F.interpolate(colours_B2YX, size=self.processor.size, mode="bilinear")
        found = []
        for square, colours_HW2 in zip(squares, colours_B2HW.permute(0, 2, 3, 1).numpy(), strict=True):
            lab_HW3 = np.concatenate([to_lab(square)[..., :1], colours_HW2], -1)
            found.append(Reconstruction.whole(square, lightness(square), to_rgb(lab_HW3)))
        return found

    # -- the frequencies of colours

    @cached_property
    def counted(self) -> tuple[Tensor, Tensor]:
        """The classes and the shares of the soft targets of some pictures of training, each [cells, 5]; of every class
        alone if there are no pictures."""
        source = self.source(self.splits)
        units = range(0, len(source.cost), -(-len(source.cost) // COUNTED) or 1)
        colours = [self.colours(self.square(source.read(unit))).reshape(-1, 2) for unit in units]
        if not colours:
            return torch.arange(len(CLASSES))[:, None], torch.ones(len(CLASSES), 1)
        return soft_targets(torch.from_numpy(np.concatenate(colours)))

    @cached_property
    def rarity_Q(self) -> Tensor:
        """Weights of the classes, w = ((1 - lambda) p + lambda / Q)^-1, scaled so that their mean over p is 1 (equation
        4)."""
        p_Q = summed(*self.counted)
        p_Q /= p_Q.sum()
        w_Q = 1 / ((1 - self.uniform) * p_Q + self.uniform / len(p_Q))
        return (w_Q / (p_Q * w_Q).sum()).float()

    @cached_property
    def constant_Q(self) -> Tensor:
        """The log probabilities of the best prediction that is the same for every cell: the weighted frequencies, with
        one added to the count of each class. Where all weights are 1, its loss is the entropy of the frequencies."""
        classes, shares = self.counted
        weighted_Q = summed(classes, shares * self.rarity_Q[classes[:, :1]]) + 1
        return (weighted_Q / weighted_Q.sum()).log().float()

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if f"loss/{self.name}" not in found:
            return []
        alone = found[f"{self.name}/frequencies"]
        return [
            f"Held-out colours: accuracy {found[f'{self.name}/correct']:.1%}, loss {found[f'loss/{self.name}']:.2f} "
            f"(frequencies of colours alone: {alone:.2f})."
        ]


def soft_targets(colours: Tensor) -> tuple[Tensor, Tensor]:
    """a and b [..., 2] -> the 5 nearest classes [..., 5] int64, the nearest first, and their shares [..., 5]: a
    Gaussian of the distance, scaled to a sum of 1 (section 2.2)."""
    known_Q2 = torch.from_numpy(CLASSES).to(colours.device)
    far = torch.cdist(colours.flatten(0, -2), known_Q2, compute_mode="donot_use_mm_for_euclid_dist")
    nearest, classes = far.topk(NEAREST, largest=False)
    shares = (-nearest.square() / (2 * SIGMA**2)).softmax(-1)
    shape = (*colours.shape[:-1], NEAREST)
    return classes.view(shape), shares.view(shape)


def summed(classes: Tensor, shares: Tensor) -> Tensor:
    """[Q] float64: the sum of the shares of each class."""
    return torch.zeros(len(CLASSES), dtype=torch.float64).index_add(0, classes.flatten(), shares.flatten().double())


@dataclass(frozen=True, kw_only=True)
class ColourisationConfig(ColourConfig):
    """Predict the colours of a picture from its lightness.

    colour_cell  pixels of the side of the cells whose colours are predicted; published: 4
    uniform      share of the uniform distribution in the frequencies by which colours are weighted; 1 weights all alike
    """

    colour_cell: int = 4
    uniform: float = 0.5

    kind: ClassVar[str] = "colourisation"
    learned: ClassVar[str] = "colours of pictures"
    example: ClassVar[str] = "colour-tiny"
    objective = Colourisation
    requires: ClassVar[frozenset[str]] = frozenset({"pictures", "patch states"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"colours"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("patches", "colours"),)

    def build(self, processor: ImageProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        return Colourisation(processor, cell=self.colour_cell, uniform=self.uniform, splits=splits)

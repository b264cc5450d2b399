"""Reconstruction: what a model restores of pictures whose patches are masked (He et al. 2022, figures 2 and 4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from unmask.models.model import Model
from unmask.objectives.pictures import PictureObjective
from unmask.visualize import gallery
from unmask.visualize.numbers import Data


def reconstruction(
    model: Model, objectives: Mapping[str, PictureObjective], pictures: Mapping[str, np.ndarray], seeds: range
) -> Data:
    """Each picture, and for each objective and seed its masked patches and what the model restores.

    objectives  name -> an objective that masks a certain share
    pictures    name -> [H, W, C] uint8

    Raises UnmaskError for an objective that predicts no pixels.
    """
    groups = []
    for name, picture in pictures.items():
        cells = []
        for seed in seeds:
            for i, (share, objective) in enumerate(objectives.items()):
                with torch.inference_mode():
                    [found] = objective.reconstruct(model, [picture], np.random.default_rng(seed))
                cells += [gallery.picture(found.picture, "the picture")] if not i else []
                cells.append(gallery.picture(found.masked, f"{share}, seed {seed}"))
                cells.append(gallery.picture(found.restored, f"restored, error {found.error:.3f}"))
        groups.append(gallery.group(name, cells, 1 + 2 * len(objectives), size=160))
    lead = (
        "The model sees the patches that are not grey, and restores the others. A restored picture has the visible "
        "patches of the original; its error is the mean absolute difference of the masked pixels, from 0 to 1."
    )
    return gallery.gallery(lead, groups)

"""Reconstruction: what a model restores of pictures that it sees in part (He et al. 2022, figures 2 and 4), or without
their colours or details."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from unmask.models.model import Model
from unmask.objectives.pictures import RestoredPictures
from unmask.visualize import gallery
from unmask.visualize.numbers import Data


def reconstruction(
    model: Model, objectives: Mapping[str, RestoredPictures], pictures: Mapping[str, np.ndarray], seeds: range
) -> Data:
    """Each picture, and for each objective and seed what the model sees of it and what it restores.

    objectives  name -> an objective, such as one that masks a certain share; "{seed}" in a name stands for the seed
    pictures    name -> [H, W, C] uint8
    """
    groups = []
    for name, picture in pictures.items():
        cells = []
        for seed in seeds:
            for i, (share, objective) in enumerate(objectives.items()):
                with torch.inference_mode():
                    [found] = objective.reconstruct(model, [picture], np.random.default_rng(seed))
                cells += [gallery.picture(found.picture, "the picture")] if not i else []
                cells.append(gallery.picture(found.seen, share.format(seed=seed)))
                cells.append(gallery.picture(found.restored, f"restored, error {found.error:.3f}"))
        groups.append(gallery.group(name, cells, 1 + 2 * len(objectives), size=160))
    about = " ".join(dict.fromkeys(objective.about for objective in objectives.values()))
    return gallery.gallery(about, groups)

"""Augmentation: the views of a picture that an objective draws, by the code that trains."""

from __future__ import annotations

import numpy as np

from unmask.objectives.pictures import PictureObjective
from unmask.visualize import gallery
from unmask.visualize.numbers import Data

ACROSS = 8
MOST = 64  # views


def augmentation(objective: PictureObjective, picture: np.ndarray, *, count: int, seed: int) -> Data:
    """A picture [H, W, C] uint8, and `count` readings of it: all views that each one draws.

    Raises UnmaskError for an objective that reads pictures as they are.
    """
    rng = np.random.default_rng(seed)
    drawn = [objective.views(picture, rng) for _ in range(count)]
    cells = [
        gallery.picture(view, f"reading {number}" + (f"\nview {place}" if len(views) > 1 else ""))
        for number, views in enumerate(drawn, 1)
        for place, view in enumerate(views, 1)
    ][:MOST]
    each = len(drawn[0])
    title = f"Its views in {count} readings, seed {seed}"
    groups = [gallery.group("The picture", [gallery.picture(picture)], 1, size=132)]
    groups.append(gallery.group(title, cells, ACROSS - ACROSS % each if each < ACROSS else each, size=132))
    return gallery.gallery("Each time that training reads the picture, it draws new views of it.", groups)

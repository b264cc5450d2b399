"""Augmentation: what an objective makes of a picture each time that training reads it, by the code that trains.

Shapes: B rows of T places, N = G * G patches of a picture, F numbers of a patch, C channels.
"""

from __future__ import annotations

import numpy as np

from unmask.data.pictures.processor import ImageProcessor
from unmask.objectives.pictures import PictureObjective
from unmask.objectives.reconstruction import GREY
from unmask.types import Batch, Kind
from unmask.visualize import gallery
from unmask.visualize.numbers import Data

ACROSS = 8


def augmentation(objective: PictureObjective, picture: np.ndarray, *, count: int, seed: int) -> Data:
    """A picture [H, W, C] uint8, and the rows that an objective makes of it in `count` readings."""
    rng = np.random.default_rng(seed)
    read = [as_rows(objective.processor, objective.rows([picture], rng)) for _ in range(count)]
    cells = [
        gallery.picture(row, f"reading {number}" + (f"\nrow {place}" if len(rows) > 1 else ""))
        for number, rows in enumerate(read, 1)
        for place, row in enumerate(rows, 1)
    ]
    each = len(read[0])
    across = ACROSS - ACROSS % each if each < ACROSS else each
    groups = [
        gallery.group("The picture", [gallery.picture(picture)], 1, size=132),
        gallery.group(f"What the model reads of it, seed {seed}", cells, across, size=132),
    ]
    lead = "Each time that training reads the picture, it draws new rows for the model. Masked patches are grey."
    return gallery.gallery(lead, groups)


def as_rows(processor: ImageProcessor, batch: Batch) -> list[np.ndarray]:
    """The picture [size, size, C] uint8 of each row of a batch; patches that the model does not see are grey."""
    assert batch.signal is not None
    (B, T), grid, P = batch.tokens.shape, processor.size // processor.patch, processor.patch
    seen = (batch.tokens.flatten()[batch.signal.places] == Kind.SIGNAL).numpy()
    row, place = np.divmod(batch.signal.places.numpy()[seen], T)
    position = place if batch.positions is None else batch.positions.numpy()[row, place]
    values_PF = batch.signal.values.numpy()[seen]
    patches_BNF = np.zeros((B, grid**2, values_PF.shape[-1]), np.float32)
    hidden_BN = np.ones((B, grid**2), bool)
    patch = position - len(processor.summaries)
    patches_BNF[row, patch], hidden_BN[row, patch] = values_PF, False
    found = []
    for patches_NF, hidden_N in zip(patches_BNF, hidden_BN, strict=True):
        hidden = hidden_N.reshape(grid, grid, 1).repeat(P, 0).repeat(P, 1)
        found.append(np.where(hidden, np.uint8(GREY), processor.picture(patches_NF)))
    return found

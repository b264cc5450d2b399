"""Windows of a Swin over a picture: where attention stops, stage by stage, before and after the shift.

Shapes: G patches of a side of a stage, W of a window.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from unmask.data.pictures.decoding import resize
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.nn.windows import Stages, WindowAttention
from unmask.visualize import gallery
from unmask.visualize.numbers import Data

NEAREST = 0
BORDER, HALF = (200, 82, 0), 2  # the colour of the borders of windows, and half of their width in pixels


def windows(model: nn.Module, processor: ImageProcessor, picture: np.ndarray) -> Data:
    """The picture [H, W, C] uint8 with the borders of the windows of each stage, and of its shifted windows. Raises
    UnmaskError for a model without windows."""
    stages = next((part for part in model.modules() if isinstance(part, Stages)), None)
    if stages is None or not any(isinstance(part, WindowAttention) for part in stages.modules()):
        raise UnmaskError("This view needs a model that attends in windows of a picture, such as a Swin.")
    example = processor.example(picture)
    assert example.signal is not None
    pixels_HWC = processor.picture(example.signal[1])
    groups, patch = [], processor.patch
    for number, stage in enumerate(stages.stages, 1):
        parts = [part for part in stage.modules() if isinstance(part, WindowAttention)]
        cells = [
            gallery.picture(_drawn(pixels_HWC, of, patch), _caption(of))
            for of in {part.shift: part for part in parts}.values()
        ]
        grid, window = parts[0].grid, parts[0].window
        title = f"Stage {number}: {grid} x {grid} patches of {patch} pixels, windows of {window} x {window}"
        groups.append(gallery.group(title, cells, 2, size=gallery.MOST))
        patch *= 2
    lead = (
        "White lines separate patches, and orange lines separate those that do not attend to each other. Windows are "
        "shifted in every second block, where they are smaller at the borders of the picture: the shift is cyclic, and "
        "a mask separates what it joins (Liu et al. 2021, section 3.2). Each stage merges 2 x 2 patches into one."
    )
    return gallery.gallery(lead, groups)


def regions(grid: int, window: int, shift: int) -> np.ndarray:
    """[G, G] int64: two patches attend to each other in this block if their numbers are equal.

    After the shift, a window holds the patches `shift` further to the right and below; what the shift moves to the
    other side is masked.
    """
    padded = grid + -grid % window
    moved_G = (np.arange(grid) - shift) % padded
    region_G = moved_G // window * 2 + ((moved_G >= padded - shift) & (shift > 0))
    found: np.ndarray = region_G[:, None] * (2 * padded + 2) + region_G
    return found


def _caption(part: WindowAttention) -> str:
    if part.window >= part.grid:
        return "one window, which is not shifted"
    return f"shifted by {part.shift}" if part.shift else "not shifted"


def _drawn(pixels_HWC: np.ndarray, part: WindowAttention, patch: int) -> np.ndarray:
    """The enlarged picture [H, W, 3] with the borders of patches and windows."""
    side = pixels_HWC.shape[0]
    times = max(1, gallery.MOST // side)
    large = resize(pixels_HWC, side * times, side * times, NEAREST)
    drawn = np.broadcast_to(large, (*large.shape[:2], 3)).copy()
    step = patch * times
    borders = range(step, part.grid * step, step)
    for at in borders:
        drawn[at : at + 1] = drawn[at : at + 1] // 2 + 127
        drawn[:, at : at + 1] = drawn[:, at : at + 1] // 2 + 127
    numbers = regions(part.grid, part.window, part.shift)
    for i, at in enumerate(borders, 1):
        for j in range(part.grid):
            along = slice(j * step, (j + 1) * step + HALF)
            if numbers[i - 1, j] != numbers[i, j]:
                drawn[at - HALF : at + HALF, along] = BORDER
            if numbers[j, i - 1] != numbers[j, i]:
                drawn[along, at - HALF : at + HALF] = BORDER
    return drawn

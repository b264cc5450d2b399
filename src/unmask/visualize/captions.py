"""Where a model looks in a picture while it writes: the patches that each word of a caption attends to.

Shapes: S side of the picture in pixels, C channels, T tokens, P places of the picture (summaries, then G * G patches).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unmask.data.text.splitters import JOINER
from unmask.visualize import gallery
from unmask.visualize.numbers import Data

COLOUR = (255, 140, 0)
SHARE = 0.65  # of the colour where the weight is largest


def lit(picture_SSC: np.ndarray, weights_P: np.ndarray) -> np.ndarray:
    """[S, S, 3] uint8: the picture as a model reads it, with more colour on patches of larger weights. Weights of the
    summaries before the patches are left out; the largest of the others has the full colour."""
    grid, side = math.isqrt(len(weights_P)), len(picture_SSC)
    patches_GG = weights_P[len(weights_P) - grid**2 :].reshape(grid, grid)
    places = np.minimum(np.arange(side) * grid // side, grid - 1)
    share_SS1 = SHARE * (patches_GG / max(patches_GG.max(), 1e-9))[places[:, None], places, None]
    mixed = picture_SSC * (1 - share_SS1) + np.array(COLOUR) * share_SS1
    return np.rint(np.broadcast_to(mixed, (side, side, 3))).astype(np.uint8)


def over_words(picture_SSC: np.ndarray, caption: str, words: Sequence[str], weights_TP: np.ndarray) -> Data:
    """A gallery: the picture, then the picture for each token with the patches that it attends to, on average over all
    layers and heads.

    caption  its heading
    words    the tokens of the caption, the end included
    """
    pairs = zip(words, weights_TP, strict=True)
    cells = [gallery.picture(lit(picture_SSC, one_P), word.strip(JOINER)) for word, one_P in pairs]
    lead = "Patches that each word attends to, on average over layers and heads; the largest weight has most colour."
    first = gallery.picture(picture_SSC, "the picture")
    return gallery.gallery(lead, [gallery.group(caption, [first, *cells], 8)])

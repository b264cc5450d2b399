"""Plain references for pictures: logistic regressions on their pixels, and on histograms of oriented gradients.

Shapes: H, W pixels of the sides, C channels, N pictures, F features of a picture, G cells of a side, K orientations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from unmask.data.labelled.rows import Row
from unmask.data.pictures.decoding import BILINEAR, resize
from unmask.data.pictures.reading import pixels_of
from unmask.tasks.lexical import regression

SIDE = 32  # pixels of a side that every picture is resized to
CELL, BLOCK, ORIENTATIONS = 4, 2, 9  # pixels of a cell, cells of a block; Dalal & Triggs: cells of 8 in 64 x 128 pixels
CLIP, EPS = 0.2, 1e-5

Features = Callable[[np.ndarray], np.ndarray]
"""A picture [H, W, C] in [0, 1] -> [F]."""


def pixel_values(picture_HWC: np.ndarray) -> np.ndarray:
    """The pixels as they are, [H * W * C]."""
    return picture_HWC.ravel()


def oriented_gradients(picture_HWC: np.ndarray) -> np.ndarray:
    """Histograms of oriented gradients (HOG, Dalal & Triggs 2005, section 6): [blocks * BLOCK^2 * ORIENTATIONS].

    The gradient is [-1, 0, 1] along each axis, of the channel where it is largest. Each pixel votes with its magnitude
    for the two nearest of nine orientations, without a sign; votes are summed in cells. Overlapping blocks of 2 x 2
    cells are normalised (L2-Hys): to unit length, clipped at 0.2, and to unit length again. The original also
    interpolates votes between neighbouring cells; this does not.
    """
    padded = np.pad(picture_HWC, ((1, 1), (1, 1), (0, 0)), mode="edge")
    down_HWC = padded[2:, 1:-1] - padded[:-2, 1:-1]
    right_HWC = padded[1:-1, 2:] - padded[1:-1, :-2]
    magnitude_HWC = np.hypot(down_HWC, right_HWC)
    largest = magnitude_HWC.argmax(-1)[..., None]
    magnitude_HW, down_HW, right_HW = (
        np.take_along_axis(x, largest, -1)[..., 0] for x in (magnitude_HWC, down_HWC, right_HWC)
    )
    # Bin k covers the angles around (k + 1/2) * 180 / K degrees.
    bin_HW = np.arctan2(down_HW, right_HW) % np.pi * (ORIENTATIONS / np.pi) - 0.5
    lower_HW = np.floor(bin_HW).astype(np.int64)
    share_HW = bin_HW - lower_HW
    votes_HWK = np.zeros((*bin_HW.shape, ORIENTATIONS))
    for index_HW, weight_HW in ((lower_HW, 1 - share_HW), (lower_HW + 1, share_HW)):
        index = (index_HW % ORIENTATIONS)[..., None]
        added = np.take_along_axis(votes_HWK, index, -1) + (weight_HW * magnitude_HW)[..., None]
        np.put_along_axis(votes_HWK, index, added, -1)
    G = len(votes_HWK) // CELL
    cells_GGK = votes_HWK.reshape(G, CELL, G, CELL, ORIENTATIONS).sum((1, 3))
    blocks = np.lib.stride_tricks.sliding_window_view(cells_GGK, (BLOCK, BLOCK), (0, 1)).reshape(
        (G - BLOCK + 1) ** 2, -1
    )
    return _unit(np.minimum(_unit(blocks), CLIP)).ravel()


def _unit(rows: np.ndarray) -> np.ndarray:
    """Each row divided by its length; rows of zeros stay zeros."""
    return rows / np.sqrt((rows**2).sum(-1, keepdims=True) + EPS**2)


FEATURES: Mapping[str, Features] = {"pixels": pixel_values, "hog": oriented_gradients}


def regression_on_pictures(
    train: Sequence[Row], features: Features, true_N: np.ndarray, count: int
) -> Callable[[Sequence[Row]], list[np.ndarray]]:
    """Pictures -> probabilities [1, count] by a logistic regression on the features of the training pictures.

    true_N  class of each training picture

    Raises UnmaskError for a picture that cannot be decoded.
    """
    train_NF = features_of(train, features)
    if len(train_NF) < train_NF.shape[1]:
        # The weights of a regression with an L2 penalty lie in the span of the training rows: N numbers for each
        # picture give the same answers as F, in a fraction of the time.
        basis_NF = np.linalg.svd(train_NF, full_matrices=False)[2]
    else:
        basis_NF = None

    def reduced(found_NF: np.ndarray) -> np.ndarray:
        return found_NF if basis_NF is None else found_NF @ basis_NF.T

    answer = regression.classes(reduced(train_NF), true_N, count)
    return lambda rows: list(answer(reduced(features_of(rows, features)))[:, None])


def features_of(rows: Sequence[Row], features: Features) -> np.ndarray:
    """[N, F] float32 of pictures that are resized to squares of SIDE pixels. Raises UnmaskError for a picture that
    cannot be decoded."""
    found = []
    for pixels_HWC in pixels_of(rows):
        square = resize(pixels_HWC, SIDE, SIDE, BILINEAR)
        found.append(features(square / 255).astype(np.float32))
    return np.stack(found)

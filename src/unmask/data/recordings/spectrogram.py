"""Spectrograms: the power of a recording over time and frequency, as numbers and as small pictures.

Shapes: N samples, F windows, M mel bands, S parts, H and W in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unmask.data.recordings.features import LogMel
from unmask.data.recordings.reading import Recording

BANDS, HOP, WINDOW = 48, 0.010, 0.025  # of the spectrogram; seconds
DECIBELS = 70.0  # range of the colours, below the loudest place
ROWS, COLUMNS = 32, 200  # pixels of a picture
GREYS = 15  # with the colour of hidden parts these are the 16 colours of a small PNG
HIDDEN = (86, 180, 233)


def features_of(rate: int, bands: int = BANDS) -> LogMel:
    """The spectra of a spectrogram."""
    window, hop = (max(1, round(seconds * rate)) for seconds in (WINDOW, HOP))
    return LogMel(rate=rate, hop=hop, window=window, bands=bands, low=0.0)


def spectrogram(samples_N: np.ndarray, rate: int, bands: int = BANDS) -> np.ndarray:
    """[F, M]: 1 is the loudest place, and 0 is DECIBELS below it or less; F = 0 for a recording shorter than a
    window."""
    log_FM = features_of(rate, bands)(samples_N)
    if not len(log_FM):
        return log_FM
    decibels_FM = 10 / math.log(10) * (log_FM - log_FM.max())
    return np.asarray(np.maximum(1 + decibels_FM / DECIBELS, 0))


def picture_of(row: Recording) -> np.ndarray:
    """The `picture` of a labelled recording, at its own rate. Raises UnmaskError if it cannot be decoded."""
    rate = row.header.rate
    return picture(row.samples(rate), rate)


def picture(samples_N: np.ndarray, rate: int, hidden: Sequence[tuple[float, float]] = ()) -> np.ndarray:
    """[ROWS, COLUMNS, 3] uint8: the spectrogram in greys, from left to right over the whole recording, low frequencies
    at the bottom, dark where it is loud.

    hidden  begin and end in seconds of parts that are covered
    """
    levels_FM = spectrogram(samples_N, rate, ROWS)
    F = len(levels_FM)
    if not F:
        return np.full((ROWS, COLUMNS, 3), 255, np.uint8)
    edges_W = np.linspace(0, F, COLUMNS + 1)
    levels_WM = np.maximum.reduceat(levels_FM, edges_W[:-1].astype(int))
    greys_HW = 255 - np.rint(levels_WM.T[::-1] * (GREYS - 1)) * (255 // (GREYS - 1))
    pixels_HWC = np.repeat(greys_HW[..., None], 3, 2).astype(np.uint8)
    seconds_W = WINDOW / 2 + HOP * ((edges_W[:-1] + edges_W[1:]) / 2 - 0.5)
    for begin, end in hidden:
        pixels_HWC[:, (begin <= seconds_W) & (seconds_W < end)] = HIDDEN
    return pixels_HWC

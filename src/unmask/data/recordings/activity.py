"""Activity: where a recording is silent, by its energy, and where it can be cut.

Shapes: N samples in [-1, 1], F frames of FRAME seconds, one every HOP seconds.
"""

from __future__ import annotations

import numpy as np

FRAME, HOP = 0.025, 0.010  # seconds
WINDOW = 0.1  # seconds about a cut that must be quiet
MARGIN = 0.1  # seconds of silence that stay at both ends
SILENT = -60.0  # decibels of full scale: a recording that is nowhere louder is silent
BELOW, ABOVE, LEAST = 40.0, 6.0, 20.0  # decibels below the loudest, above the quietest frames; see `active`
PART = 1 / 3  # of the longest part: the shortest one


def levels(samples: np.ndarray, rate: int) -> np.ndarray:
    """[F] the energy of each frame, in decibels of full scale; one frame for a recording that is shorter."""
    frame, hop = min(len(samples), max(1, round(FRAME * rate))), max(1, round(HOP * rate))
    sums = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    energy = (sums[frame:] - sums[:-frame])[::hop] / frame
    return 10 * np.log10(energy.clip(1e-10))


def silent(samples: np.ndarray, rate: int) -> bool:
    """Whether a recording is nowhere louder than SILENT."""
    return bool(levels(samples, rate).max() < SILENT)


def active(samples: np.ndarray, rate: int) -> tuple[int, int]:
    """The begin and end of a recording without the silence before its first sound and after its last one, except
    MARGIN seconds; all of it if it is silent.

    A frame is silent if it is BELOW decibels below the loudest one, or, in a noisy recording, less than ABOVE decibels
    above the quietest tenth of the frames; but never if it is within LEAST decibels of the loudest one.
    """
    found = levels(samples, rate)
    loudest, quiet = float(found.max()), float(np.quantile(found, 0.1))
    if loudest < SILENT:
        return 0, len(samples)
    loud = np.flatnonzero(found >= max(loudest - BELOW, min(quiet + ABOVE, loudest - LEAST)))
    hop, margin = max(1, round(HOP * rate)), round(MARGIN * rate)
    first, last = int(loud[0]) * hop, int(loud[-1]) * hop + round(FRAME * rate)
    return max(0, first - margin), min(len(samples), last + margin)


def quietest(samples: np.ndarray, rate: int, first: int, last: int) -> int:
    """The place from `first` to `last` about which WINDOW seconds have the least energy; the first of several."""
    half = max(1, round(WINDOW * rate / 2))
    begin, end = max(0, first - half), min(len(samples), last + half)
    sums = np.concatenate([[0.0], np.cumsum(np.square(samples[begin:end], dtype=np.float64))])
    places = np.arange(first, last + 1, max(1, round(HOP * rate)))
    lower, upper = (np.clip(places + side - begin, 0, end - begin) for side in (-half, half))
    return int(places[np.argmin(sums[upper] - sums[lower])])


def cuts(samples: np.ndarray, rate: int, longest: float) -> list[tuple[int, int]]:
    """The begin and end of the parts of a recording, none of which is longer than `longest` seconds: cut at its
    quietest places, into parts that have at least a PART of that. One part if the recording is not longer."""
    most = max(3, int(longest * rate))
    least, found, begin = int(most * PART), list[tuple[int, int]](), 0
    while len(samples) - begin > most:
        end = quietest(samples, rate, begin + least, min(begin + most, len(samples) - least))
        found.append((begin, end))
        begin = end
    return [*found, (begin, len(samples))]

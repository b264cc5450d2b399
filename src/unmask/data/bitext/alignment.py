"""Alignment check: tests by lengths whether line n of one file translates line n of the other, and finds the first line
that probably does not.

The lengths of sentences and of their translations are strongly correlated (Gale and Church 1993).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

UNRELATED = 0.2  # a lower correlation suggests shuffled lines; European languages have 0.8 or more
WORST = 1.0  # largest misfit of two lines, in logarithms of lengths; that of translations is mostly below 0.5
FEWEST = 100  # smallest number of lines for a correlation


def first_suspicious(sources: Sequence[int], targets: Sequence[int]) -> int:
    """The first line, from 1, that is probably misaligned in two files of n and n + d lines, from the lengths of lines
    in characters.

    The model: before line k, line i belongs to line i; from line k, to line i + d of the longer file. The misfit of two
    lines is |log of the ratio of their lengths - log of the ratio of the median lengths|, with lengths + 1 because of
    empty lines, and at most WORST, so that single unusual lines have little weight. The result is the k with the
    smallest sum of misfits.
    """
    short, long = (np.asarray(x, np.float64) + 1 for x in sorted((sources, targets), key=len))
    if not len(short):
        return 1
    usual, shift = np.log(np.median(long) / np.median(short)), len(long) - len(short)

    def misfit(partners: np.ndarray) -> np.ndarray:
        return np.minimum(np.abs(np.log(partners / short) - usual), WORST)

    together, shifted = misfit(long[: len(short)]), misfit(long[shift:])
    # The sum of misfits for k is that of `together` before k and of `shifted` from k; up to a constant, it is this:
    return int(np.argmin(np.concatenate([[0.0], np.cumsum(together - shifted)]))) + 1


def correlation(sources: Sequence[int], targets: Sequence[int]) -> float | None:
    """Pearson correlation of the logarithms of the lengths; None for fewer than FEWEST lines, or constant lengths."""
    logs = [np.log1p(np.asarray(x, np.float64)) for x in (sources, targets)]
    if len(sources) < FEWEST or min(x.std() for x in logs) == 0:
        return None
    return float(np.corrcoef(logs[0], logs[1])[0, 1])

"""Aligned: whether the lines of two files belong together, and from which line on they do not, judged by their lengths.

The lengths of sentences and of their translations go together closely (Gale and Church 1993).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

UNRELATED = 0.2  # correlation below which lines look shuffled; between European languages it is from 0.8 on
WORST = 1.0  # misfit of two lines, in logarithms of lengths; that of translations is mostly below 0.5
FEWEST = 100  # lines that a correlation needs


def first_suspicious(sources: Sequence[int], targets: Sequence[int]) -> int:
    """The line, from 1, at which two files of n and n + d lines of these lengths, in characters, probably come apart.

    The rule: before line k, line i goes with line i; from k on, with line i + d of the longer file. How badly two lines
    go together is |log of the ratio of their lengths - log of the ratio of the median lengths|, with lengths + 1 for
    empty lines, and WORST at most, so that a line of odd length counts little; k is where the sum over all lines is
    least.
    """
    short, long = (np.asarray(x, np.float64) + 1 for x in sorted((sources, targets), key=len))
    if not len(short):
        return 1
    usual, shift = np.log(np.median(long) / np.median(short)), len(long) - len(short)

    def misfit(partners: np.ndarray) -> np.ndarray:
        return np.minimum(np.abs(np.log(partners / short) - usual), WORST)

    together, shifted = misfit(long[: len(short)]), misfit(long[shift:])
    # Cost of coming apart at k is the sum of `together` before and `shifted` from k on; a constant aside, this:
    return int(np.argmin(np.concatenate([[0.0], np.cumsum(together - shifted)]))) + 1


def correlation(sources: Sequence[int], targets: Sequence[int]) -> float | None:
    """Pearson correlation of the logarithms of the lengths; None for few lines, or lengths that are all the same."""
    logs = [np.log1p(np.asarray(x, np.float64)) for x in (sources, targets)]
    if len(sources) < FEWEST or min(x.std() for x in logs) == 0:
        return None
    return float(np.corrcoef(logs[0], logs[1])[0, 1])

"""Plain references for recordings: a logistic regression on mel-frequency cepstra, and the nearest recording by them.

Shapes: N recordings, F frames of one, C cepstra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unmask.data.files.damage import check_readable
from unmask.data.labelled.rows import Row
from unmask.data.recordings.decoding import header
from unmask.data.recordings.features import Mfcc
from unmask.data.recordings.items import RECORDINGS
from unmask.data.recordings.reading import Recording
from unmask.errors import UnmaskError
from unmask.tasks.lexical import regression

RATE, SLOW = 16_000, 8_000  # samples a second; SLOW if all training recordings are at most this fast


def features_at(rate: int) -> Mfcc:
    """13 cepstra of 25 ms, one frame every 10 ms, and two deltas."""
    return Mfcc(rate=rate, hop=rate // 100, window=rate // 40)


def rate_of(rows: Sequence[Row]) -> int:
    """SLOW, or RATE if a recording has more samples a second."""
    fastest = max(header(row.source).rate for row in rows if isinstance(row, Recording))
    return SLOW if fastest <= SLOW else RATE


def statistics(rows: Sequence[Row], rate: int) -> np.ndarray:
    """[N, 6 C]: the mean and the standard deviation of each coefficient over the frames of each recording.

    Raises UnmaskError, after the last recording, if some cannot be read: it counts them, and names the first.
    """
    features, found, broken = features_at(rate), [], []
    for row in rows:
        assert isinstance(row, Recording)
        try:
            samples = row.samples(rate)
            frames_FC = features(np.pad(samples, (0, max(0, features.window - len(samples)))))
            found.append(np.concatenate([frames_FC.mean(0), frames_FC.std(0)]))
        except UnmaskError as error:
            broken.append(str(error))
    check_readable(broken, len(rows), RECORDINGS.noun)
    return np.stack(found)


def standardised(train_NF: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Features [N, F] -> features with the mean 0 and the deviation 1 on the training rows."""
    mean_F, deviation_F = train_NF.mean(0), np.maximum(train_NF.std(0), 1e-8)
    return lambda found_NF: (found_NF - mean_F) / deviation_F


def regression_on_cepstra(
    train: Sequence[Row], true_N: np.ndarray, count: int
) -> Callable[[Sequence[Row]], list[np.ndarray]]:
    """Recordings -> probabilities [1, count] by a logistic regression on the statistics of the training recordings.

    true_N  class of each training recording

    Raises UnmaskError for a recording that cannot be read.
    """
    rate = rate_of(train)
    train_NF = statistics(train, rate)
    scaled = standardised(train_NF)
    answer = regression.classes(scaled(train_NF), true_N, count)
    return lambda rows: list(answer(scaled(statistics(rows, rate)))[:, None])


def nearest_by_cepstra(train: Sequence[Row]) -> Callable[[Sequence[Row]], list[Row]]:
    """Recordings -> the training row with the nearest statistics for each, by the Euclidean distance.

    Raises UnmaskError for a recording that cannot be read.
    """
    rate = rate_of(train)
    train_NF = statistics(train, rate)
    scaled = standardised(train_NF)
    known_NF = scaled(train_NF)

    def nearest(rows: Sequence[Row]) -> list[Row]:
        found = (np.square(known_NF - one_F).sum(1).argmin() for one_F in scaled(statistics(rows, rate)))
        return [train[int(i)] for i in found]

    return nearest

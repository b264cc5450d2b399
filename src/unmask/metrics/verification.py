"""Verification: are two items of one class? Scores of pairs, judged at every threshold.

Shapes: N pairs, T thresholds; E items, D width.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unmask.errors import UnmaskError

FARS = (1e-2, 1e-3)  # false accept rates at which the true accept rate is given
AT_ONCE = 1 << 14  # pairs that are multiplied at a time
MOST_PAIRS = 1 << 21  # pairs that are scored; of more items, that many are drawn


class Roc(NamedTuple):
    """The receiver operating characteristic of scores: a pair is accepted if its score is at least the threshold.

    far         [T] false accept rate: accepted share of the pairs of different classes, ascending from 0 to 1
    tar         [T] true accept rate: accepted share of the pairs of one class, ascending from 0 to 1
    thresholds  [T] descending; the first is infinite, and accepts nothing
    """

    far: np.ndarray
    tar: np.ndarray
    thresholds: np.ndarray

    @property
    def auc(self) -> float:
        """The area under the curve, by trapezoids: the share of (pair of one class, other pair) with the higher score
        for the first; equal scores count half."""
        return float((np.diff(self.far) * (self.tar[1:] + self.tar[:-1])).sum() / 2)

    @property
    def equal_error(self) -> tuple[float, float]:
        """The equal error rate, where the false accept rate equals the false reject rate 1 - tar, and the threshold
        there; both are interpolated between the two nearest thresholds."""
        gaps = self.far + self.tar - 1  # ascending from -1 to 1
        after = int(np.argmax(gaps >= 0))
        before = after - 1
        share = -gaps[before] / (gaps[after] - gaps[before])
        rate = self.far[before] + share * (self.far[after] - self.far[before])
        low, high = self.thresholds[after], self.thresholds[before]
        return float(rate), float(low if np.isinf(high) else high + share * (low - high))

    @property
    def accuracy(self) -> float:
        """The mean of the accuracies on pairs of one class and on other pairs, at the best threshold: the accuracy
        where both are equally frequent, as in the pairs of LFW (Huang et al. 2007)."""
        return float((1 + self.tar - self.far).max() / 2)

    def detection_cost(self, prior: float = 0.01) -> float:
        """The least cost of detection, min over the thresholds of prior * (1 - tar) + (1 - prior) * far, divided by
        that of the better of two constant answers (NIST 2016 Speaker Recognition Evaluation plan, section 3.1, with
        equal costs of both errors).

        prior  probability that a pair is of one class
        """
        costs = prior * (1 - self.tar) + (1 - prior) * self.far
        return float(costs.min() / min(prior, 1 - prior))

    def tar_at(self, far: float) -> float:
        """The true accept rate at the lowest threshold whose false accept rate is at most `far`."""
        return float(self.tar[self.far <= far].max())


def roc(scores: np.ndarray, same: np.ndarray) -> Roc:
    """The curve of scores [N], higher for pairs that are more alike, with a point for each different score.

    same  [N] whether a pair is of one class

    A NaN counts as an error: it is the lowest score of a pair of one class, and the highest of another pair. Raises
    UnmaskError if all pairs are of one kind.
    """
    same = same.astype(bool)
    if same.all() or not same.any():
        raise UnmaskError("Verification needs pairs of one class and pairs of different classes.")
    scores = np.where(np.isnan(scores), np.where(same, -np.inf, np.inf), scores)
    order = np.argsort(-scores, kind="stable")
    scores, same = scores[order], same[order]
    last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))  # of each run of equal scores
    accepted = np.cumsum(same)[last]
    refused = last + 1 - accepted
    far, tar = refused / refused[-1], accepted / accepted[-1]
    return Roc(np.append(0.0, far), np.append(0.0, tar), np.append(np.inf, scores[last].astype(np.float64)))


def of_verification(curve: Roc) -> dict[str, float]:
    """auc, eer, accuracy, and tar@far=0.01 and tar@far=0.001 of a curve."""
    tars = {f"tar@far={far:g}": curve.tar_at(far) for far in FARS}
    return {"auc": curve.auc, "eer": curve.equal_error[0], "accuracy": curve.accuracy, **tars}


def pairs_of(units_ED: np.ndarray, classes_E: np.ndarray, most: int = MOST_PAIRS) -> tuple[np.ndarray, np.ndarray]:
    """The cosines [N] of pairs of items, and whether each pair is of one class [N].

    units_ED   vectors of length 1
    classes_E  the class of each item, from 0
    most       number of pairs that is scored. If there are more, half of them are of one class (all such pairs, if they
               are fewer), and half of different classes, drawn with repetition, the same at every call
    """
    E = len(classes_E)
    count = E * (E - 1) // 2
    if count <= most:
        first, second = np.triu_indices(E, 1)
        return (units_ED @ units_ED.T)[first, second], classes_E[first] == classes_E[second]
    rng, order = np.random.default_rng(0), np.argsort(classes_E, kind="stable")
    counts = np.bincount(classes_E)
    begin_E, count_E = (np.cumsum(counts) - counts)[classes_E[order]], counts[classes_E[order]]
    if (counts * (counts - 1) // 2).sum() <= most // 2:
        alike = [end - n + np.array(np.triu_indices(n, 1)) for end, n in zip(np.cumsum(counts), counts, strict=True)]
        one, other = np.concatenate(alike, axis=1)
    else:  # a class by its share of the pairs, then one of its other items
        one = rng.choice(E, most // 2, p=(count_E - 1) / (count_E - 1).sum())
        other = begin_E[one] + rng.integers(count_E[one] - 1)
        other = other + (other >= one)
    first = rng.choice(E, most // 2, p=(E - count_E) / (E - count_E).sum())
    second = rng.integers(E - count_E[first])
    second = np.where(second < begin_E[first], second, second + count_E[first])
    firsts, seconds = order[np.append(one, first)], order[np.append(other, second)]
    found = [
        (units_ED[firsts[i : i + AT_ONCE]] * units_ED[seconds[i : i + AT_ONCE]]).sum(1)
        for i in range(0, len(firsts), AT_ONCE)
    ]
    return np.concatenate(found), np.arange(len(firsts)) < len(one)

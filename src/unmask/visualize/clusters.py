"""Clusters beside letters: which labels the frames of each cluster have, such as letters, words or speakers.

Shapes: F frames, K clusters, L labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from unmask.data.recordings.clustering import Agreement, agreement
from unmask.errors import UnmaskError
from unmask.visualize.numbers import Data, packed

SILENCE = "(silence)"
"""The label of frames outside of words."""


def letters_of(along: Mapping[str, Sequence[Data]], middles_F: np.ndarray) -> list[str]:
    """The letter of each frame: of those in a word, the letter with the nearest time; SILENCE outside of words.

    along      "words" and "letters" of a recording with their seconds: see `recordings.spoken`
    middles_F  seconds of the middle of each frame
    """
    labels = np.full(len(middles_F), SILENCE, object)
    letters = along.get("letters", ())
    for word in along.get("words", ()):
        own = [one for one in letters if word["begin"] <= one["time"] < word["end"]]
        inside = np.flatnonzero((middles_F >= word["begin"]) & (middles_F < word["end"]))
        if own and len(inside):
            nearest = np.abs(middles_F[inside, None] - np.array([one["time"] for one in own])).argmin(1)
            labels[inside] = [own[i]["letter"] for i in nearest]
    return labels.tolist()


def counted(pairs: Iterable[tuple[np.ndarray, Sequence[str]]], clusters: int) -> dict[str, np.ndarray]:
    """The number of frames of each label in each cluster, [K] for each.

    pairs  clusters [F] and labels [F] of each recording
    """
    found = Agreement(clusters)
    for clusters_F, labels_F in pairs:
        names = np.array(labels_F, object)
        for name in sorted(set(labels_F)):
            found.add(clusters_F[names == name], name)
    return found.by_label


def clusters(counts: Mapping[str, np.ndarray], what: str) -> Data:
    """The view: the share of each label among the frames of each cluster, p(label | cluster) (Baevski et al. 2020,
    appendix D). Clusters are in the order of their most frequent labels; those without frames are left out.

    counts  label -> number of its frames in each cluster [K]
    what    the labels, such as "letters"

    Raises UnmaskError for fewer than two labels.
    """
    if not counts:
        raise UnmaskError(f"No recording has both {what} and labels of clusters: give the folders that were clustered.")
    if len(counts) < 2:
        raise UnmaskError(f"Clusters are compared with at least two {what}, and the recordings have {len(counts)}.")
    counts_LK = np.stack(list(counts.values())).astype(np.float64)
    used = np.flatnonzero(counts_LK.sum(0))
    shares_LK = counts_LK[:, used] / counts_LK[:, used].sum(0)
    order = np.lexsort((-shares_LK.max(0), shares_LK.argmax(0)))
    scores = agreement(counts_LK)
    lead = (
        f"A column for each of {len(used):,} clusters that {int(counts_LK.sum()):,} frames use, a row for each of "
        f"{len(counts):,} {what}: the share of a cluster's frames. Purity {scores['purity']:.3f}: the share of frames "
        f"whose label is the most frequent one of their cluster. Clusters give {100 * scores['information']:.0f} % of "
        f"the information about {what}."
    )
    return {
        "view": "clusters",
        "lead": lead,
        "rows": list(counts),
        "columns": [str(used[i] + 1) for i in order],
        "frames": [int(n) for n in counts_LK[:, used[order]].sum(0)],
        "values": packed(shares_LK[:, order]),
    }

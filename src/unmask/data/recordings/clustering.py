"""Clusters of the frames of recordings, by k-means: the labels that HuBERT predicts (Hsu et al. 2021, section II.A).

Shapes: N samples of a recording, F frames, C features of a frame, K clusters, S sampled frames, L labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.config import Config
from unmask.data.files.corpora import refuse_taken
from unmask.data.recordings.labels import MOST, FrameLabels, NamedRecordings, frames_of, write
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError, plural

BATCH = 10_000  # frames of a step of k-means, as published (section IV.B)
OF_EACH = 100  # frames that are sampled of a recording at least, so that not all of a large corpus is read
Features = Callable[[np.ndarray], np.ndarray]
"""Samples [N] of a recording -> features [F, C] float32."""
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, kw_only=True)
class Clustering(Config):
    """How frames are clustered.

    clusters   K, number of clusters; published: 100 of MFCC, then 500 of the states of a layer
    sample     S, most frames that the centres are computed from
    attempts   initial centres that are tried; published: 20
    seed       of the sample and the initial centres
    """

    clusters: int = 100
    sample: int = 200_000
    attempts: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.clusters <= MOST or self.sample < self.clusters or self.attempts < 1 or self.seed < 0:
            raise UnmaskError(
                f"The number of clusters must be 1 to {MOST:,}, the sample at least as large, attempts at least 1 and "
                f"the seed 0 or more, not {self.clusters}, {self.sample}, {self.attempts} and {self.seed}."
            )


class Units:
    """The recordings of some splits, by the names of their units."""

    def __init__(self, splits: Sequence[NamedRecordings], processor: RecordingProcessor) -> None:
        self.processor, self.splits = processor, [split.at_rate(processor.rate) for split in splits]
        self.places = [(split, unit) for split in self.splits for unit in range(len(split.cost))]

    def __len__(self) -> int:
        return len(self.places)

    def features(self, number: int, features: Features) -> np.ndarray | None:
        """[F, C], with F = 0 for a recording that is too short; None for one that cannot be decoded, which has no
        labels because another one is read in its place."""
        split, unit = self.places[number]
        found, samples_N = split.located(unit)
        if found != unit:
            return None
        return features(samples_N) if self.processor.frames(len(samples_N)) else np.empty((0, 1), np.float32)

    @property
    def frames(self) -> int:
        """Number of frames of all units."""
        return sum(sum(map(self.processor.frames, split.cost.tolist())) for split in self.splits)

    def name(self, number: int) -> str:
        split, unit = self.places[number]
        return split.names[unit]

    def label(self, number: int) -> str:
        """ "" without one."""
        split, unit = self.places[number]
        return split.labels[unit] if split.labels else ""


def cluster(
    splits: Sequence[NamedRecordings],
    processor: RecordingProcessor,
    features: Features,
    settings: Clustering,
    out: Path | str,
    *,
    facts: Mapping[str, Any],
    progress: Progress | None = None,
) -> FrameLabels:
    """Cluster all frames of some recordings and write their labels.

    processor  decides the frames
    features   of a recording, one row for each frame
    facts      what the features are, for the manifest

    Two passes: one over a sample of frames, for the centres; one over all recordings. Memory: the sample. Where the
    recordings have labels, such as words or speakers, the manifest says how far clusters agree with them. Raises
    UnmaskError for fewer sampled frames than clusters, for two recordings of one name, and if `out` is not empty or
    cannot be written.
    """
    units, show = Units(splits, processor), progress or (lambda *_: None)
    twice = [name for name, count in Counter(map(units.name, range(len(units)))).items() if count > 1]
    if twice:
        raise UnmaskError(f"Two recordings have the name {twice[0]}: give folders in which names differ.")
    refuse_taken(Path(out).absolute())
    sample_SC = _sample(units, features, settings, show)
    if len(sample_SC) < settings.clusters:
        raise UnmaskError(
            f"The recordings have {plural(len(sample_SC), 'frame')}, too few for {settings.clusters} clusters: use "
            "fewer clusters or more recordings."
        )
    centres_KC = _centres(sample_SC, settings)
    found = Agreement(settings.clusters)

    def rows() -> Iterator[tuple[str, np.ndarray]]:
        for number in range(len(units)):
            features_FC = units.features(number, features)
            if features_FC is not None:
                labels_F = nearest(features_FC, centres_KC) if len(features_FC) else np.empty(0, np.int64)
                found.add(labels_F, units.label(number))
                yield units.name(number), labels_F
            show("labels", number + 1, len(units))

    described = {**facts, "frames": frames_of(processor), "settings": settings.to_dict()}
    return write(out, rows(), centres_KC, lambda: {**described, "report": found.facts()})


def _sample(units: Units, features: Features, settings: Clustering, show: Progress) -> np.ndarray:
    """[S, C]: frames of recordings in random order, some of each."""
    rng, parts, count = np.random.default_rng(settings.seed), list[np.ndarray](), 0
    wanted = min(settings.sample, units.frames)
    of_each = max(OF_EACH, math.ceil(settings.sample / max(len(units), 1)))
    for number in rng.permutation(len(units)).tolist():
        found_FC = units.features(number, features)
        if found_FC is None or not len(found_FC):
            continue
        most = min(len(found_FC), of_each, settings.sample - count)
        parts.append(found_FC[np.sort(rng.choice(len(found_FC), most, replace=False))])
        count += most
        show("sampled frames", count, wanted)
        if count >= settings.sample:
            break
    return np.concatenate(parts) if parts else np.empty((0, 1), np.float32)


def _centres(sample_SC: np.ndarray, settings: Clustering) -> np.ndarray:
    """[K, C] float32: the centres by k-means++ and mini-batches (Sculley 2010), as HuBERT's authors set them."""
    from sklearn.cluster import MiniBatchKMeans

    found = MiniBatchKMeans(
        settings.clusters,
        batch_size=BATCH,
        max_iter=100,
        tol=0.0,
        max_no_improvement=100,
        n_init=settings.attempts,
        reassignment_ratio=0.0,
        random_state=settings.seed,
    )
    return np.asarray(found.fit(sample_SC.astype(np.float32)).cluster_centers_, np.float32)


def nearest(features_FC: np.ndarray, centres_KC: np.ndarray) -> np.ndarray:
    """[F]: the number of the centre nearest to each frame, by |x - c|² = |x|² - 2 x·c + |c|²."""
    centres = centres_KC.astype(np.float64)
    return np.asarray(((centres**2).sum(1) - 2 * (features_FC.astype(np.float64) @ centres.T)).argmin(1))


class Agreement:
    """Counts of the clusters of frames, together with the labels of their recordings."""

    def __init__(self, clusters: int) -> None:
        self.sizes_K = np.zeros(clusters, np.int64)
        self.by_label: dict[str, np.ndarray] = {}

    def add(self, clusters_F: np.ndarray, label: str) -> None:
        """Add the frames of a recording; its label is "" without one."""
        counts_K = np.bincount(clusters_F, minlength=len(self.sizes_K))
        self.sizes_K += counts_K
        if label:
            self.by_label[label] = self.by_label.get(label, 0) + counts_K

    def facts(self) -> dict[str, Any]:
        """`perplexity`, the exponential of the entropy of the sizes; `unused`, clusters without frames; `largest`, the
        share of the largest cluster. With at least two labels, also `purity` and `information`: see `agreement`."""
        shares_K = self.sizes_K / max(self.sizes_K.sum(), 1)
        found = {
            "perplexity": math.exp(entropy(shares_K)),
            "unused": int((self.sizes_K == 0).sum()),
            "largest": float(shares_K.max()),
        }
        if len(self.by_label) > 1:
            found |= {"labels": len(self.by_label), **agreement(np.stack(list(self.by_label.values())))}
        return found


def agreement(counts_LK: np.ndarray) -> dict[str, float]:
    """How far clusters agree with labels, from the number of frames of each label in each cluster (Hsu et al. 2021,
    section IV.E): `purity` = sum_k max_l p(l, k), and `information` = I(l; k) / H(l), from 0 to 1."""
    joint_LK = counts_LK / max(counts_LK.sum(), 1)
    of_labels, of_clusters = entropy(joint_LK.sum(1)), entropy(joint_LK.sum(0))
    shared = of_labels + of_clusters - entropy(joint_LK)
    return {"purity": float(joint_LK.max(0).sum()), "information": shared / of_labels if of_labels > 0 else 0.0}


def entropy(shares: np.ndarray) -> float:
    """- sum p log p, in nats."""
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())

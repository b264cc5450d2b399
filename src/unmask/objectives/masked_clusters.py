"""HuBERT: predict the cluster of each masked frame (Hsu et al. 2021).

Shapes: B rows, T frames of a row, M masked frames, F frames of a recording, C channels of a frame, K clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from unmask.data.recordings.clustering import Clustering, cluster, entropy
from unmask.data.recordings.features import Mfcc
from unmask.data.recordings.labels import FrameLabels, LabelledRecordings
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.source import Cropped
from unmask.errors import UnmaskError, plural
from unmask.files import MANIFEST
from unmask.models.model import Model
from unmask.objectives.config import Data, Shown
from unmask.objectives.crops import check_spans, crop
from unmask.objectives.objective import Term
from unmask.objectives.recordings import RecordingConfig, RecordingObjective, masked_spans
from unmask.types import Batch, Example, Head, Kind, Loss, Target

COLLAPSED = 1.5
"""Perplexity of the predicted clusters below which nearly all masked frames get the same one."""
SHOWN = (("perplexity", "Clusters in use: perplexity of the predictions"),)


class MaskedClusters(RecordingObjective):
    """L = L_masked + unmasked * L_unmasked + penalty (section II.B and the authors' code): cross-entropy of
    the cluster of each frame, by the cosine of its state and a vector for each cluster.

    labels       the clusters of the frames of all recordings
    share, span  of the masked frames (`spans`)
    unmasked     weight of the frames that are not masked; published: 0
    penalty      weight of the mean square of the convolutions' outputs

    Raises UnmaskError for numbers out of range, and for labels of other frames than those of the processor.
    """

    name = "clusters"
    terms = (
        Term("clusters", "clusters of masked frames", more=SHOWN),
        Term("unmasked", "clusters of other frames"),
        Term("features", "size of the features"),
    )
    head_labels = (("clusters", "masked-cluster"),)

    def __init__(
        self,
        processor: RecordingProcessor,
        labels: FrameLabels,
        *,
        share: float,
        span: int,
        unmasked: float,
        penalty: float,
    ) -> None:
        check_spans(share, span)
        if not (unmasked >= 0 and penalty >= 0):
            raise UnmaskError("The weights of unmasked frames and of the penalty must be 0 or more.")
        labels.check(processor)
        self.processor, self.labels, self.share, self.span = processor, labels, share, span
        self.heads = {self.name: Head("clusters", labels.clusters, pretraining=True)}
        self._weights = {self.name: 1.0, "unmasked": unmasked, "features": penalty}

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights

    def source(self, split: Any, length: int) -> Cropped:
        """As for other objectives, with the labels of each recording."""
        return super().source(LabelledRecordings(split, self.labels, self.processor), length)

    def example(self, recording: Any, length: int, rng: np.random.Generator | None = None) -> Example:
        """Samples [N] and labels [F] of a recording, or of a random crop; every frame has its label as target."""
        samples_N, labels_F = recording
        begin = crop(len(labels_F), length, rng)
        first = begin * self.processor.hop
        values = self.processor.values(samples_N)[first : first + self.processor.samples(length)]
        example = self.processor.framed(values)
        kept = labels_F[begin : begin + len(example.tokens)].astype(np.int64)
        return replace(example, targets={self.name: (np.arange(len(kept)), kept)})

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Mask spans, and divide the targets into those of masked frames and the others."""
        every = batch.targets[self.name]
        batch, _ = masked_spans(batch, self.processor, self.share, self.span, rng)
        masked = batch.tokens.flatten()[every.places] == Kind.MASK
        return batch.with_targets(
            clusters=Target(every.places[masked], every.values[masked]),
            unmasked=Target(every.places[~masked], every.values[~masked]),
            features=Target(every.places, every.places),
        )

    def loss(self, model: Any, batch: Batch) -> dict[str, Loss]:
        batch = batch.asking(self.weights)
        hidden_BTD, _, features_BTC = model.forward_with_frames(batch)
        others, every = batch.targets["unmasked"], batch.targets["features"].places
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.weights["unmasked"] > 0):
            unmasked = self.of_answers(model.answer(self.name, hidden_BTD, others.places, batch), others.values)
        size = features_BTC.flatten(0, 1)[every].float().square().mean(-1).sum()
        return {
            self.name: self.score(model, hidden_BTD, batch),
            "unmasked": unmasked,
            "features": Loss(size, len(every)),
        }

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Equation 1, summed over masked frames. `entropy` and `label_entropy`, of the predicted and of the true
        clusters, are quantities of the micro-batch, times M."""
        target, K = batch.targets[self.name], self.labels.clusters
        logits_MK = model.answer(self.name, hidden_BTD, target.places, batch)
        loss = self.of_answers(logits_MK, target.values)
        uses = {"entropy": logits_MK.detach().argmax(-1), "label_entropy": target.values}
        sizes = {name: _entropy(clusters_M, K) * loss.count for name, clusters_M in uses.items()}
        return replace(loss, metrics={**loss.metrics, **sizes})

    # -- evaluation and report

    def told(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Masked frames, and whether the most probable cluster is theirs."""
        target = batch.targets[self.name]
        logits_MK = model.answer(self.name, model(batch), target.places, batch)
        return target.places, logits_MK.argmax(-1) == target.values

    def derived(self, found: Mapping[str, float], characters: Callable[[], float]) -> dict[str, float]:
        """`clusters/perplexity`, of the predicted clusters of a micro-batch, and `clusters/label_perplexity`."""
        names = {"perplexity": "entropy", "label_perplexity": "label_entropy"}
        sizes = {f"{self.name}/{name}": found.get(f"{self.name}/{of}") for name, of in names.items()}
        return {name: math.exp(x) for name, x in sizes.items() if x is not None}

    def concerns(self, found: Mapping[str, float]) -> list[str]:
        used = self.derived(found, lambda: 0.0).get(f"{self.name}/perplexity", math.inf)
        if used >= COLLAPSED:
            return []
        return [
            f"The predictions have collapsed: nearly all masked frames get the same cluster (perplexity {used:.1f}). "
            "Lower --lr, lengthen the warm-up, or train longer."
        ]

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if f"{self.name}/correct" not in found:
            return []
        shares_K = self.labels.sizes / max(self.labels.sizes.sum(), 1)
        sizes = self.derived(found, lambda: 0.0)
        return [
            f"Held-out recordings: the cluster of {found[f'{self.name}/correct']:.1%} of the masked frames was "
            f"predicted, and of {found['unmasked/correct']:.1%} of the others (the largest cluster alone: "
            f"{shares_K.max():.1%}). The loss is {found[f'loss/{self.name}']:.2f} (cluster frequencies alone: "
            f"{entropy(shares_K):.2f}). The predictions use about {sizes[f'{self.name}/perplexity']:.0f} clusters, "
            f"the labels {sizes[f'{self.name}/label_perplexity']:.0f}.",
            *self.concerns(found),
        ]


def _entropy(clusters_M: Tensor, K: int) -> Tensor:
    """The entropy of the shares of K clusters, in nats; 0 without any."""
    counts_K = torch.zeros(K, device=clusters_M.device).index_add_(0, clusters_M, torch.ones_like(clusters_M).float())
    shares_K = counts_K / max(len(clusters_M), 1)
    return -torch.xlogy(shares_K, shares_K).sum()


@dataclass(frozen=True, kw_only=True)
class MaskedClustersConfig(RecordingConfig):
    """Predict the cluster of each masked frame of recordings, as HuBERT does.

    labels    folder of labels from unmask cluster; without one, the run clusters MFCC of its recordings first
    clusters  number of clusters in that case
    share     of the frames that masked spans would cover without overlaps
    span      frames of a masked span
    unmasked  weight of the frames that are not masked
    penalty   weight of the mean square of the convolutions' outputs
    """

    labels: str | None = None
    clusters: int = 100
    share: float = 0.8
    span: int = 10
    unmasked: float = 0.0
    penalty: float = 10.0

    kind: ClassVar[str] = "masked clusters"
    learned: ClassVar[str] = "clusters of recordings"
    example: ClassVar[str] = "hubert-tiny"
    objective = MaskedClusters
    requires: ClassVar[frozenset[str]] = frozenset({"recordings", "masked frames", "clusters"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"clusters"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("frames", "clusters"),)

    def prepared(
        self,
        corpora: Sequence[Data],
        processor: RecordingProcessor,
        out: Path,
        say: Callable[[str], None],
        progress: Shown,
    ) -> Self:
        """This config with labels: those that it names, or clusters of MFCC, which are written into `out` once."""
        if self.labels is not None:
            return self
        folder = out / "labels"
        if not (folder / MANIFEST).is_file():
            splits = [corpus.split(name) for corpus in corpora for name in ("train", "heldout")]
            count = sum(len(split.cost) for split in splits)
            say(
                f"There are no --labels: the MFCC of {plural(count, 'recording')} are clustered first, into "
                f"{self.clusters} clusters. The labels are kept in {folder}."
            )
            settings, features = Clustering(clusters=self.clusters), Mfcc.of(processor)
            facts = {"features": {"kind": "mfcc", **features.to_dict()}}
            with progress() as show:
                cluster(splits, processor, features, settings, folder, facts=facts, progress=show)
        if FrameLabels(folder).clusters != self.clusters:
            raise UnmaskError(f"{folder} has another number of clusters than {self.clusters}: delete it to start anew.")
        return replace(self, labels=str(folder))

    def of_recordings(self, processor: RecordingProcessor) -> RecordingObjective:
        if self.labels is None:
            raise UnmaskError("Give a folder of labels: --labels FOLDER (make one with: unmask cluster --data ...).")
        return MaskedClusters(
            processor,
            FrameLabels(self.labels),
            share=self.share,
            span=self.span,
            unmasked=self.unmasked,
            penalty=self.penalty,
        )

"""The objective of HuBERT, compared with its equation written out; which frames and labels it sees."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from unmask.data.recordings import labels as frame_labels
from unmask.data.recordings.labels import FrameLabels
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.nn.clusters import ClusterHead
from unmask.objectives.masked_clusters import MaskedClusters
from unmask.types import Batch, Kind

PROCESSOR = RecordingProcessor(rate=8_000, hop=4, window=10, normalise=False)
CLUSTERS, D, C = 7, 6, 5
FRAMES = [40, 23, 60, 3, 31]


class Counted:
    """Recordings whose sample n is n / 2^15, so that samples tell where they come from."""

    def __init__(self) -> None:
        self.cost = np.array([PROCESSOR.samples(n) + n % 4 for n in FRAMES])
        self.names, self.labels = [f"{unit}.wav" for unit in range(len(FRAMES))], ()

    def read(self, unit: int) -> np.ndarray:
        return np.arange(self.cost[unit], dtype=np.int16)

    def located(self, unit: int) -> tuple[int, np.ndarray]:
        return unit, self.read(unit)

    def at_rate(self, rate: int) -> Counted:
        return self


class Model(nn.Module):
    """Any states and frames, and a head."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.heads = nn.ModuleDict({"clusters": ClusterHead(D, CLUSTERS, width=4)})
        with torch.no_grad():
            for p in self.parameters():
                p.normal_(generator=generator)
        self.states = torch.randn(4_000, D, generator=generator, requires_grad=True)
        self.features = torch.randn(4_000, C, generator=generator, requires_grad=True)

    def forward_with_frames(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        B, T = batch.tokens.shape
        hidden, features = (x[: B * T].view(B, T, -1) for x in (self.states, self.features))
        return hidden, features, features

    def answer(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch) -> Tensor:
        answers: Tensor = self.heads[name](hidden_BTD.flatten(0, 1)[places_M])
        return answers


@pytest.fixture
def labels(tmp_path: Path) -> FrameLabels:
    """The label of a frame is the number of the frame, modulo K."""
    rows = [(f"{unit}.wav", np.arange(n) % CLUSTERS) for unit, n in enumerate(FRAMES)]
    facts = {"frames": frame_labels.frames_of(PROCESSOR)}
    return frame_labels.write(tmp_path / "labels", rows, np.zeros((CLUSTERS, 2)), lambda: facts)


def _objective(labels: FrameLabels, **changed: float) -> MaskedClusters:
    return MaskedClusters(PROCESSOR, labels, **{"share": 0.8, "span": 4, "unmasked": 0.0, "penalty": 10.0, **changed})


def _steps(objective: MaskedClusters, count: int, length: int = 32) -> list[Batch]:
    options = SimpleNamespace(length=length, seed=3, workers=0, alpha=1.0)
    from unmask.data.loader import EqualRows

    stream = objective.stream([Counted()], {**vars(options), "cut": EqualRows(2)})
    return [step.batches[0] for step, _ in zip(stream.batches(), range(count), strict=False)]


def test_every_frame_has_the_label_of_its_samples_after_cropping_and_packing(labels: FrameLabels) -> None:
    for batch in _steps(_objective(labels), 6):
        assert batch.signal is not None
        assert batch.signal.lengths is not None
        places, values = (
            torch.cat([getattr(batch.targets[name], part) for name in ("clusters", "unmasked")])
            for part in ("places", "values")
        )
        found = dict(zip(places.tolist(), values.tolist(), strict=True))
        begin = 0
        for place, count in zip(batch.signal.places.tolist(), batch.signal.lengths.tolist(), strict=True):
            first = round(float(batch.signal.values[begin]) * 2**15)  # its number in the recording
            assert first % PROCESSOR.hop == 0
            for frame in range(PROCESSOR.frames(count)):
                assert found.pop(place + frame) == (first // PROCESSOR.hop + frame) % CLUSTERS
            begin += count
        assert not found


def test_masked_frames_are_the_targets_and_hold_mask(labels: FrameLabels) -> None:
    for batch in _steps(_objective(labels), 3):
        kinds = batch.tokens.flatten()
        assert (kinds[batch.targets["clusters"].places] == Kind.MASK).all()
        assert (kinds[batch.targets["unmasked"].places] == Kind.SIGNAL).all()
        assert 0.3 < (kinds == Kind.MASK).sum() / (kinds != Kind.PADDING).sum() < 0.8


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_loss_is_the_equation_over_masked_and_unmasked_frames(labels: FrameLabels, weight: float) -> None:
    model, objective = Model(), _objective(labels, unmasked=weight)
    batch = _steps(objective, 1)[0]
    losses = objective.loss(model, batch)
    head, T = model.heads["clusters"], batch.tokens.shape[1]
    assert isinstance(head, ClusterHead)
    for name in ("clusters", "unmasked"):
        target, total = batch.targets[name], 0.0
        for place, label in zip(target.places.tolist(), target.values.tolist(), strict=True):
            projected = head.project(model.states[place])
            cosines = [torch.cosine_similarity(projected, e, dim=0).item() for e in head.vectors]
            total -= math.log(math.exp(cosines[label] / 0.1) / sum(math.exp(c / 0.1) for c in cosines))
        assert losses[name].sum.item() == pytest.approx(total, rel=1e-4)
        assert losses[name].count == len(target.places)
    assert losses["unmasked"].sum.requires_grad == (weight > 0)
    real = (batch.tokens != Kind.PADDING).flatten().nonzero().squeeze(1)
    size = model.features[real].square().mean(1).sum()
    torch.testing.assert_close(losses["features"].sum, size)
    assert {name: loss.count for name, loss in losses.items()} == batch.counts
    assert objective.weights == {"clusters": 1.0, "unmasked": weight, "features": 10.0}
    assert T == 32


def test_use_of_clusters_and_collapse_are_said(labels: FrameLabels) -> None:
    objective = _objective(labels)
    found = {"loss/clusters": 1.5, "clusters/correct": 0.4, "unmasked/correct": 0.6}
    spread = {**found, "clusters/entropy": math.log(5), "clusters/label_entropy": math.log(6)}
    assert objective.derived(spread, lambda: 0.0)["clusters/perplexity"] == pytest.approx(5)
    assert objective.concerns(spread) == []
    (said,) = objective.summary(spread, {}, {})
    assert "40.0% of the masked frames" in said
    assert "about 5 clusters, the labels 6" in said
    collapsed = {**found, "clusters/entropy": 0.0, "clusters/label_entropy": math.log(90)}
    (said,) = objective.concerns(collapsed)
    assert "collapsed" in said
    assert "perplexity 1.0" in said


def test_a_batch_is_the_same_from_any_position(labels: FrameLabels) -> None:
    from unmask.data.loader import EqualRows

    options = {"length": 32, "seed": 3, "workers": 0, "alpha": 1.0, "cut": EqualRows(2)}
    stream = _objective(labels).stream([Counted()], options)  # type: ignore[arg-type]
    steps = [step for step, _ in zip(stream.batches(), range(5), strict=False)]
    again = next(iter(stream.batches(steps[3].position)))
    assert torch.equal(again.batches[0].tokens, steps[4].batches[0].tokens)
    for name, target in steps[4].batches[0].targets.items():
        assert torch.equal(again.batches[0].targets[name].values, target.values)


def test_labels_of_other_frames_are_refused(labels: FrameLabels) -> None:
    with pytest.raises(UnmaskError, match="unmask cluster --rate 8000 --hop 8 --window 10"):
        MaskedClusters(
            RecordingProcessor(rate=8_000, hop=8, window=10), labels, share=0.8, span=4, unmasked=0.0, penalty=0.0
        )
    with pytest.raises(UnmaskError, match="0 or more"):
        _objective(labels, penalty=-1.0)

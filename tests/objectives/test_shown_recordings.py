"""What a run shows of held-out recordings: the frames that are asked for, and those that the model found."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unmask.data.recordings import labels
from unmask.data.recordings.labels import FrameLabels
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.spectrogram import COLUMNS, HIDDEN
from unmask.models.cpc import Cpc
from unmask.models.hubert import Hubert
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.objectives.contrastive_prediction import ContrastivePredictionConfig
from unmask.objectives.masked_clusters import MaskedClustersConfig
from unmask.objectives.masked_contrastive import MaskedContrastiveConfig
from unmask.types import Kind

RATE, LENGTH = 8_000, 60
SIZES = {
    "channels": (8, 8), "kernels": (10, 16), "strides": (10, 16),
    "dim": 16, "layers": 1, "heads": 2, "hidden": 32, "position_kernel": 8, "position_groups": 2, "std": 0.3,
}  # fmt: skip
PROCESSOR = RecordingProcessor(rate=RATE, hop=160, window=160)
SAMPLES = [
    np.random.default_rng(i).normal(0, 0.1, PROCESSOR.samples(n)).astype(np.float32)
    for i, n in enumerate((40, 90, 25, 55))
]
SPLIT = SimpleNamespace(
    cost=np.array([len(x) for x in SAMPLES]),
    names=[f"{i}.wav" for i in range(len(SAMPLES))],
    labels=(),
    read=lambda unit: SAMPLES[unit],
    located=lambda unit: (unit, SAMPLES[unit]),
)
SPLIT.at_rate = lambda rate: SPLIT


@pytest.fixture(params=["contrastive", "clusters", "prediction"])
def made(request, tmp_path):
    """An objective and a model."""
    if request.param == "contrastive":
        config, page = MaskedContrastiveConfig(rate=RATE, projection=8), Wav2Vec2(**SIZES, entries=6, codes=8)
    elif request.param == "prediction":
        config = ContrastivePredictionConfig(rate=RATE, steps_ahead=3)
        page = Cpc(channels=(8, 8), kernels=(10, 16), strides=(10, 16), dim=16)
    else:
        rows = [(name, np.arange(PROCESSOR.frames(n)) % 5) for name, n in zip(SPLIT.names, SPLIT.cost, strict=True)]
        labels.write(tmp_path / "labels", rows, np.zeros((5, 1)), lambda: {"frames": labels.frames_of(PROCESSOR)})
        config, page = MaskedClustersConfig(rate=RATE, labels=str(tmp_path / "labels")), Hubert(**SIZES, compared=8)
        assert FrameLabels(tmp_path / "labels").clusters == 5
    objective = config.build(PROCESSOR)
    return objective, page.build(objective.heads, seed=1).eval()


def test_found_frames_are_those_that_the_accuracy_counts(made):
    objective, model = made
    batch = objective.evaluation_rows([SPLIT], length=LENGTH, rows=4, limit_rows=4)[0]
    with torch.no_grad():
        places_M, found_M = objective.told(model, batch)
        loss = objective.loss(model, batch)[objective.name]
    assert len(places_M) == len(found_M) == loss.count
    assert int(found_M.sum()) == int(loss.metrics.get("correct_1", loss.metrics["correct"]))
    asked = batch.tokens.flatten()[places_M]
    assert (asked == (Kind.MASK if objective.asked == "masked frames" else Kind.SIGNAL)).all()


def test_pictures_cover_what_is_asked_and_not_found(made):
    objective, model = made
    probes = objective.probes(SPLIT, None, LENGTH)
    assert [len(probe.item.tokens) for probe in probes] == [40, LENGTH, 25]  # of units 0, 1 and 2 of 4, cropped
    with torch.no_grad():
        shown, again = objective.pictures(model, None, probes), objective.pictures(model, None, probes)
        said = objective.guesses(model, None, probes)
    for probe, pictures, same, guesses in zip(probes, shown, again, said, strict=True):
        assert list(pictures) == ["recording", objective.asked, "found frames"]
        assert all((pictures[name] == same[name]).all() for name in pictures)
        whole_W, asked_W, missed_W = ((one == HIDDEN).all((0, 2)) for one in pictures.values())
        assert not whole_W.any()
        assert not (missed_W & ~asked_W).any()
        [(word, share)] = guesses
        frame = COLUMNS / len(probe.item.tokens)
        assert word == "found"
        assert (1 - missed_W.sum() / asked_W.sum()) == pytest.approx(share, abs=2 * frame / asked_W.sum())


def test_frames_are_hours_of_sound():
    """The batch of XLS-R: 768 crops of 999 frames, at 16 kHz."""
    objective = MaskedContrastiveConfig().build(RecordingProcessor())
    assert objective.amount(768 * 999) == "4.26 hours of sound"
    assert objective.amount(1_600) == "32 s of sound"

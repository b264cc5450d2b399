"""InfoNCE, compared with sums over single frames."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from unmask.data import collate
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.objectives.contrastive_prediction import ContrastivePrediction, info_nce
from unmask.types import Kind

PROCESSOR = RecordingProcessor(rate=8_000, hop=4, window=10)
K, C = 3, 5


def _batch(frames: list[int], length: int | None = 12):
    rng = np.random.default_rng(0)
    examples = [PROCESSOR.example(rng.normal(size=PROCESSOR.samples(n)).astype(np.float32)) for n in frames]
    return collate.pad(examples, Kind.PADDING) if length is None else collate.pack(examples, length, Kind.PADDING)


@pytest.mark.parametrize("length", [12, 30, None])
def test_the_loss_is_equation_4_frame_by_frame(length: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.objectives.contrastive_prediction.AT_ONCE", 2)
    batch = _batch([7, 4, 12, 3, 5], length)
    batch = ContrastivePrediction(PROCESSOR, steps=K).corrupt(batch, np.random.default_rng(0))
    generator = torch.Generator().manual_seed(0)
    frames_BTC = torch.randn(*batch.tokens.shape, C, generator=generator)
    places = batch.targets["prediction"].places
    predicted_MKC = torch.randn(len(places), K, C, generator=generator)
    documents = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
    nll_MK, correct_MK = info_nce(predicted_MKC, frames_BTC, places, documents)
    assert len(places) == (7 - 3) + (4 - 3) + (12 - 3) + (5 - 3)
    T = documents.shape[1]
    for m, place in enumerate(places.tolist()):
        row, step = divmod(place, T)
        others = [t for t in range(T) if documents[row, t] == documents[row, step]]
        for k in range(1, K + 1):
            scores = [math.exp(float(predicted_MKC[m, k - 1] @ frames_BTC[row, t])) for t in others]
            own = math.exp(float(predicted_MKC[m, k - 1] @ frames_BTC[row, step + k]))
            assert float(nll_MK[m, k - 1]) == pytest.approx(-math.log(own / sum(scores)), abs=1e-4)
            assert bool(correct_MK[m, k - 1]) == (own == max(scores))


def test_frames_that_match_their_prediction_have_no_loss_and_equal_ones_that_of_guessing() -> None:
    documents = torch.ones(1, 9, dtype=torch.int64)
    places = torch.arange(9 - K)
    frames_BTC = 100.0 * torch.eye(9)[None]
    predicted_MKC = torch.stack([torch.eye(9)[places + k] for k in range(1, K + 1)], 1)
    nll_MK, correct_MK = info_nce(predicted_MKC, frames_BTC, places, documents)
    torch.testing.assert_close(nll_MK, torch.zeros(6, K))
    assert correct_MK.all()
    nll_MK, _ = info_nce(predicted_MKC, torch.ones(1, 9, 9), places, documents)
    torch.testing.assert_close(nll_MK, torch.full((6, K), math.log(9)))


def test_recordings_of_at_most_k_frames_have_no_targets() -> None:
    objective = ContrastivePrediction(PROCESSOR, steps=K)
    batch = objective.corrupt(_batch([3, 2]), np.random.default_rng(0))
    assert batch.counts == {"prediction": 0}
    batch = objective.corrupt(_batch([4, 6]), np.random.default_rng(0))
    assert sorted(batch.targets["prediction"].values.tolist()) == [4, 6, 6, 6]


def test_no_step_ahead_is_refused() -> None:
    with pytest.raises(UnmaskError, match="At least 1 step"):
        ContrastivePrediction(PROCESSOR, steps=0)

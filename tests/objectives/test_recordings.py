"""Recordings as rows: crops, packing, masked spans, evaluation rows, and exact continuation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.loader import EqualRows
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.objectives.crops import LEAST, check_spans, spans
from unmask.objectives.recordings import RecordingObjective, check_lengths, masked_spans, recordings_of
from unmask.types import Batch, Kind, Target

PROCESSOR = RecordingProcessor(rate=1_000, hop=20, window=30, normalise=False)
ROW = 40


@dataclass(frozen=True)
class Ramps:
    """Recordings whose samples say which recording and which sample they are: 1000 i + n."""

    lengths: tuple[int, ...]
    rate: int = 1_000

    @property
    def cost(self) -> np.ndarray:
        return np.array(self.lengths)

    def read(self, unit: int) -> np.ndarray:
        return (10_000 * (unit + 1) + np.arange(self.lengths[unit])).astype(np.float32)

    def at_rate(self, rate: int) -> Ramps:
        return replace(self, rate=rate)


class Masked(RecordingObjective):
    """Masks spans, and predicts nothing."""

    name = "spans"
    processor = PROCESSOR

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        masked, found = masked_spans(batch, self.processor, 0.65, 10, rng)
        places = torch.from_numpy(np.concatenate(found))
        return masked.with_targets(spans=Target(places, places))


RAMPS = Ramps((400, 25, 900, 90, 2_000, 111, 700, 333, 95, 640))


def rows_of(split: Ramps, steps: int, position: dict | None = None, workers: int = 0, seed: int = 0):
    options = {"length": ROW, "cut": EqualRows(3), "seed": seed, "workers": workers, "alpha": 1.0}
    stream = Masked().stream([split], options).batches(position)
    return [next(stream) for _ in range(steps)]


def recordings_in(batch: Batch) -> list[tuple[int, np.ndarray]]:
    """(frames, samples) of each recording of a batch."""
    assert batch.signal is not None
    parts = np.split(batch.signal.values.numpy(), np.cumsum(batch.signal.lengths.numpy())[:-1])
    return list(zip(recordings_of(batch, PROCESSOR)[1].tolist(), parts, strict=True))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.floats(0.05, 0.95), st.integers(1, 20), st.integers(0, 2**32))
def test_spans_are_runs_of_the_given_length(frames, share, span, seed):
    places = spans(frames, share, span, np.random.default_rng(seed))
    if frames < LEAST:
        assert len(places) == 0
        return
    width = min(span, frames // 4)
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    assert all(len(run) >= width for run in runs)
    assert (np.diff(places) > 0).all()
    assert places[0] >= 0
    assert places[-1] < frames
    most = max(2, int(share * frames / width) + 1) * width
    assert width + 1 <= len(places) <= most


@pytest.mark.parametrize(("share", "expected"), [(0.65, 0.49), (0.80, 0.57)])
def test_the_published_shares_mask_the_published_part(share, expected):
    """wav2vec 2.0, section 4.2: "approximately 49% of all time steps to be masked"; HuBERT masks more."""
    rng = np.random.default_rng(0)
    found = np.mean([len(spans(781, share, 10, rng)) / 781 for _ in range(200)])
    assert found == pytest.approx(expected, abs=0.02)


def test_a_start_is_equally_likely_everywhere():
    rng = np.random.default_rng(0)
    counts = np.zeros(16)
    for _ in range(3_000):
        counts[spans(16, 0.5, 1, rng)] += 1
    assert counts.min() > 0.9 * counts.mean()
    assert counts.max() < 1.1 * counts.mean()


def test_rows_hold_crops_that_begin_at_frames():
    found = set()
    for step in rows_of(RAMPS, 60):
        for batch in step.batches:
            assert batch.tokens.shape == (3, ROW)
            for frames, samples in recordings_in(batch):
                unit, begin = divmod(int(samples[0]), 10_000)
                assert (np.diff(samples) == 1).all()
                assert begin % PROCESSOR.hop == 0
                assert frames == min(PROCESSOR.frames(RAMPS.lengths[unit - 1]), ROW)
                found.add((unit, begin))
    assert {unit for unit, _ in found} == {1, 3, 4, 5, 6, 7, 8, 9, 10}  # the second is too short
    assert len({begin for unit, begin in found if unit == 5}) > 5


def test_a_recording_is_masked_within_itself():
    for step in rows_of(RAMPS, 20):
        for batch in step.batches:
            tokens = batch.tokens.flatten().numpy()
            begins, frames = recordings_of(batch, PROCESSOR)
            inside = np.concatenate([np.arange(a, a + n) for a, n in zip(begins, frames, strict=True)])
            assert set(tokens[inside]) == {Kind.MASK, Kind.SIGNAL}
            assert (np.delete(tokens, inside) == Kind.PADDING).all()
            assert all((tokens[a : a + n] == Kind.MASK).sum() >= 2 for a, n in zip(begins, frames, strict=True))
            np.testing.assert_array_equal(np.flatnonzero(tokens == Kind.MASK), batch.targets["spans"].places)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_continues_exactly(workers):
    whole = rows_of(RAMPS, 8)
    again = rows_of(RAMPS, 5, position=whole[2].position, workers=workers)
    for one, other in zip(whole[3:], again, strict=True):
        assert one.position == other.position
        for mine, theirs in zip(one.batches, other.batches, strict=True):
            assert torch.equal(mine.tokens, theirs.tokens)
            assert torch.equal(mine.signal.values, theirs.signal.values)
    assert not torch.equal(whole[0].batches[0].tokens, rows_of(RAMPS, 1, seed=1)[0].batches[0].tokens)


def test_evaluations_read_the_same_beginnings():
    first, second = (Masked().evaluation_rows([RAMPS], length=ROW, rows=2, limit_rows=3) for _ in range(2))
    assert [len(batch.tokens) for batch in first] == [2, 1]
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(first, second, strict=True))
    assert all(samples[0] % 10_000 == 0 for batch in first for _, samples in recordings_in(batch))
    assert Masked().evaluation_rows([Ramps((25,))], length=ROW, rows=2, limit_rows=3) == []


def test_samples_are_normalised_before_they_are_cropped():
    objective = Masked()
    objective.processor = replace(PROCESSOR, normalise=True)
    quiet = np.concatenate([np.zeros(900), np.sin(np.arange(900.0))]).astype(np.float32)
    example = objective.example(quiet, 10)
    assert np.ptp(example.signal[1]) < 1e-3


def test_data_without_a_recording_of_four_frames_are_refused():
    check_lengths(PROCESSOR, [Ramps((25,)), Ramps((90,))])
    with pytest.raises(UnmaskError, match=r"No recording has 0\.090 s"):
        check_lengths(PROCESSOR, [Ramps((89, 25))])
    with pytest.raises(UnmaskError, match="--rate must be"):
        check_lengths(PROCESSOR.replace(rate=0), [Ramps((90,))])


@pytest.mark.parametrize(("share", "span"), [(0.0, 10), (1.0, 10), (0.5, 0), (float("nan"), 10)])
def test_spans_out_of_range_are_refused(share, span):
    with pytest.raises(UnmaskError):
        check_spans(share, span)

"""A recording along the time axis: envelope, spectrogram and lanes have the numbers of the sound and of its frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.recordings.processor import RecordingProcessor
from unmask.visualize import recordings
from unmask.visualize.numbers import packed, unpacked

RATE = 8_000


def tone(hertz: float, seconds: float = 1.0, size: float = 0.5) -> np.ndarray:
    return (size * np.sin(2 * np.pi * hertz * np.arange(int(seconds * RATE)) / RATE)).astype(np.float32)


def test_samples_are_kept_to_16_bits():
    samples = np.random.default_rng(0).uniform(-1, 1, 1_000).astype(np.float32)
    found = recordings.recording(samples, RATE)
    assert (found["rate"], found["seconds"]) == (RATE, 0.125)
    assert np.abs(unpacked(found["samples"]) - samples).max() <= 2**-16 + 2**-15 * (samples.max() > 1 - 2**-15)
    loud = unpacked(packed(np.array([-3.0, -1.0, 0.25, 1.0, 3.0]), "int16"))
    np.testing.assert_array_equal(loud, np.float32([-1, -1, 0.25, 1 - 2**-15, 1 - 2**-15]))


def test_a_long_recording_is_cut_and_the_view_says_so():
    found = recordings.recording(np.zeros(int(31 * RATE), np.float32), RATE, note="Masked.")
    assert found["seconds"] == 30
    assert found["samples"]["shape"] == [30 * RATE]
    assert found["note"] == "The view shows the first 30 seconds. Masked."
    assert recordings.recording(np.zeros(30 * RATE, np.float32), RATE)["note"] == ""


@given(st.integers(1, 300), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_the_envelope_holds_each_sample(count: int, columns: int, seed: int):
    """Brute force: every sample lies in the range of its column, and both ends of the range are samples of it."""
    samples = np.random.default_rng(seed).normal(size=count).astype(np.float32)
    low, high = recordings.envelope(samples, columns)
    parts = np.array_split(samples, np.linspace(0, count, min(count, columns) + 1).astype(int)[1:-1])
    assert [part.min() for part in parts] == low.tolist()
    assert [part.max() for part in parts] == high.tolist()


@pytest.mark.parametrize("hertz", [300, 1_000, 2_500])
def test_the_loudest_band_of_a_tone_is_at_its_frequency(hertz: int):
    found = recordings.spectrogram(tone(hertz), RATE)
    assert found is not None
    values = unpacked(found["values"])
    assert values.max() == 1
    loudest = np.array(found["hertz"])[values.argmax(1)]
    width = np.diff(found["hertz"])[values.argmax(1)[0] - 1]
    assert np.abs(loudest - hertz).max() <= width  # at most a band away
    assert sorted(found["hertz"]) == found["hertz"]


def test_decibels_are_those_of_the_power():
    """The second half has a hundredth of the amplitude: 40 of 70 decibels below."""
    samples = np.concatenate([tone(1_000), tone(1_000) / 100])
    found = recordings.spectrogram(samples, RATE)
    assert found is not None
    loud = unpacked(found["values"]).max(1)
    seconds = found["begin"] + found["hop"] * np.arange(len(loud))
    assert loud[seconds < 0.9] == pytest.approx(1, abs=1 / 255)
    assert loud[seconds > 1.1] == pytest.approx(1 - 40 / 70, abs=2 / 255)


def test_a_click_is_at_its_time():
    samples = np.zeros(RATE, np.float32)
    samples[int(0.4 * RATE)] = 1
    found = recordings.spectrogram(samples, RATE)
    assert found is not None
    loud = unpacked(found["values"]).max(1).argmax()
    assert found["begin"] + found["hop"] * loud == pytest.approx(0.4, abs=found["hop"])


def test_a_short_recording_has_no_spectrogram():
    assert recordings.recording(np.zeros(100, np.float32), RATE)["spectrogram"] is None


def test_silence_has_a_spectrogram():
    found = recordings.spectrogram(np.zeros(RATE, np.float32), RATE)
    assert found is not None
    assert np.isfinite(unpacked(found["values"])).all()


@pytest.mark.parametrize("hop", [80, 320])
def test_frames_are_drawn_around_the_middle_of_their_window(hop: int):
    processor = RecordingProcessor(rate=16_000, hop=hop, window=400)
    edges = recordings.seconds_of(processor, 5)
    samples = np.zeros(processor.samples(5), np.float32)
    for frame in range(5):
        region = processor.describe(samples, frame)
        assert region is not None
        assert (edges[frame] + edges[frame + 1]) / 2 == pytest.approx((region.begin[0] + region.end[0]) / 2)
        assert edges[frame + 1] - edges[frame] == pytest.approx(hop / 16_000)


def test_equal_frames_are_one_span():
    edges = np.arange(7) / 10
    found = recordings.runs(["", "a", "a", "b", "", "a"], edges, [0, 1, 1, 2, 0, 1])
    assert found == [
        {"begin": 0.1, "end": 0.3, "label": "a", "index": 1},
        {"begin": 0.3, "end": 0.4, "label": "b", "index": 2},
        {"begin": 0.5, "end": 0.6, "label": "a", "index": 1},
    ]
    assert recordings.runs([], np.zeros(1)) == []

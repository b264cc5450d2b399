"""Silence at the ends of recordings, and quiet places where they are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.recordings.activity import HOP, MARGIN, PART, active, cuts, levels, quietest, silent

RATE = 8_000


def noise(seconds: float, level: float, seed: int = 0) -> np.ndarray:
    """White noise of some seconds with this standard deviation."""
    return (level * np.random.default_rng(seed).standard_normal(round(seconds * RATE))).astype(np.float32)


def test_levels_are_decibels_of_full_scale():
    square = np.tile(np.array([0.5, -0.5], np.float32), 2_000)
    assert np.allclose(levels(square, RATE), 20 * np.log10(0.5))
    assert len(levels(square, RATE)) == (len(square) - 200) // 80 + 1
    assert levels(np.zeros(5_000, np.float32), RATE).max() == -100
    assert len(levels(square[:7], RATE)) == 1


@settings(max_examples=40, deadline=None)
@given(
    before=st.floats(0, 2),
    after=st.floats(0, 2),
    background=st.sampled_from([0.0, 1e-4, 3e-3]),
    seed=st.integers(0, 99),
)
def test_trimming_keeps_the_sound_and_a_margin(before, after, background, seed):
    sound = noise(1.0, 0.2, seed)
    samples = np.concatenate([np.zeros(round(before * RATE)), sound, np.zeros(round(after * RATE))])
    samples = (samples + noise(len(samples) / RATE, background, seed + 1)[: len(samples)]).astype(np.float32)
    begin, end = round(before * RATE), round(before * RATE) + len(sound)
    first, last = active(samples, RATE)
    most = round((MARGIN + 0.03) * RATE)
    assert max(0, begin - most) <= first <= begin
    assert end <= last <= min(len(samples), end + most) or last == len(samples)
    again = active(samples[first:last], RATE)
    assert again[1] - again[0] >= len(sound)


def test_quiet_recordings_stay_whole():
    for samples in (np.zeros(4_000, np.float32), noise(0.5, 1e-4)):
        assert silent(samples, RATE)
        assert active(samples, RATE) == (0, len(samples))
    assert not silent(noise(0.5, 0.01), RATE)
    steady = noise(2, 0.1)  # nothing stands out, so nothing is cut
    assert active(steady, RATE) == (0, len(steady))


@pytest.mark.parametrize("place", [0.2, 1.0, 1.83])
def test_the_quietest_place_is_the_middle_of_a_pause(place):
    samples = noise(2, 0.1)
    samples[round((place - 0.06) * RATE) : round((place + 0.06) * RATE)] *= 0.01
    found = quietest(samples, RATE, round(0.1 * RATE), round(1.9 * RATE))
    assert abs(found / RATE - place) <= 0.02 + HOP


@settings(max_examples=60, deadline=None)
@given(seconds=st.floats(0.01, 20), longest=st.floats(1, 5), seed=st.integers(0, 9))
def test_parts_cover_a_recording_and_are_neither_long_nor_short(seconds, longest, seed):
    samples = noise(seconds, 0.1, seed)
    found = cuts(samples, RATE, longest)
    begins, ends = zip(*found, strict=True)
    assert begins == (0, *ends[:-1])
    assert ends[-1] == len(samples)
    lengths = np.subtract(ends, begins)
    assert lengths.max() <= longest * RATE
    if len(found) > 1:
        assert lengths.min() >= int(int(longest * RATE) * PART)


def test_a_recording_is_cut_in_its_pauses():
    samples = noise(11.5, 0.1)
    for pause in (2.4, 4.1, 6.6, 9.0):
        samples[round((pause - 0.1) * RATE) : round((pause + 0.1) * RATE)] *= 0.01
    found = cuts(samples, RATE, 3.0)
    edges = [end / RATE for _, end in found[:-1]]
    assert np.allclose(edges, [2.4, 4.1, 6.6, 9.0], atol=0.06)

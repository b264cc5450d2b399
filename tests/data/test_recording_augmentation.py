"""Augmentation of recordings: each change is what it is called, depends on the generator alone, and keeps its range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unmask.data.recordings.augmentation import Crop, Gain, Noise, Shift, SilencedBands, Speed
from unmask.errors import UnmaskError

RATE = 8_000
EVERY = (Speed(0.1), Gain(6.0), Shift(40), Crop(0.5), Noise(), SilencedBands(2, 0.2))
samples = arrays(np.float32, st.integers(1, 300), elements=st.floats(-1, 1, width=32))
seeds = st.integers(0, 99)


def tone(hertz: float, seconds: float = 0.5, loud: float = 0.3) -> np.ndarray:
    return (loud * np.sin(2 * np.pi * hertz * np.arange(int(RATE * seconds)) / RATE)).astype(np.float32)


@pytest.mark.parametrize("part", EVERY)
@given(before=samples, seed=seeds)
def test_a_change_depends_on_the_generator_alone(part, before, seed):
    given_N = before.copy()
    one, two = (part(before, np.random.default_rng(seed)) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(before, given_N)  # the recording is kept for other epochs
    assert one.dtype == np.float32
    assert one.ndim == 1
    assert len(one)
    assert np.abs(one).max() <= 1


@pytest.mark.parametrize("part", [Speed(0.0), Gain(0.0), Shift(0), Crop(1.0), SilencedBands(0)])
@given(before=samples, seed=seeds)
def test_nothing_is_changed_by_nothing(part, before, seed):
    np.testing.assert_allclose(part(before, np.random.default_rng(seed)), before, atol=1e-6)


@given(seed=seeds)
def test_a_faster_tone_is_shorter_and_higher(seed):
    before = tone(500)
    after = Speed(0.2)(before, np.random.default_rng(seed))
    factor = len(before) / len(after)
    assert min(abs(factor - one) for one in (0.8, 1.0, 1.2)) < 1e-3
    spectrum = np.abs(np.fft.rfft(after * np.hanning(len(after))))
    assert spectrum.argmax() * RATE / len(after) == pytest.approx(500 * factor, abs=RATE / len(after))


def test_all_speeds_are_drawn():
    rng = np.random.default_rng(0)
    assert {len(Speed(0.1)(tone(500), rng)) for _ in range(30)} == {3_637, 4_000, 4_445}


@given(seed=seeds, most=st.floats(0, 20))
def test_gain_is_in_decibels(seed, most):
    before = tone(440, loud=0.05)
    after = Gain(most)(before, np.random.default_rng(seed))
    decibels = 20 * np.log10(np.sqrt((after**2).mean() / (before**2).mean()))
    assert abs(decibels) <= most + 1e-3


@given(before=samples, most=st.integers(0, 400), seed=seeds)
def test_a_shift_moves_samples(before, most, seed):
    after = Shift(most)(before, np.random.default_rng(seed))
    by = int(np.random.default_rng(seed).integers(-most, most + 1))
    N = len(before)
    padded = np.concatenate([np.zeros(most, np.float32), before, np.zeros(most, np.float32)])
    np.testing.assert_array_equal(after, padded[most - by : most - by + N])


@given(N=st.integers(1, 300), least=st.floats(0.01, 1), seed=seeds)
def test_a_crop_is_a_part_of_the_recording(N, least, seed):
    before = np.arange(N, dtype=np.float32)
    after = Crop(least)(before, np.random.default_rng(seed))
    np.testing.assert_array_equal(after, before[int(after[0]) :][: len(after)])
    assert len(after) >= max(1, round(least * N) - 1)


@given(seed=seeds, low=st.floats(0, 30))
def test_noise_has_the_power_that_is_asked_for(seed, low):
    before = tone(440, 2.0, loud=0.05)
    noise = Noise((low, low))(before, np.random.default_rng(seed)) - before
    found = 10 * np.log10((before.astype(np.float64) ** 2).mean() / (noise.astype(np.float64) ** 2).mean())
    assert found == pytest.approx(low, abs=0.3)
    assert not Noise()(np.zeros(50, np.float32), np.random.default_rng(seed)).any()


@given(seed=seeds)
def test_a_silenced_band_loses_its_frequencies_and_no_others(seed):
    before = np.random.default_rng(7).standard_normal(1_000).astype(np.float32) * 0.1
    after = SilencedBands(1, 0.3)(before, np.random.default_rng(seed))
    one, two = (np.fft.rfft(x.astype(np.float64)) for x in (before, after))
    lost = np.abs(two) < 1e-4
    kept = np.abs(one - two) < 1e-4
    assert (lost | kept).all()
    assert lost.sum() <= 0.3 * len(one) + 1
    places = np.flatnonzero(lost)
    assert not len(places) or len(places) == places[-1] - places[0] + 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Speed(1.0), "change of the speed"),
        (lambda: Crop(0.0), "smallest crop"),
        (lambda: SilencedBands(-1), "silenced bands"),
    ],
)
def test_values_out_of_range_are_refused(make, said):
    with pytest.raises(UnmaskError, match=said):
        make()

"""R peaks of heartbeats whose places are known, and the features of beats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unmask.data.signals.beat_features import FEATURES, features
from unmask.data.signals.beats import r_peaks

SAMPLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "mitbih-sample" / "100"
BEATS = {*range(1, 14), 25, 30, 31, 34, 35, 38, 41}  # codes of annotations that mark a beat
WAVES = ((-0.18, 0.1, 0.025), (-0.03, -0.12, 0.01), (0.0, 1.0, 0.012), (0.03, -0.2, 0.012), (0.25, 0.3, 0.05))


def heart(seconds, rate, *, intervals=0.8, noise=0.02, seed=0, waves=WAVES):
    """A lead [N] of beats that are sums of Gaussians, and the samples of their R peaks."""
    rng = np.random.default_rng(seed)
    times = [0.5]
    while times[-1] < seconds - 2:
        times.append(times[-1] + (intervals if isinstance(intervals, float) else rng.uniform(*intervals)))
    t = np.arange(round(seconds * rate)) / rate
    lead = noise * rng.normal(size=len(t)) + 0.3 * np.sin(2 * np.pi * 0.2 * t)
    for time in times:
        lead += sum(height * np.exp(-((t - time - at) ** 2) / (2 * width**2)) for at, height, width in waves)
    return lead, np.round(np.array(times) * rate)


@pytest.mark.parametrize("rate", [128, 300, 500])
@pytest.mark.parametrize("intervals", [0.4, 0.8, 1.5, (0.35, 1.4)])
@pytest.mark.parametrize("sign", [1, -1])
def test_every_beat_is_found_at_its_peak(rate, intervals, sign):
    lead, true = heart(20, rate, intervals=intervals)
    found = r_peaks(5 * sign * lead + 3, rate)
    assert len(found) == len(true)
    assert np.abs(found - true).max() <= 0.02 * rate


def test_beats_without_signal():
    for lead in (np.zeros(3_000), np.full(3_000, 7.0), np.zeros(10), np.ones(1), np.zeros(0)):
        assert len(r_peaks(lead, 300)) == 0
    assert features(np.zeros(3_000), 300).tolist().count(0) >= len(FEATURES) - 2
    assert np.isfinite(features(np.random.default_rng(0).normal(size=400), 300)).all()


def test_features_of_intervals_are_those_of_the_beats():
    lead, true = heart(30, 300, intervals=(0.4, 1.2), noise=0.01)
    found = dict(zip(FEATURES, features(lead, 300), strict=True))
    seconds = np.diff(true) / 300
    assert found["mean interval"] == pytest.approx(seconds.mean(), abs=0.01)
    assert found["deviation of intervals"] == pytest.approx(seconds.std(), abs=0.01)
    assert found["rmssd"] == pytest.approx(np.sqrt(np.mean(np.diff(seconds) ** 2)), abs=0.01)
    assert found["beats a second"] == pytest.approx(len(true) / 30)


def test_features_tell_atrial_fibrillation_and_missing_p_waves():
    names = np.array(FEATURES)
    regular, _ = heart(30, 300)
    irregular, _ = heart(30, 300, intervals=(0.4, 1.2), waves=WAVES[1:])
    one, other = (dict(zip(names, features(lead, 300), strict=True)) for lead in (regular, irregular))
    assert other["variation of intervals"] > 5 * one["variation of intervals"]
    assert other["entropy of changes"] > one["entropy of changes"] + 0.5
    assert other["P wave"] < one["P wave"]


def test_only_the_unit_of_time_matters():
    lead, _ = heart(30, 300)
    np.testing.assert_allclose(features(lead, 300), features(1_000 * lead + 50, 300), rtol=1e-6, atol=1e-9)


@pytest.mark.skipif(not SAMPLE.with_suffix(".dat").exists(), reason="the record of MIT-BIH is not here")
def test_beats_of_a_record_of_mit_bih():
    packed = np.fromfile(SAMPLE.with_suffix(".dat"), np.uint8).reshape(-1, 3).astype(int)  # format 212
    lead = packed[:, 0] + ((packed[:, 1] & 15) << 8)
    lead = np.where(lead > 2_047, lead - 4_096, lead)
    words, time, true, i = np.fromfile(SAMPLE.with_suffix(".atr"), "<u2").astype(int), 0, [], 0
    while words[i]:
        code, step = words[i] >> 10, words[i] & 1_023
        if code in (59, 63):
            i += 3 if code == 59 else 1 + (step + 1) // 2
            continue
        time += step if code < 50 else 0
        true += [time] if code in BEATS else []
        i += 1
    found = r_peaks(lead, 360)
    assert len(true) == 2_273
    sensitive = np.mean([np.abs(found - t).min() <= 54 for t in true])  # within 150 ms, as AAMI EC57
    precise = np.mean([np.abs(np.array(true) - t).min() <= 54 for t in found])
    assert min(sensitive, precise) > 0.999

"""Log-mel spectra, MFCC and deltas, compared with transformers, scipy and sums written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st
from transformers import audio_utils

from unmask.data.recordings.features import LogMel, Mfcc, cosines, delta, frames, mel_filters
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError

SIZES = [(16_000, 160, 400), (16_000, 320, 400), (8_000, 80, 200), (8_000, 160, 200), (8_000, 160, 247)]


def _sound(seconds: float, rate: int, seed: int = 0) -> np.ndarray:
    rng, time = np.random.default_rng(seed), np.arange(int(seconds * rate)) / rate
    return (0.3 * np.sin(2 * np.pi * (200 + 300 * time) * time) + 0.01 * rng.normal(size=len(time))).astype(np.float32)


def _reference(samples: np.ndarray, rate: int, hop: int, window: int, size: int, bands: int) -> np.ndarray:
    filters = audio_utils.mel_filter_bank(
        size // 2 + 1, bands, 20.0, rate / 2, rate, mel_scale="kaldi", triangularize_in_mel_space=True
    )
    return audio_utils.spectrogram(
        samples,
        audio_utils.window_function(window, "povey", periodic=False),
        frame_length=window,
        hop_length=hop,
        fft_length=size,
        power=2.0,
        center=False,
        preemphasis=0.97,
        remove_dc_offset=True,
        mel_filters=filters,
        mel_floor=1e-10,
        log_mel="log",
    ).T


@pytest.mark.parametrize(("rate", "hop", "window"), SIZES)
def test_log_mel_spectra_equal_those_of_transformers(rate: int, hop: int, window: int) -> None:
    samples, features = _sound(0.7, rate), LogMel(rate=rate, hop=hop, window=window, bands=23)
    expected = _reference(samples, rate, hop, window, features.size, 23)
    np.testing.assert_allclose(features(samples), expected, atol=2e-4)


def test_mel_filters_equal_those_of_transformers() -> None:
    expected = audio_utils.mel_filter_bank(
        257, 40, 20.0, 8_000.0, 16_000, mel_scale="kaldi", triangularize_in_mel_space=True
    )
    np.testing.assert_allclose(mel_filters(16_000, 512, 40), expected, atol=1e-12)


@pytest.mark.parametrize(("rate", "hop", "window"), SIZES)
def test_mfcc_are_the_lifted_cosine_transform_of_the_spectra_of_transformers(rate: int, hop: int, window: int) -> None:
    samples, features = _sound(0.7, rate, 1), Mfcc(rate=rate, hop=hop, window=window, deltas=0)
    spectra = _reference(samples, rate, hop, window, features.size, 23)
    expected = scipy.fft.dct(spectra, type=2, norm="ortho", axis=1)[:, :13]
    expected = expected * (1 + 11 * np.sin(np.pi * np.arange(13) / 22))
    np.testing.assert_allclose(features(samples), expected, atol=2e-3)


def test_cosines_are_orthonormal_and_equal_those_of_scipy() -> None:
    np.testing.assert_allclose(cosines(23, 23), scipy.fft.dct(np.eye(23), type=2, norm="ortho", axis=1), atol=1e-12)


def test_a_delta_is_the_slope_of_a_line_through_five_frames() -> None:
    values = np.random.default_rng(0).normal(size=(12, 3))
    found = delta(values)
    for t in range(2, 10):  # least squares over t - 2 ... t + 2
        expected = np.polyfit(np.arange(-2, 3), values[t - 2 : t + 3], 1)[0]
        np.testing.assert_allclose(found[t], expected, atol=1e-12)
    padded = np.concatenate([values[:1], values[:1], values[:3]])
    np.testing.assert_allclose(found[0], np.polyfit(np.arange(-2, 3), padded, 1)[0], atol=1e-12)


def test_39_numbers_are_cepstra_their_change_and_the_change_of_that() -> None:
    samples, features = _sound(0.3, 16_000), Mfcc()
    found, plain = features(samples), Mfcc(deltas=0)(samples)
    assert found.shape[1] == features.width == 39
    np.testing.assert_array_equal(found[:, :13], plain)
    np.testing.assert_allclose(found[:, 13:26], delta(plain), atol=1e-4)
    np.testing.assert_allclose(found[:, 26:], delta(delta(plain)), atol=1e-4)


@given(st.integers(0, 900), st.integers(1, 80), st.integers(2, 300))
def test_frames_are_those_of_the_processor_of_a_model(samples: int, hop: int, window: int) -> None:
    processor = RecordingProcessor(rate=8_000, hop=hop, window=window)
    features = LogMel.of(processor, bands=4)
    assert features(_sound(1.0, 8_000)[:samples]).shape == (processor.frames(samples), 4)


def test_frames_overlap_and_the_rest_is_left_out() -> None:
    np.testing.assert_array_equal(frames(np.arange(8), 3, 2), [[0, 1, 2], [2, 3, 4], [4, 5, 6]])


def test_int16_samples_are_fractions_and_long_recordings_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = (_sound(0.5, 16_000) * 2**15).astype(np.int16)
    whole = Mfcc()(samples)
    monkeypatch.setattr("unmask.data.recordings.features.AT_ONCE", 7)
    np.testing.assert_allclose(Mfcc()(samples.astype(np.float32) / 2**15), whole, atol=1e-4)


def test_a_window_too_short_for_the_bands_is_refused_in_one_sentence() -> None:
    with pytest.raises(UnmaskError, match="too short for 200 mel bands"):
        LogMel(rate=8_000, hop=80, window=100, bands=200)
    with pytest.raises(UnmaskError, match="at least 1"):
        LogMel(hop=0)
    with pytest.raises(UnmaskError, match="1 to 23"):
        Mfcc(cepstra=24)

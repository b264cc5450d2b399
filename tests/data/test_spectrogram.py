"""Small pictures of recordings: PNG files that other readers decode exactly, and spectrograms at the right places."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.files.png import png, size_of
from unmask.data.pictures.thumbnails import BYTES, thumbnail
from unmask.data.recordings.spectrogram import COLUMNS, HIDDEN, ROWS, picture

Image = pytest.importorskip("PIL.Image")
RATE = 8_000


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3]), st.sampled_from([2, 15, 256]), st.integers(0, 99))
def test_a_png_is_read_exactly(H: int, W: int, C: int, colours: int, seed: int):
    pixels = np.random.default_rng(seed).integers(0, colours, (H, W, C)).astype(np.uint8)
    file = png(pixels)
    read = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))
    assert (read == np.broadcast_to(pixels, (H, W, 3))).all()
    assert size_of(file) == (H, W)
    assert size_of(b"\xff\xd8" + file) == (0, 0)


def test_a_spectrogram_of_noise_is_a_small_file():
    """The worst case: nothing repeats. Pillow is not asked, which a machine for recordings may not have."""
    noise = np.random.default_rng(0).normal(0, 0.1, 4 * RATE).astype(np.float32)
    pixels = picture(noise, RATE, [(1.0, 1.1)])
    assert thumbnail(pixels) == png(pixels)
    assert len(png(pixels)) <= BYTES


@pytest.mark.parametrize("seconds", [0.5, 1.0, 10.0])
def test_a_tone_is_at_its_time_and_frequency(seconds: float):
    """A tone in the second half, of a quarter of the highest frequency: on the mel scale, above the middle."""
    time = np.arange(int(seconds * RATE)) / RATE
    tone = (np.sin(2 * np.pi * 1_000 * time) * (time >= seconds / 2)).astype(np.float32)
    pixels = picture(tone + 1e-4, RATE)
    assert pixels.shape == (ROWS, COLUMNS, 3)
    dark_HW = 255 - pixels[..., 0].astype(int)
    loud_W = dark_HW.max(0)
    slack = 0.03 / seconds * COLUMNS + 1
    assert loud_W[: int(COLUMNS / 2 - slack)].max() < 130 < loud_W[int(COLUMNS / 2 + slack) :].min()
    band = np.log1p(1_000 / 700) / np.log1p(4_000 / 700) * (ROWS + 1) - 1  # the middle of band m is edge m + 1
    assert dark_HW[:, -3].argmax() == pytest.approx(ROWS - 1 - band, abs=1)


def test_hidden_parts_are_covered():
    noise = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)
    covered_W = (picture(noise, RATE, [(0.25, 0.5), (0.9, 2.0)]) == HIDDEN).all((0, 2))
    assert 0.33 < covered_W.mean() < 0.37
    assert (covered_W[55:95].all(), covered_W[:48].any(), covered_W[105:175].any()) == (True, False, False)


def test_a_recording_shorter_than_a_window_is_white():
    assert (picture(np.zeros(50, np.float32), RATE) == 255).all()

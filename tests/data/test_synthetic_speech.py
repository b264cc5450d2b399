"""Synthetic speech: sounds have the resonances of their letters, transcripts can be learned, the seed decides all."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.io.wavfile
import scipy.linalg
import scipy.signal

from unmask.data.recordings import synthetic
from unmask.data.recordings.synthetic import LETTERS, WORDS, Voice, say, spoken, write
from unmask.errors import UnmaskError

RATE = 16_000
VOICE = Voice(pitch=110, tract=1.0, pace=2.5, breath=0.02, tilt=0.5)


def formants(samples: np.ndarray) -> np.ndarray:
    """Frequencies of narrow resonances by linear prediction of order 10, in ascending order."""
    x = scipy.signal.decimate(samples.astype(float), 2)[200:]
    x = scipy.signal.lfilter([1], [1, -0.9], x) * np.hamming(len(x))  # as before the lips
    correlation = scipy.signal.correlate(x, x)[len(x) - 1 :][:11]
    poles = np.roots([1, *-scipy.linalg.solve_toeplitz(correlation[:-1], correlation[1:])])
    poles = poles[poles.imag > 0]
    narrow = -np.log(np.abs(poles)) * 8_000 / np.pi < 500
    return np.sort(np.angle(poles[narrow])) * 8_000 / (2 * np.pi)


@pytest.mark.parametrize(("vowel", "expected"), [("a", 730), ("e", 530), ("i", 270), ("o", 570), ("u", 300)])
def test_vowels_have_the_formants_that_were_measured(vowel, expected):
    """Peterson and Barney 1952, table II, men."""
    second = {"a": 1090, "e": 1840, "i": 2290, "o": 840, "u": 870}[vowel]
    samples = say(vowel, replace(VOICE, breath=0.0), RATE, np.random.default_rng(1))
    loud = scipy.signal.convolve(np.abs(samples), np.ones(800) / 800, mode="same")
    found = formants(samples[loud > 0.7 * loud.max()])
    for formant in (expected, second):
        assert np.abs(found / formant - 1).min() < 0.12, found


def test_noise_of_s_is_higher_than_that_of_vowels():
    sa = say("sa", VOICE, RATE, np.random.default_rng(0))
    frequencies, _, power = scipy.signal.spectrogram(sa, RATE, nperseg=400)
    share = power[frequencies > 3_000].sum(0) / power.sum(0)
    loudest = power.sum(0).argmax()
    assert share[: len(share) // 2].max() > 0.8
    assert share[loudest] < 0.2


def test_letters_have_their_times():
    """The noise of an s is where its time says, and the times of a word follow each other."""
    samples, said = spoken("asa mala", VOICE, RATE, np.random.default_rng(2))
    assert np.array_equal(samples, say("asa mala", VOICE, RATE, np.random.default_rng(2)))
    assert [one.letter for one in said] == list("asamala")
    for word in (said[:3], said[3:]):
        assert all(one.end == other.begin for one, other in itertools.pairwise(word))
    assert said[2].end <= said[3].begin
    frequencies, seconds, power = scipy.signal.spectrogram(samples, RATE, nperseg=400)
    high = power[frequencies > 3_000].sum(0) / power.sum(0)
    noisy = seconds[(high > 0.8) & (power.sum(0) > 0.01 * power.sum(0).max())]
    assert len(noisy)
    assert said[1].begin - 0.02 < noisy.min() < noisy.max() < said[1].end + 0.02


def test_every_word_has_sounds_and_every_letter_a_word():
    assert set("".join(WORDS)) == set(LETTERS)
    assert len(set(WORDS)) == len(WORDS)
    with pytest.raises(UnmaskError, match="There is no sound for 'x' in 'box'"):
        say("box", VOICE, RATE, np.random.default_rng(0))


@pytest.mark.parametrize("rate", [8_000, 16_000])
def test_the_generator_decides_the_samples(rate):
    one, two, other = (say("bada sefo", VOICE, rate, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(one, two)
    assert len(one) != len(other) or not np.array_equal(one, other)
    assert one.dtype == np.float32
    assert np.abs(one).max() <= 1
    fast = say("bada sefo", replace(VOICE, pace=1.0), rate, np.random.default_rng(0))
    assert 2 < len(one) / len(fast) < 3


def test_the_corpus_has_tables_without_speakers_in_common(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "WORDS", WORDS[:3])
    monkeypatch.setattr(synthetic, "SENTENCES", 5)
    monkeypatch.setattr(synthetic, "TAKES", 1)
    for name in ("one", "two"):
        write(tmp_path / name, rate=8_000, speakers=6)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    assert len([path for path in files if path.suffix == ".wav"]) == 6 * (3 * synthetic.TAKES + 5)
    assert all((tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes() for path in files)
    rate, samples = scipy.io.wavfile.read(tmp_path / "one" / "wav" / "speaker01" / "000.wav")
    assert (rate, samples.dtype) == (8_000, np.int16)
    for task, column in (("words", "speaker"), ("sentences", "speaker"), ("phones", "speaker"), ("speakers", "label")):
        found = {}
        for part in ("train", "dev", "test"):
            header, *rows = [
                line.split("\t") for line in (tmp_path / "one" / f"{task}-{part}.tsv").read_text().split("\n")[:-1]
            ]
            assert all((tmp_path / "one" / row[header.index("path")]).is_file() for row in rows)
            found[part] = {row[header.index(column)] for row in rows}
        assert bool(found["train"] & found["test"]) == (task == "speakers")
    before = (tmp_path / "one").stat().st_mtime_ns
    write(tmp_path / "one")  # it is there
    assert (tmp_path / "one").stat().st_mtime_ns == before
    with pytest.raises(UnmaskError, match="needs at least 6 speakers, not 1"):
        write(tmp_path / "three", speakers=1)

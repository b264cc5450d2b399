"""A spoken corpus that is made here: words of vowels and consonants, by several voices, with their transcripts.

The speech is synthesised from formants (Klatt 1980, Software for a cascade/parallel formant synthesizer): pulses of the
voice or noise pass through resonances, which move from sound to sound. A letter is one sound, so that a transcript can
be learned from the sound alone. Shapes: N samples, F control frames of FRAME seconds, one for each change of a filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from unmask.data.recordings.encoding import write_wav
from unmask.errors import UnmaskError
from unmask.files import atomic_folder, write_tsv

FRAME = 0.005  # seconds
RAMP = 0.02  # seconds in which loudness changes
GLIDE = 0.06  # seconds in which formants move from one sound to the next
UPPER = (3_500.0, 4_500.0)  # two more formants, the same for all sounds, in Hz
BANDWIDTHS = (80.0, 100.0, 140.0, 250.0, 350.0)  # of the five formants, in Hz
NOISE = 0.12  # loudness of the noise beside that of the voice
PAUSE, EDGE = 0.12, 0.15  # mean seconds between words, and before and after them
SPEAKERS, TAKES, SENTENCES = 12, 2, 20  # voices; recordings of each word, and sentences, by each of them
SPEAKER_PARTS = ("train", "train", "train", "train", "dev", "test")  # of six speakers, for words and sentences
SENTENCE_PARTS = ("train", "train", "train", "dev", "test")  # of five sentences of a speaker, for speakers


class Sound(NamedTuple):
    """A sound of a letter.

    seconds   its mean length
    formants  frequencies of three resonances of an average voice, in Hz
    voice     loudness of the voice
    noise     loudness of the noise, which passes through a resonance of its own: its frequency and bandwidth
    """

    seconds: float
    formants: tuple[float, float, float]
    voice: float = 0.0
    noise: float = 0.0
    frequency: float = 2_000.0
    bandwidth: float = 1_000.0


class Said(NamedTuple):
    """A letter of some speech, and the seconds of its sounds. At the edges, its formants are those of a glide to its
    neighbours."""

    letter: str
    begin: float
    end: float


class Stop(NamedTuple):
    """A stop consonant: the mouth is closed, then opens with a burst of noise, and breath if it has no voice."""

    formants: tuple[float, float, float]
    frequency: float
    voiced: bool

    @property
    def sounds(self) -> list[Sound]:
        noise = (self.frequency, 700.0)
        burst = Sound(0.012, self.formants, 0.1, 0.5, *noise)
        if self.voiced:
            return [Sound(0.055, (220.0, *self.formants[1:]), 0.08), burst]
        return [Sound(0.06, self.formants), burst, Sound(0.03, self.formants, 0.0, 0.12, 1_500.0, 2_500.0)]


# Formants: Peterson and Barney 1952, table II (vowels); Stevens 1998, Acoustic Phonetics, chapters 7 to 9 (consonants).
LETTERS: dict[str, list[Sound]] = {
    "a": [Sound(0.13, (730, 1_090, 2_440), 1.0)],
    "e": [Sound(0.12, (530, 1_840, 2_480), 0.9)],
    "i": [Sound(0.11, (270, 2_290, 3_010), 0.7)],
    "o": [Sound(0.13, (570, 840, 2_410), 0.9)],
    "u": [Sound(0.11, (300, 870, 2_240), 0.7)],
    "m": [Sound(0.07, (250, 1_000, 2_200), 0.4)],
    "n": [Sound(0.07, (250, 1_600, 2_600), 0.4)],
    "l": [Sound(0.06, (360, 1_300, 2_700), 0.5)],
    "r": [Sound(0.06, (400, 1_150, 1_600), 0.5)],
    "s": [Sound(0.1, (320, 1_700, 2_600), 0.0, 0.35, 5_500, 1_200)],
    "f": [Sound(0.09, (300, 1_200, 2_300), 0.0, 0.25, 3_000, 5_000)],
    "p": Stop((350, 900, 2_200), 800, False).sounds,
    "t": Stop((350, 1_750, 2_650), 3_800, False).sounds,
    "k": Stop((350, 1_900, 2_400), 1_800, False).sounds,
    "b": Stop((300, 900, 2_200), 700, True).sounds,
    "d": Stop((300, 1_750, 2_650), 3_400, True).sounds,
}
_STOPS_AND_NASALS = ("bada", "pada", "bata", "pata", "tipe", "tibe", "dipe", "dibe", "mina", "nima", "mima", "nina")
_OTHERS = ("sefo", "sifo", "sefu", "fesu", "kolu", "koru", "kulo", "kuro", "lami", "rami", "lani", "rani")
WORDS = _STOPS_AND_NASALS + _OTHERS
"""Words that the voices say: each differs from some others by one sound."""


@dataclass(frozen=True)
class Voice:
    """A speaker.

    pitch    mean frequency of the voice, in Hz
    tract    factor of all formants: a short vocal tract has higher ones
    pace     factor of all lengths
    breath   loudness of noise beside the voice
    tilt     coefficient of the low-pass filter of the voice, 0 to 1: a soft voice has less energy at high frequencies
    """

    pitch: float
    tract: float
    pace: float
    breath: float
    tilt: float

    @classmethod
    def draw(cls, rng: Generator) -> Voice:
        """A random speaker; high voices have shorter tracts."""
        height = rng.uniform()
        return cls(
            pitch=95 * 2.4 ** (0.75 * height + 0.25 * rng.uniform()),
            tract=0.92 + 0.24 * height + rng.uniform(-0.04, 0.04),
            pace=rng.uniform(0.8, 1.25),
            breath=rng.uniform(0.01, 0.06),
            tilt=rng.uniform(0.3, 0.8),
        )


def say(text: str, voice: Voice, rate: int, rng: Generator) -> np.ndarray:
    """Some words as samples [N] float32 in [-1, 1]: lengths, pitch, loudness and background noise differ at random.

    Raises UnmaskError for a letter without a sound.
    """
    return spoken(text, voice, rate, rng)[0]


def spoken(text: str, voice: Voice, rate: int, rng: Generator) -> tuple[np.ndarray, list[Said]]:
    """As `say`, with the times of the letters."""
    sounds, letters = [_silence(EDGE * rng.uniform(0.3, 1.7))], list[tuple[str, int, int]]()
    for number, word in enumerate(text.split()):
        if number and rng.uniform() < 0.8:  # else the words run into each other
            sounds.append(_silence(PAUSE * rng.uniform(0.2, 2.0)))
        for letter in word:
            if letter not in LETTERS:
                raise UnmaskError(f"There is no sound for {letter!r} in {text!r}; known: {''.join(LETTERS)}.")
            letters.append((letter, len(sounds), len(sounds) + len(LETTERS[letter])))
            sounds += LETTERS[letter]
    sounds.append(Sound(EDGE * rng.uniform(0.3, 1.7), (500, 1_500, 2_500)))
    lengths = (
        np.array([sound.seconds for sound in sounds]) * voice.pace * rng.normal(1, 0.12, len(sounds)).clip(0.6, 1.4)
    )
    frames = np.maximum(1, np.rint(np.cumsum(lengths) / FRAME)).astype(int)
    counts = np.maximum(1, np.diff(frames, prepend=0))
    found = _synthesise(_tracks(sounds, counts, voice, rng), voice, rate, rng)
    level = 10 ** (rng.uniform(-26, -14) / 20) / (np.sqrt(np.mean(np.square(found))) + 1e-9)
    noise = rng.standard_normal(len(found)) * 10 ** (rng.uniform(-58, -36) / 20)
    edges = np.concatenate([[0], np.cumsum(counts)]) * (round(FRAME * rate) / rate)
    said = [Said(letter, float(edges[first]), float(edges[last])) for letter, first, last in letters]
    return np.clip(found * level + noise, -1, 1).astype(np.float32), said


def _silence(seconds: float) -> Sound:
    return Sound(seconds, (500, 1_500, 2_500))


def _tracks(sounds: Sequence[Sound], counts: np.ndarray, voice: Voice, rng: Generator) -> dict[str, np.ndarray]:
    """The controls of the synthesiser at each frame [F], formants [F, 3]; `counts` are the frames of each sound."""
    owner = np.repeat(np.arange(len(sounds)), counts)
    formants = np.array([sound.formants for sound in sounds]) * voice.tract * rng.normal(1, 0.02, (len(sounds), 3))
    noise = np.array([(sound.frequency, sound.bandwidth) for sound in sounds])
    time = np.arange(len(owner)) / len(owner)
    drift = np.cumsum(rng.standard_normal(len(owner))) * 0.004
    pitch = voice.pitch * (1.12 - 0.24 * time + 0.06 * np.sin(2 * np.pi * (time * len(sounds) / 5 + rng.uniform())))
    return {
        "formants": np.stack([_smooth(track, GLIDE) for track in formants[owner].T], 1),
        "voice": _smooth(np.array([sound.voice for sound in sounds])[owner], RAMP),
        "noise": _smooth(np.array([sound.noise for sound in sounds])[owner], RAMP / 2),
        "resonance": noise[owner],
        "pitch": pitch * np.exp(drift - drift.mean()),
    }


def _smooth(track: np.ndarray, seconds: float) -> np.ndarray:
    """The moving average of a track [F] over some seconds."""
    width = max(1, round(seconds / FRAME))
    padded = np.pad(track, (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.full(width, 1 / width), mode="valid")


def _synthesise(tracks: dict[str, np.ndarray], voice: Voice, rate: int, rng: Generator) -> np.ndarray:
    """The samples [N] of some controls: sources through resonances whose coefficients change at each frame."""
    from scipy.signal import lfilter

    hop = round(FRAME * rate)
    N = hop * len(tracks["voice"])
    grid = (np.arange(N) + 0.5) / hop - 0.5

    def at_samples(track: np.ndarray) -> np.ndarray:
        return np.interp(grid, np.arange(len(track)), track)

    phase = np.cumsum(at_samples(tracks["pitch"]) / rate)
    pulses = np.diff(np.floor(phase), prepend=0.0) * np.sqrt(rate / voice.pitch)
    glottal = lfilter([1 - voice.tilt], [1, -voice.tilt], pulses) + voice.breath * rng.standard_normal(N)
    formants = np.concatenate([tracks["formants"], np.full((len(tracks["voice"]), 2), UPPER) * voice.tract], 1)
    spoken = _resonate(glottal * at_samples(tracks["voice"]), formants, np.array(BANDWIDTHS), rate)
    frequency, width = tracks["resonance"].T[..., None]
    frication = _resonate(rng.standard_normal(N) * at_samples(tracks["noise"]), frequency * voice.tract, width, rate)
    frication = lfilter([1, -1], [1], frication)  # a constriction has no pressure at 0 Hz
    return lfilter([1, -1], [1], spoken + NOISE * frication)  # as sound leaves the lips


def _resonate(samples: np.ndarray, frequencies: np.ndarray, widths: np.ndarray, rate: int) -> np.ndarray:
    """The samples [N] through resonances of unit gain at 0 Hz (Klatt 1980, equation 1), one after another, whose
    frequencies [F, K] and bandwidths [K] or [F, K] change at each frame; one beyond the rate has no effect."""
    from scipy.signal import sosfilt

    hop, heard = len(samples) // len(frequencies), frequencies < 0.45 * rate
    c = -np.exp(-2 * np.pi * widths / rate) * heard
    b = 2 * np.exp(-np.pi * widths / rate) * np.cos(2 * np.pi * frequencies / rate) * heard
    zero = np.zeros_like(b)
    sections = np.stack([1 - b - c, zero, zero, zero + 1, -b, -c], -1)
    state, parts = np.zeros((frequencies.shape[1], 2)), []
    for number, section in enumerate(sections):
        part, state = sosfilt(section, samples[number * hop : (number + 1) * hop], zi=state)
        parts.append(part)
    return np.concatenate(parts)


def write(folder: Path, *, rate: int = 16_000, speakers: int = SPEAKERS, seed: int = 0) -> None:
    """Write a corpus of words and of short sentences as WAV files of 16 bits, wav/SPEAKER/NUMBER.wav, with tables for
    four tasks. Words and sentences for development and test are those of other speakers than in training.

    sentences-train.tsv, -dev, -test  path, text, speaker
    words-train.tsv, -dev, -test      path, label (the word), speaker
    speakers-train.tsv, -dev, -test   path, label (the speaker), text
    phones-train.tsv, -dev, -test     path, begin, end (seconds), label (a letter of a sentence), speaker

    An existing folder is complete and stays as it is. Raises UnmaskError if the folder cannot be written, and for
    too few speakers.
    """
    if speakers < len(SPEAKER_PARTS):
        raise UnmaskError(f"The corpus needs at least {len(SPEAKER_PARTS)} speakers, not {speakers}.")
    if folder.is_dir():
        return
    with atomic_folder(folder) as whole:
        _write(whole, rate, speakers, seed)


def _write(folder: Path, rate: int, speakers: int, seed: int) -> None:
    tables: dict[str, list[tuple[str, ...]]] = {}
    for number in range(speakers):
        rng = np.random.default_rng([seed, number])
        voice, speaker = Voice.draw(rng), f"speaker{number + 1:02}"
        part = SPEAKER_PARTS[number % len(SPEAKER_PARTS)]
        texts = [*WORDS * TAKES, *(" ".join(rng.choice(WORDS, rng.integers(2, 5))) for _ in range(SENTENCES))]
        for i, text in enumerate(texts):
            place = folder / "wav" / speaker / f"{i:03}.wav"
            place.parent.mkdir(parents=True, exist_ok=True)
            samples, said = spoken(text, voice, rate, rng)
            write_wav(place, samples, rate)
            path = str(place.relative_to(folder))
            if " " in text:
                tables.setdefault(f"sentences-{part}", []).append((path, text, speaker))
                phones = [(path, f"{one.begin:.3f}", f"{one.end:.3f}", one.letter, speaker) for one in said]
                tables.setdefault(f"phones-{part}", []).extend(phones)
                own = SENTENCE_PARTS[i % len(SENTENCE_PARTS)]
                tables.setdefault(f"speakers-{own}", []).append((path, speaker, text))
            else:
                tables.setdefault(f"words-{part}", []).append((path, text, speaker))
    columns: dict[str, tuple[str, ...]] = {
        "sentences": ("text", "speaker"),
        "words": ("label", "speaker"),
        "speakers": ("label", "text"),
    }
    columns["phones"] = ("begin", "end", "label", "speaker")
    for name, rows in tables.items():
        write_tsv(folder / f"{name}.tsv", ("path", *columns[name.partition("-")[0]]), rows)

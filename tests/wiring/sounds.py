"""Sounds for tests: words are tones that rise, fall or stay, and voices are harmonics, in a folder for each word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

RATE = 8_000
WORDS = {"fall": (900, 400), "rise": (400, 900), "stay": (600, 600)}
VOICES = ("ann", "bob", "cid", "dee", "eve", "fay")


def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus that is synthesised has few words of few speakers, but all of its tables."""
    from unmask.data.recordings import synthetic

    for name, value in {"WORDS": synthetic.WORDS[:3], "TAKES": 1, "SENTENCES": 5}.items():
        monkeypatch.setattr(synthetic, name, value)
    monkeypatch.setitem(synthetic.write.__kwdefaults__, "speakers", len(synthetic.SPEAKER_PARTS))


def spoken(word: str, voice: str, take: int) -> np.ndarray:
    """[N] float32: a word of about a quarter of a second, with noise."""
    rng = np.random.default_rng([*word.encode(), *voice.encode(), take])
    number = VOICES.index(voice)
    N = int(RATE * rng.uniform(0.2, 0.3))
    begin, end = np.array(WORDS[word]) * rng.uniform(0.9, 1.1)
    phase = 2 * np.pi * np.cumsum(np.linspace(begin, end, N)) / RATE
    shares = [0.6, *(0.5 * ((number >> bit) & 1) for bit in range(3))]
    tone = sum(share * np.sin((k + 1) * phase) for k, share in enumerate(shares))
    return (0.2 * tone + 0.01 * rng.standard_normal(N)).astype(np.float32)


def write(folder: Path, takes: int = 4, voices: tuple[str, ...] = VOICES, split: bool = True) -> Path:
    """Files train/WORD/VOICE_TAKE.wav, and dev/..., which has the last take of each word of each voice."""
    import soundfile

    for word in WORDS:
        for voice in voices:
            for take in range(takes):
                part = ("dev" if take == takes - 1 else "train") if split else ""
                path = folder / part / word / f"{voice}_{take}.wav"
                path.parent.mkdir(parents=True, exist_ok=True)
                soundfile.write(path, spoken(word, voice, take), RATE, subtype="PCM_16")
    return folder

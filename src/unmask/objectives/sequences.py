"""Sequences of sentences from documents, for objectives that read one text at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def runs(
    sentences: Sequence[np.ndarray], length: int, short: float = 0.0, rng: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Consecutive sentences joined into arrays of at most `length` tokens; a longer sentence is cut, not dropped.

    short  share of the runs, drawn with `rng`, that end at a random shorter length, though not within a sentence
    """
    out: list[np.ndarray] = []
    current: list[np.ndarray] = []
    total, aim = 0, target_length(length, short, rng)
    for sentence in sentences:
        if current and total + len(sentence) > aim:
            out.append(np.concatenate(current))
            current, total, aim = [], 0, target_length(length, short, rng)
        while len(sentence) > length:
            out.append(sentence[:length])
            sentence = sentence[length:]
        if len(sentence):
            current.append(sentence)
            total += len(sentence)
    if current:
        out.append(np.concatenate(current))
    return out


def target_length(room: int, short: float, rng: np.random.Generator | None) -> int:
    """The full room, or, for a share `short`, a random shorter length, so that training has short inputs too."""
    return int(rng.integers(2, room + 1)) if rng is not None and short and rng.random() < short else room

"""Encoding: samples as a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_wav(path: Path, samples: np.ndarray, rate: int) -> None:
    """Write samples [N] from -1 to 1, `rate` a second, as a WAV file of 16 bits and one channel."""
    from scipy.io import wavfile

    wavfile.write(path, rate, np.rint(samples * (2**15 - 1)).astype(np.int16))

"""Series that are made here: a trend, two seasons that drift, and noise, for a first run of forecasts."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from unmask.errors import UnmaskError
from unmask.files import atomic_folder, write_text

FILE = "series.csv"
SERIES, STEPS = 8, 1_200
DAY, WEEK = 24, 168  # values of the two seasons


def series(rng: np.random.Generator, steps: int = STEPS) -> np.ndarray:
    """[N] values a step: a level with a trend, a day of three waves and a week of one, whose heights drift, and noise
    that remembers the value before."""
    time_N = np.arange(steps)
    level = rng.uniform(50, 500)
    drift_N = 1 + 0.3 * np.sin(2 * np.pi * (time_N / steps * rng.uniform(0.5, 2) + rng.uniform()))
    day_N = sum(
        rng.uniform(0.2, 1) / wave * np.sin(2 * np.pi * (wave * time_N / DAY + rng.uniform())) for wave in (1, 2, 3)
    )
    week_N = rng.uniform(0.2, 0.6) * np.sin(2 * np.pi * (time_N / WEEK + rng.uniform()))
    noise_N, remembered = rng.normal(0, 0.15, steps), rng.uniform(0.3, 0.7)
    for i in range(1, steps):
        noise_N[i] += remembered * noise_N[i - 1]
    trend_N = rng.uniform(-0.5, 1) * time_N / steps
    found: np.ndarray = level * (1 + 0.25 * (trend_N + drift_N * day_N + week_N + noise_N))
    return found


def write(folder: Path, *, count: int = SERIES, steps: int = STEPS, seed: int = 0) -> None:
    """Write FILE: a line for each step, with its number and a column for each series. An existing folder stays as it
    is. Raises UnmaskError if the folder cannot be written, and for no series."""
    if count < 1 or steps < 1:
        raise UnmaskError(f"There must be at least one series of one value, not {count} of {steps}.")
    if folder.is_dir():
        return
    made = [series(np.random.default_rng([seed, number]), steps) for number in range(count)]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["time", *(f"sensor{number}" for number in range(1, count + 1))])
    table.writerows([step, *(f"{values[step]:.2f}" for values in made)] for step in range(steps))
    with atomic_folder(folder) as whole:
        write_text(whole / FILE, text.getvalue())

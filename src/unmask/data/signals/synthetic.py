"""Electrocardiograms that are made here: rhythms that are known, of several patients, with the beats annotated.

A beat is a sum of five Gaussians, for the waves P, Q, R, S and T (McSharry et al. 2003, A dynamical model for
generating synthetic electrocardiogram signals, table I). The records teach no medicine: they show that a model can
learn rhythms. Shapes: N samples of a record, K beats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from unmask.data.signals import wfdb
from unmask.data.signals.signal import Annotations, Signal
from unmask.errors import UnmaskError, unknown
from unmask.files import atomic_folder, write_tsv

RHYTHMS = {"N": "(N", "A": "(AFIB", "O": "(B", "~": ""}
"""Label of a record -> the annotation of its rhythm: normal, atrial fibrillation, ectopic beats, too noisy to tell."""
TAKES = {"N": 3, "A": 2, "O": 2, "~": 1}  # records of each rhythm of a patient
PATIENTS = 36
PARTS = ("train", "train", "train", "train", "dev", "test")  # of six patients
SECONDS = (12.0, 24.0)  # shortest and longest record
ECTOPIC = (0.12, 0.35)  # share of ectopic beats
FLUTTER = (4.0, 8.0)  # waves a second of fibrillating atria


class Wave(NamedTuple):
    """A Gaussian: seconds after the R peak where beats are 1 s apart, mV, and standard deviation in seconds."""

    delay: float
    height: float
    width: float


WAVES = (
    Wave(-0.17, 0.12, 0.025),
    Wave(-0.035, -0.1, 0.009),
    Wave(0.0, 1.0, 0.011),
    Wave(0.035, -0.2, 0.01),
    Wave(0.28, 0.3, 0.055),
)
"""P, Q, R, S, T of a beat that comes from the sinus."""
VENTRICULAR = (Wave(0.0, 1.3, 0.04), Wave(0.11, -0.45, 0.045), Wave(0.33, -0.35, 0.07))
"""R, S, T of a beat that comes from a ventricle: wide, without a P wave, with an inverted T wave."""


@dataclass(frozen=True)
class Heart:
    """A patient.

    interval  mean seconds between beats of the normal rhythm
    heights   factors of the heights of the five waves
    widths    factor of their widths
    strain    factor of the height of ectopic beats
    noise     mV, standard deviation of the noise of muscles
    wander    mV, largest drift of the baseline by breathing
    breath    breaths a second
    """

    interval: float
    heights: tuple[float, ...]
    widths: float
    strain: float
    noise: float
    wander: float
    breath: float

    @classmethod
    def draw(cls, rng: Generator) -> Heart:
        """A random patient."""
        return cls(
            interval=rng.uniform(0.65, 1.1),
            heights=tuple(rng.uniform((0.6, 0.4, 0.6, 0.4, 0.4), (1.5, 1.8, 1.4, 1.8, 1.4))),
            widths=rng.uniform(0.85, 1.25),
            strain=rng.choice([-1.0, 1.0]) * rng.uniform(0.7, 1.2),
            noise=rng.uniform(0.01, 0.04),
            wander=rng.uniform(0.02, 0.15),
            breath=rng.uniform(0.15, 0.35),
        )


def record(rhythm: str, heart: Heart, seconds: float, rate: int, rng: Generator) -> tuple[Signal, Annotations]:
    """A record of one lead in mV, and its beats: "N" normal, "A" atrial premature, "V" ventricular premature; the first
    annotation "+" names the rhythm. A record of the rhythm "~" has one of the others beneath its noise.

    Raises UnmaskError for an unknown rhythm.
    """
    if rhythm not in RHYTHMS:
        raise unknown("rhythm", rhythm, RHYTHMS)
    beneath = str(rng.choice(["N", "A", "O"])) if rhythm == "~" else rhythm
    peaks_K, symbols = _beats(beneath, heart, seconds, rng)
    time_N = np.arange(round(seconds * rate)) / rate
    trace = _waves(time_N, peaks_K, symbols, heart, atria=beneath != "A")
    if beneath == "A":
        trace += _fibrillation(time_N, rng)
    trace += heart.wander * np.sin(2 * np.pi * (heart.breath * time_N + rng.uniform()))
    trace += heart.noise * rng.standard_normal(len(time_N))
    if rhythm == "~":
        trace = 0.5 * trace + _artefacts(time_N, rng)
    places = np.rint(peaks_K * rate).astype(np.int64)
    inside = np.flatnonzero((places >= 0) & (places < len(time_N))).tolist()
    beats = Annotations(
        np.concatenate([[0], places[inside]]).astype(np.int64),
        ("+", *(symbols[i] for i in inside)),
        (RHYTHMS[beneath], *[""] * len(inside)),
    )
    return Signal(trace[:, None].astype(np.float32), float(rate), ("ECG",), ("mV",)), beats


def pulse(beats: Annotations, rate: float) -> float:
    """Beats a minute, from the mean interval between the beats of a record."""
    places = beats.samples[[i for i, symbol in enumerate(beats.symbols) if symbol != "+"]]
    return 60 * rate * (len(places) - 1) / float(places[-1] - places[0])


def _beats(rhythm: str, heart: Heart, seconds: float, rng: Generator) -> tuple[np.ndarray, list[str]]:
    """The times of the R peaks [K] in seconds, ascending, from before the record to after it, and their symbols."""
    time, peaks, symbols = -heart.interval * rng.uniform(1, 2), list[float](), list[str]()
    share, quick, early = rng.uniform(*ECTOPIC), rng.uniform(0.6, 0.9), False
    spread = rng.uniform(0.16, 0.28)  # of the intervals of fibrillation
    due = 3 + int(rng.integers(4))  # one beat at least is ectopic
    while time < seconds + heart.interval:
        peaks.append(time)
        symbols.append("N")
        breathing = 1 + 0.03 * np.sin(2 * np.pi * heart.breath * time) + 0.015 * rng.standard_normal()
        interval = heart.interval * breathing
        if rhythm == "A":
            interval = max(0.3, heart.interval * quick * rng.lognormal(0, spread))
        elif rhythm == "O" and not early and (len(peaks) == due or rng.uniform() < share):
            early = True
            peaks.append(time + interval * rng.uniform(0.55, 0.75))
            symbols.append("V" if rng.uniform() < 0.6 else "A")
            interval *= 2.0 if symbols[-1] == "V" else 1.65  # the pause after a ventricular beat compensates
        else:
            early = False
        time += interval
    return np.array(peaks), symbols


def _waves(time: np.ndarray, peaks: np.ndarray, symbols: Sequence[str], heart: Heart, *, atria: bool) -> np.ndarray:
    """The waves of all beats [N]. Their delays grow with the square root of the interval before (Bazett 1920)."""
    stretch_K = np.sqrt(np.clip(np.diff(peaks, prepend=peaks[0] - heart.interval), 0.35, 1.5))
    own_K = np.array([symbol == "V" for symbol in symbols])
    trace = np.zeros(len(time))
    for wave, height in zip(WAVES, heart.heights, strict=True):
        if wave is WAVES[0] and not atria:
            continue
        trace += _gaussians(time, peaks[~own_K], stretch_K[~own_K], wave, height, heart.widths)
    for wave in VENTRICULAR:
        trace += _gaussians(time, peaks[own_K], stretch_K[own_K], wave, heart.strain, heart.widths)
    return trace


def _gaussians(
    time: np.ndarray, peaks: np.ndarray, stretch: np.ndarray, wave: Wave, height: float, width: float
) -> np.ndarray:
    """A wave of some beats [N]."""
    trace = np.zeros(len(time))
    wide = wave.width * width
    for centre in peaks + wave.delay * stretch:
        first, last = np.searchsorted(time, (centre - 5 * wide, centre + 5 * wide))
        trace[first:last] += height * wave.height * np.exp(-0.5 * ((time[first:last] - centre) / wide) ** 2)
    return trace


def _fibrillation(time: np.ndarray, rng: Generator) -> np.ndarray:
    """The waves of fibrillating atria [N]: an oscillation whose frequency drifts."""
    step = time[1] - time[0]
    drift = np.cumsum(rng.standard_normal(len(time))) * np.sqrt(step)
    phase = rng.uniform() + np.cumsum((rng.uniform(*FLUTTER) + 0.7 * np.tanh(drift)) * step)
    wave = np.sin(2 * np.pi * phase) + 0.35 * np.sin(4 * np.pi * phase + rng.uniform(0, 6))
    found: np.ndarray = rng.uniform(0.03, 0.1) * wave
    return found


def _artefacts(time: np.ndarray, rng: Generator) -> np.ndarray:
    """Noise of muscles and of electrodes that move [N], in mV."""
    step = time[1] - time[0]
    bursts = np.interp(time, np.linspace(0, time[-1], 8), rng.uniform(0.2, 1.0, 8))
    wander = np.cumsum(rng.standard_normal(len(time))) * np.sqrt(step)
    jumps = np.zeros(len(time))
    for centre in rng.uniform(0, time[-1], rng.integers(3, 9)):
        jumps += rng.normal(0, 1.2) * np.exp(-np.clip((time - centre) / 0.4, 0, 50)) * (time >= centre)
    noise: np.ndarray = bursts * rng.uniform(0.2, 0.8) * rng.standard_normal(len(time))
    return noise + rng.uniform(0.2, 0.6) * (wander - wander.mean()) + jumps


def write(folder: Path, *, rate: int = 300, patients: int = PATIENTS, seed: int = 0) -> None:
    """Write records in the format of WFDB, PATIENT/NUMBER.hea, .dat and .atr, with tables train.tsv, dev.tsv and
    test.tsv of the columns path, label and patient, and pulse-train.tsv and so on, whose label is the pulse; they lack
    the records that are too noisy. No patient is in two splits.

    An existing folder is complete and stays as it is. Raises UnmaskError if the folder cannot be written, and for
    too few patients.
    """
    if patients < len(PARTS):
        raise UnmaskError(f"The corpus needs at least {len(PARTS)} patients, not {patients}.")
    if folder.is_dir():
        return
    with atomic_folder(folder) as whole:
        _write(whole, rate, patients, seed)


def _write(folder: Path, rate: int, patients: int, seed: int) -> None:
    tables: dict[str, list[tuple[str, str, str]]] = {name: [] for part in PARTS for name in (part, f"pulse-{part}")}
    for number in range(patients):
        rng = np.random.default_rng([seed, number])
        heart, patient = Heart.draw(rng), f"patient{number + 1:02}"
        (folder / patient).mkdir(parents=True)
        labels = [rhythm for rhythm, takes in TAKES.items() for _ in range(takes)]
        for take, label in enumerate(labels):
            made, beats = record(label, heart, rng.uniform(*SECONDS), rate, rng)
            wfdb.write(folder / patient / f"{take:02}.hea", made, beats)
            part, path = PARTS[number % len(PARTS)], f"{patient}/{take:02}.hea"
            tables[part].append((path, label, patient))
            if label != "~":
                tables[f"pulse-{part}"].append((path, f"{pulse(beats, rate):.1f}", patient))
    for part, rows in tables.items():
        write_tsv(folder / f"{part}.tsv", ("path", "label", "patient"), rows)

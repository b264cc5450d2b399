"""Beats of an electrocardiogram: where the R peaks are.

Shapes: N samples of one lead, R beats.
"""

from __future__ import annotations

import numpy as np

BAND = (5.0, 15.0)  # Hz: where a QRS complex has most of its power, and P and T waves little
INTEGRATED = 0.15  # seconds: the width of the widest usual QRS complex
REFRACTORY = 0.2  # seconds: no second beat begins so soon
NEAR = 0.1  # seconds from the largest energy, in which the R peak is
LEARNED = 2.0  # seconds, in which there is a beat
SEARCH_BACK = 1.66  # mean intervals without a beat, after which smaller peaks count


def energy(signal_N: np.ndarray, rate: float) -> np.ndarray:
    """[N] the energy of QRS complexes: band-pass, slope, square, and the mean over 150 ms (Pan & Tompkins 1985, section
    II). The filter runs in both directions, so that nothing is delayed; the original is a cascade of integer filters.
    """
    from scipy.ndimage import uniform_filter1d
    from scipy.signal import butter, sosfiltfilt

    high = min(BAND[1], 0.45 * rate)
    sections = butter(2, (min(BAND[0], high / 2), high), "bandpass", fs=rate, output="sos")
    padding = min(int(rate), len(signal_N) - 1)
    filtered_N = sosfiltfilt(sections, signal_N, padlen=padding)
    slope_N = np.gradient(filtered_N) * rate
    return np.asarray(uniform_filter1d(slope_N**2, max(1, round(INTEGRATED * rate))))


def r_peaks(signal_N: np.ndarray, rate: float) -> np.ndarray:
    """[R] int64: the samples of the R peaks of one lead, ascending (Pan & Tompkins 1985).

    Peaks of the energy count if they exceed a threshold between a running level of beats and one of noise (equations 12
    to 16). If no beat is found for 1.66 mean intervals, the largest peak above half of the threshold counts (section
    II.F). Each beat is put at the largest deviation of the signal from its median within 100 ms. A flat signal, and one
    shorter than half a second, has no beats.

    signal_N  in any unit, without NaN
    rate      samples a second
    """
    from scipy.signal import find_peaks

    signal_N = np.asarray(signal_N, np.float64)
    if len(signal_N) < rate / 2 or not np.ptp(signal_N):
        return np.zeros(0, np.int64)
    energy_N = energy(signal_N, rate)
    candidates = find_peaks(energy_N, distance=max(1, round(REFRACTORY * rate)))[0]
    if not len(candidates):
        return np.zeros(0, np.int64)
    # The level of beats begins as the median of the largest energies in 2 seconds each (section II.C has the first 2).
    pieces = np.array_split(energy_N, max(1, round(len(energy_N) / (LEARNED * rate))))
    beat, noise = float(np.median([piece.max() for piece in pieces])), float(np.median(energy_N))
    chosen: list[int] = []
    for place in candidates.tolist():
        threshold = noise + 0.25 * (beat - noise)
        if len(chosen) > 2:
            usual = float(np.mean(np.diff(chosen[-9:])))
            if place - chosen[-1] > SEARCH_BACK * usual:
                missed = candidates[(candidates > chosen[-1]) & (candidates < place)]
                missed = missed[energy_N[missed] > threshold / 2]
                if len(missed):
                    best = int(missed[energy_N[missed].argmax()])
                    chosen.append(best)
                    beat = 0.25 * float(energy_N[best]) + 0.75 * beat
        if energy_N[place] > threshold:
            chosen.append(place)
            beat = 0.125 * float(energy_N[place]) + 0.875 * beat
        else:
            noise = 0.125 * float(energy_N[place]) + 0.875 * noise
    return _refined(signal_N, np.array(chosen, np.int64), rate)


def _refined(signal_N: np.ndarray, places: np.ndarray, rate: float) -> np.ndarray:
    """The largest deviation near each place; two beats of one complex become one."""
    reach = max(1, round(NEAR * rate))
    found = []
    for place in places.tolist():
        begin = max(0, place - reach)
        part = signal_N[begin : place + reach + 1]
        found.append(begin + int(np.abs(part - np.median(part)).argmax()))
    beats = np.unique(found).astype(np.int64)
    apart = np.append(True, np.diff(beats) >= REFRACTORY / 2 * rate)
    return beats[apart] if len(beats) else np.zeros(0, np.int64)

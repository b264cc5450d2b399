"""Features of the beats of an electrocardiogram that experts read: intervals, shapes and powers.

Shapes: N samples of one lead, R beats, F features.
"""

from __future__ import annotations

import numpy as np

from unmask.data.signals.beats import r_peaks

BEFORE, AFTER = 0.25, 0.4  # seconds of a beat around its R peak
QRS, ST = 0.08, 0.12  # seconds: half of a QRS complex, and from the R peak to where the T wave may begin
FEWEST = 3  # beats, or intervals, that the features need

INTERVALS = (
    "mean interval",
    "deviation of intervals",
    "median interval",
    "shortest interval",
    "longest interval",
    "rmssd",
    "share of changes above 50 ms",
    "variation of intervals",
    "entropy of changes",
    "turning points",
    "beats a second",
)
SHAPES = ("width", "height", "deviation of heights", "likeness of beats", "P wave", "deviation of P waves", "T wave")
BANDS = ((0.5, 4.0), (4.0, 9.0), (9.0, 15.0), (15.0, 30.0), (30.0, 50.0))
WHOLE = ("deviation", "skewness", "kurtosis", "spectral entropy", *(f"{low:g} to {high:g} Hz" for low, high in BANDS))
FEATURES = (*INTERVALS, *SHAPES, *WHOLE)
"""Names of the features of a record: intervals and widths in seconds, heights in deviations of the signal, powers as
shares."""

EACH = (
    "interval before",
    "interval after",
    "before by the usual",
    "before by those near",
    "after by those near",
    "width",
    "highest",
    "lowest",
    "energy",
    "likeness",
    "P wave",
    "T wave",
)
"""Names of the features of a beat, in the same units."""
NEAR = 10  # intervals around a beat that are near it


def features(signal_N: np.ndarray, rate: float) -> np.ndarray:
    """[F] of one lead: the intervals between its beats, the shape of the beats, and the spectrum. What needs more beats
    than were found is 0."""
    signal_N = np.asarray(signal_N, np.float64)
    scale = signal_N.std()
    scaled_N = (signal_N - np.median(signal_N)) / (scale if scale > 0 else 1.0)
    beats = r_peaks(signal_N, rate)
    seconds = len(signal_N) / rate
    intervals = np.append(of_intervals(np.diff(beats) / rate), len(beats) / seconds)
    return np.concatenate([intervals, of_shapes(scaled_N, beats, rate), of_signal(scaled_N, rate)])


def of_intervals(seconds: np.ndarray) -> np.ndarray:
    """The features of the intervals between beats [R - 1], in seconds: their irregularity marks atrial fibrillation."""
    if len(seconds) < FEWEST:
        return np.zeros(len(INTERVALS) - 1)
    changes = np.diff(seconds)
    counts = np.histogram(np.clip(changes, -0.4, 0.4), bins=16, range=(-0.4, 0.4))[0]
    turning = (changes[1:] * changes[:-1] < 0).mean()
    return np.array(
        [
            seconds.mean(),
            seconds.std(),
            np.median(seconds),
            seconds.min(),
            seconds.max(),
            np.sqrt((changes**2).mean()),
            (np.abs(changes) > 0.05).mean(),
            seconds.std() / seconds.mean(),
            entropy(counts),
            turning,
        ]
    )


def of_shapes(scaled_N: np.ndarray, beats: np.ndarray, rate: float) -> np.ndarray:
    """The features of the beats, cut from 250 ms before each R peak to 400 ms after it."""
    before, after, half = round(BEFORE * rate), round(AFTER * rate), round(QRS * rate)
    inside = beats[(beats >= before) & (beats + after < len(scaled_N))]
    if len(inside) < FEWEST:
        return np.zeros(len(SHAPES))
    cut_RN = scaled_N[inside[:, None] + np.arange(-before, after)]
    cut_RN = cut_RN - np.median(cut_RN, axis=1, keepdims=True)
    middle_N = np.median(cut_RN, axis=0)
    heights_R = cut_RN[:, before]
    width = (np.abs(middle_N[before - half : before + half]) > abs(middle_N[before]) / 2).sum() / rate
    unit_RN = cut_RN / np.maximum(np.linalg.norm(cut_RN, axis=1, keepdims=True), 1e-9)
    likeness = (unit_RN @ (middle_N / max(float(np.linalg.norm(middle_N)), 1e-9))).mean()
    p_R = np.ptp(cut_RN[:, : before - half], axis=1)
    return np.array(
        [
            width,
            heights_R.mean(),
            heights_R.std(),
            likeness,
            np.ptp(middle_N[: before - half]),
            p_R.std(),
            np.ptp(middle_N[before + round(ST * rate) :]),
        ]
    )


def of_each(signal_N: np.ndarray, beats: np.ndarray, rate: float) -> np.ndarray:
    """[R, F]: the features EACH of every beat: the intervals around it, and its shape.

    beats  [R] int64, the samples of the R peaks, ascending; beyond the ends of the signal, its first and its last
           sample count
    """
    if not len(beats):
        return np.zeros((0, len(EACH)))
    signal_N = np.asarray(signal_N, np.float64)
    scaled_N = (signal_N - np.median(signal_N)) / max(float(signal_N.std()), 1e-9)
    between = np.diff(beats) / rate
    usual = float(np.median(between)) if len(between) else 1.0
    before_R, after_R = np.append(usual, between), np.append(between, usual)
    near_R = np.array([before_R[max(0, i - NEAR // 2) : i + NEAR // 2].mean() for i in range(len(beats))])
    before, after, half = round(BEFORE * rate), round(AFTER * rate), round(QRS * rate)
    places_RN = np.clip(beats[:, None] + np.arange(-before, after), 0, len(scaled_N) - 1)
    cut_RN = scaled_N[places_RN] - np.median(scaled_N[places_RN], axis=1, keepdims=True)
    middle_N = np.median(cut_RN, axis=0)
    qrs_RN = cut_RN[:, before - half : before + half]
    lengths_R = np.maximum(np.linalg.norm(cut_RN, axis=1) * np.linalg.norm(middle_N), 1e-9)
    shapes = [
        (np.abs(qrs_RN) > np.abs(qrs_RN).max(1, keepdims=True) / 2).sum(1) / rate,
        qrs_RN.max(1),
        qrs_RN.min(1),
        (qrs_RN**2).mean(1),
        cut_RN @ middle_N / lengths_R,
        np.ptp(cut_RN[:, : before - half], axis=1),
        np.ptp(cut_RN[:, before + round(ST * rate) :], axis=1),
    ]
    times = [before_R, after_R, before_R / usual, before_R / near_R, after_R / near_R]
    return np.stack([*times, *shapes], axis=1)


def of_signal(scaled_N: np.ndarray, rate: float) -> np.ndarray:
    """The features of the whole signal: moments, and the shares of its power in five bands."""
    from scipy.signal import welch

    centred_N = scaled_N - scaled_N.mean()
    frequencies, power = welch(centred_N, fs=rate, nperseg=min(len(centred_N), round(2 * rate)))
    total = max(float(power.sum()), 1e-12)
    shares = [power[(frequencies >= low) & (frequencies < high)].sum() / total for low, high in BANDS]
    deviation = centred_N.std()
    unit_N = centred_N / max(float(deviation), 1e-9)
    return np.array([deviation, (unit_N**3).mean(), (unit_N**4).mean(), entropy(power), *shares])


def entropy(amounts: np.ndarray) -> float:
    """-sum p log p of amounts that are at least 0, as shares p, in nats."""
    shares = amounts / max(float(amounts.sum()), 1e-12)
    return float(-(shares * np.log(np.maximum(shares, 1e-12))).sum())

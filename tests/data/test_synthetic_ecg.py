"""The electrocardiograms that are made here have the rhythms that they are labelled with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unmask.data.signals import synthetic, wfdb
from unmask.data.signals.reading import check_records_apart, labelled
from unmask.data.signals.signal import Annotations, Signal
from unmask.errors import UnmaskError

RATE = 300


def made(rhythm: str, count: int = 12) -> list[tuple[Signal, Annotations]]:
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        found.append(synthetic.record(rhythm, synthetic.Heart.draw(rng), 20.0, RATE, rng))
    return found


def spread(beats: Annotations) -> float:
    """The deviation of the intervals between beats, as a share of their mean."""
    intervals = np.diff(beats.only(wfdb.BEATS).samples)
    return float(intervals.std() / intervals.mean())


def atrial(signal: Signal, beats: Annotations) -> float:
    """The height of the mean trace 0.17 s before the R peaks, over that 0.3 s before them, in mV."""
    peaks = beats.only(wfdb.BEATS).samples
    peaks = peaks[peaks > 100]
    cut = np.stack([signal.samples[peak - 100 : peak, 0] for peak in peaks]).mean(0)
    return float(cut[40:60].max() - np.median(cut[:30]))


def test_rhythms_differ_as_they_should() -> None:
    normal, fibrillation, ectopic = (made(rhythm) for rhythm in "NAO")
    assert max(spread(beats) for _, beats in normal) < 0.05
    assert min(spread(beats) for _, beats in fibrillation) > 0.1
    assert np.mean([atrial(*one) for one in normal]) > 2 * np.mean([atrial(*one) for one in fibrillation])
    for _, beats in ectopic:
        assert set(beats.symbols) & {"V", "A"}
        assert "N" in beats.symbols
        assert spread(beats) > 0.06
    assert all(set(beats.symbols) == {"+", "N"} for _, beats in (*normal, *fibrillation))
    assert {beats.texts[0] for _, beats in fibrillation} == {"(AFIB"}


def test_annotations_are_at_the_peaks() -> None:
    for signal, beats in made("N", 6):
        for peak in beats.only(wfdb.BEATS).samples.tolist():
            if 60 < peak < len(signal.samples) - 60:
                near = signal.samples[peak - 60 : peak + 60, 0]
                assert abs(int(near.argmax()) - 60) <= 4


def test_noise_hides_the_beats() -> None:
    def steps(signal: Signal) -> float:
        return float(np.abs(np.diff(signal.samples[:, 0])).mean())

    assert min(steps(signal) for signal, _ in made("~")) > 2 * np.median([steps(signal) for signal, _ in made("N")])


def test_a_corpus_keeps_patients_apart_and_is_the_same_for_a_seed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        synthetic.write(tmp_path / name, patients=6, seed=3)
    synthetic.write(tmp_path / "other", patients=6, seed=4)
    sets = {part: labelled(tmp_path / "one" / f"{part}.tsv") for part in ("train", "dev", "test")}
    assert {part: len(rows) for part, rows in sets.items()} == {"train": 32, "dev": 8, "test": 8}
    assert sets["dev"].histogram() == {"N": 3, "A": 2, "O": 2, "~": 1}
    check_records_apart(sets["train"], sets["test"])
    check_records_apart(sets["train"], sets["dev"])
    first, again, other = (labelled(tmp_path / name / "test.tsv")[0].digest for name in ("one", "two", "other"))
    assert first == again != other
    assert sets["train"][0].annotations(RATE).symbols[0] == "+"
    before = (tmp_path / "one" / "train.tsv").stat().st_mtime_ns
    synthetic.write(tmp_path / "one", patients=6, seed=3)
    assert (tmp_path / "one" / "train.tsv").stat().st_mtime_ns == before


def test_errors() -> None:
    with pytest.raises(UnmaskError, match="at least 6 patients, not 5"):
        synthetic.write(Path("x"), patients=5)
    rng = np.random.default_rng(0)
    with pytest.raises(UnmaskError, match="no rhythm 'X'"):
        synthetic.record("X", synthetic.Heart.draw(rng), 1.0, RATE, rng)

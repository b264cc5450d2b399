"""What is unusual about records is said, with counts and names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unmask.data.signals import checks, wfdb
from unmask.data.signals.reading import SignalRow
from unmask.data.signals.signal import Annotations, Signal
from unmask.data.signals.synthetic import Heart, record
from unmask.errors import UnmaskError


def clean(seed: int = 0) -> Signal:
    rng = np.random.default_rng(seed)
    return record("N", Heart.draw(rng), 10.0, 300, rng)[0]


def changed(change: str) -> Signal:
    """A sound record with one fault."""
    found = clean()
    values = found.samples[:, 0].copy()
    if change == "gap":
        values[100:130] = np.nan
    if change == "lost":
        values[:] = 0.25
    if change == "flat":
        values[600:1000] = values[600]
    if change == "clipped":
        values = np.clip(3 * values, -0.4, 0.4)
    if change == "inverted":
        values = -values
    return Signal(values[:, None], 300.0, ("ECG",), ("mV",))


@pytest.mark.parametrize("seed", range(8))
def test_a_sound_record_has_no_doubts(seed: int) -> None:
    assert checks.doubts_of(clean(seed)) == ()


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ("gap", checks.GAPS),
        ("lost", checks.EMPTY),
        ("flat", checks.FLAT_LINE),
        ("clipped", checks.SATURATED),
        ("inverted", checks.UPSIDE_DOWN),
    ],
)
def test_every_fault_is_found(change: str, doubt: str) -> None:
    assert doubt in checks.doubts_of(changed(change))


def test_only_leads_that_point_up_can_be_inverted() -> None:
    found = changed("inverted")
    assert checks.doubts_of(Signal(found.samples, 300.0, ("aVR",), ("mV",))) == ()


def test_doubts_are_counted_and_named(tmp_path: Path) -> None:
    rows = []
    for name in ("sound", "flat", "gap", "also", "late"):
        beats = Annotations(np.array([5, 99_999 if name == "late" else 6]), ("N", "N"), ("", ""))
        wfdb.write(tmp_path / f"{name}.hea", changed(name), beats)
        rows += [SignalRow(source=tmp_path / f"{name}.hea", id=name, begin=begin) for begin in (0.0, 1.0)]
    rows.append(SignalRow(source=Signal(clean().samples, 250.0, ("ECG",), ("mV",)), id="slow", place="x:1"))
    assert list(checks.examine(rows)) == [
        f"1 of 6 records {checks.FLAT_LINE} (flat).",
        f"1 of 6 records {checks.GAPS} (gap).",
        "1 of 6 records with annotations beyond the end, which are left out (late).",
        f"1 of 6 records {checks.RATES} (slow).",
    ]
    (tmp_path / "gap.dat").write_bytes(b"xx")
    with pytest.raises(UnmaskError, match=r"1 of 6 records cannot be read: .*gap\.dat is cut short"):
        list(checks.examine(rows))

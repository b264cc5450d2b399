"""Checks: what is unusual about the samples of records, said in sentences that count and name them.

Shapes: N samples of a record, L leads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from unmask.data.files.damage import check_readable
from unmask.data.files.items import SHOWN, visible
from unmask.data.labelled.rows import Row, listed
from unmask.data.signals.decoding import annotations_of, has_annotations, read
from unmask.data.signals.reading import SIGNALS, SignalRow
from unmask.data.signals.signal import Signal
from unmask.errors import UnmaskError, plural

FLAT = 1.0  # seconds without any change
CLIPPED = 0.02  # seconds at the largest or the smallest value of a lead, and the share of a record that is clipped
CLIPPED_SHARE = 0.005
UPRIGHT = frozenset(("ecg", "i", "ii", "mlii"))
"""Leads of an electrocardiogram whose R wave goes up in most people."""
BASELINE = 0.2  # seconds over which the baseline is averaged
INVERTED = 1.5  # the downward waves of an inverted lead are this many times as large as the upward ones

GAPS = "with values that are no numbers: the gaps are filled by straight lines"
EMPTY = "with a lead that never changes"
FLAT_LINE = f"with a flat line of {FLAT:g} s or more"
SATURATED = "with clipped peaks: the amplifier was saturated"
UPSIDE_DOWN = "that may be inverted: they are read as they are"
RATES = "with other samples a second than most: all are resampled to the rate of the model"


def doubts_of(signal: Signal) -> tuple[str, ...]:
    """What is unusual about a record, as it is in its file: some of the constants above, and the notes of the file."""
    found = list(signal.notes)
    absent_NL = ~np.isfinite(signal.samples)
    if absent_NL.any():
        found.append(GAPS)
    for lead, values, absent in zip(signal.leads, signal.samples.T, absent_NL.T, strict=True):
        known = values[~absent]
        if not len(known) or known.max() == known.min():
            found.append(EMPTY)
            continue
        lengths, heights = _runs(known)
        if lengths.max() > FLAT * signal.rate:
            found.append(FLAT_LINE)
        extreme = (heights == known.max()) | (heights == known.min())
        clipped = lengths[extreme & (lengths > max(3, CLIPPED * signal.rate)) & (lengths <= FLAT * signal.rate)]
        if clipped.sum() > CLIPPED_SHARE * len(known):
            found.append(SATURATED)
        if lead.casefold() in UPRIGHT and _inverted(known, signal.rate):
            found.append(UPSIDE_DOWN)
    return tuple(dict.fromkeys(found))


def examine(rows: Sequence[Row]) -> Iterator[str]:
    """Sentences on what is unusual about the records of some rows; a record of several rows is read once.

    Raises UnmaskError, which counts them and names the first, if records cannot be read.
    """
    names: dict[str, list[str]] = {}
    rates: dict[float, list[str]] = {}
    broken, seen = [], set[str]()
    for row in rows:
        assert isinstance(row, SignalRow)
        if row.name in seen:
            continue
        seen.add(row.name)
        name = visible(row.id or row.name)
        try:
            found = read(row.source, own_rate=row.own_rate, name=row.name)
            marks = annotations_of(row.source).notes if has_annotations(row.source) else ()
        except UnmaskError as error:
            broken.append(str(error))
            continue
        rates.setdefault(found.rate, []).append(name)
        for doubt in (*doubts_of(found), *marks):
            names.setdefault(doubt, []).append(name)
    check_readable(broken, len(seen), SIGNALS.noun)
    usual = max(rates, key=lambda rate: len(rates[rate]), default=0.0)
    if other := [name for rate, found_names in rates.items() if rate != usual for name in found_names]:
        names[RATES] = other
    for doubt, found_names in names.items():
        yield f"{len(found_names):,} of {plural(len(seen), SIGNALS.noun)} {doubt} ({listed(found_names, SHOWN)})."


def _runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of the runs of equal values, and these values."""
    begins = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return np.diff(begins, append=len(values)), values[begins]


def _inverted(values: np.ndarray, rate: float) -> bool:
    """Whether the largest waves of a lead, above or below its baseline, go down."""
    from scipy.ndimage import uniform_filter1d

    waves = values - uniform_filter1d(values.astype(np.float64), max(1, round(BASELINE * rate)))
    low, high = np.percentile(waves, (0.5, 99.5))
    return bool(-low > INVERTED * high)

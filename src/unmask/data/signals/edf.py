"""EDF and EDF+, the European data format of recordings of sleep, brain and heart.

Source: Kemp et al. 1992; Kemp and Olivan 2003. Shapes: N samples of a record, L leads.
"""

from __future__ import annotations

import numpy as np

from unmask.data.signals.signal import MOST_LEADS, Signal, joined
from unmask.errors import UnmaskError

FIXED, LEAD = 256, 256  # bytes of the header: of the record, of each lead
WIDTHS = (16, 80, 8, 8, 8, 8, 8, 80, 8, 32)
"""Bytes of the fields of a lead: label, transducer, unit, physical minimum and maximum, digital minimum and maximum,
filter, samples of a data record, reserved."""
NOTES = "EDF Annotations"  # label of a lead that has texts


def is_edf(content: bytes) -> bool:
    """Whether the bytes of a file begin as EDF does."""
    return content[:8] == b"0       "


def signal(content: bytes, name: str) -> Signal:
    """The record in the bytes of a file; all leads at the highest of their rates. Raises UnmaskError, which begins with
    `name`, for a damaged file, and for EDF+ with interruptions."""
    try:
        size, records = (int(content[begin : begin + 8]) for begin in (184, 236))
        count, seconds = int(content[252:256]), float(content[244:252])
        if not 1 <= count <= MOST_LEADS or size != FIXED + LEAD * count or seconds <= 0:
            raise ValueError(f"{count} leads, a header of {size} bytes")
        fields, begin = list[list[str]](), FIXED
        for width in WIDTHS:
            raw = [content[begin + width * i : begin + width * (i + 1)] for i in range(count)]
            fields.append([one.decode("latin-1").strip() for one in raw])
            begin += width * count
        each = [int(one) for one in fields[8]]
        low, high, least, most = (np.array([float(one) for one in column]) for column in fields[3:7])
        if min(each) < 0 or (most == least).any() or not np.isfinite([low, high, least, most]).all():
            raise ValueError("a lead has no range")
    except ValueError as error:
        raise UnmaskError(f"{name} has a damaged EDF header: {error}.") from None
    if content[192:197] == b"EDF+D":
        raise UnmaskError(f"{name} has interruptions (EDF+D), which are not read: cut it into records without them.")
    wide = sum(each)
    whole = (len(content) - size) // (2 * wide) if wide else 0
    if records > whole:
        raise UnmaskError(f"{name} is cut short: its header promises {records:,} blocks, but it has {whole:,}.")
    records = whole if records < 0 else records
    kept = [i for i in range(count) if fields[0][i] != NOTES and each[i]]
    if not kept or not records:
        raise UnmaskError(f"{name} has no samples: only annotations, or nothing was recorded.")
    blocks = np.frombuffer(content, "<i2", wide * records, size).reshape(records, wide)
    begins, scales = np.cumsum([0, *each]), (high - low) / (most - least)
    leads = [(blocks[:, begins[i] : begins[i + 1]].reshape(-1) - least[i]) * scales[i] + low[i] for i in kept]
    samples, rate, notes = joined(leads, [each[i] / seconds for i in kept])
    return Signal(samples, rate, tuple(fields[0][i] for i in kept), tuple(fields[2][i] for i in kept), notes)

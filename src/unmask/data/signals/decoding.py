"""Decoding: files of records (WFDB, MATLAB, EDF, NumPy, CSV, Parquet) into samples of some leads, at any rate.

Shapes: N samples of a record, L leads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unmask.data.signals import arrays, edf, wfdb
from unmask.data.signals.signal import (
    HIGHEST_RATE,
    LOWEST_RATE,
    MOST_BYTES,
    MOST_LEADS,
    MOST_SAMPLES,
    Annotations,
    Header,
    Signal,
)
from unmask.errors import UnmaskError

ARRAYS = frozenset((".npy", ".npz"))  # of anything
SURE = frozenset((".hea", ".mat", ".edf", ".dat")) | ARRAYS
TABLES = frozenset((".csv", ".tsv", ".parquet"))
SUFFIXES = SURE | TABLES
"""Suffixes of files of records. Files with those of TABLES may be anything else too."""

Source = str | Path | bytes | Signal
"""A record: the path of its file, the bytes of its file, or a record in memory. The path of a WFDB record is that of
its header or of its samples, with or without a suffix."""


def header(source: Source, *, own_rate: float | None = None, name: str = "") -> Header:
    """The header of a record; arguments and errors are those of `read`. Only WFDB has one that is apart from the
    samples; a record in any other format is read."""
    if isinstance(source, str | Path) and (place := wfdb.header_of(Path(source))) is not None:
        return wfdb.Layout.read(place).header
    return read(source, own_rate=own_rate, name=name).header


def read(source: Source, *, own_rate: float | None = None, name: str = "") -> Signal:
    """A record as its file has it, with all leads, at its own rate, in its own units.

    own_rate  samples a second of a file that does not say them; others ignore it
    name      the record in messages; empty: its path

    Raises UnmaskError for a file that cannot be read or is no record, for one without a rate, without samples or with
    more than MOST_SAMPLES, and for an absurd number of leads or rate.
    """
    if isinstance(source, Signal):
        return source
    if isinstance(source, bytes):
        name = name or "The record"
        return _checked(_of_bytes(source, own_rate, name), name)
    path = Path(source)
    name = name or str(path)
    place = wfdb.header_of(path)
    if place is not None:
        return _checked(wfdb.Layout.read(place).signal(), name)
    if path.suffix.lower() == ".dat":
        raise UnmaskError(f"{name} has no header beside it: give {path.with_suffix('.hea').name} too.")
    return _checked(_of_bytes(bytes_of(path), own_rate, name), name)


def decode(
    source: Source,
    rate: float | None = None,
    begin: float = 0.0,
    end: float | None = None,
    *,
    leads: Sequence[str] = (),
    own_rate: float | None = None,
    name: str = "",
) -> Signal:
    """A record that a model can read: its gaps are filled by straight lines, and it has `rate` samples a second.

    rate        None: that of the record
    begin, end  seconds of a part; its samples are those that the whole record has there
    leads       names of the leads, in this order; none: all

    For the other arguments see `read`. Raises UnmaskError as `read`, for a missing lead, for one with gaps in more than
    half of it, and if there are no samples between `begin` and `end`.
    """
    name = name or (str(source) if isinstance(source, str | Path) else "The record")
    found = read(source, own_rate=own_rate, name=name)
    found = (found.select(leads, name) if leads else found).filled(name)
    whole = found.at(rate or found.rate)
    first, last = found.header.bounds(whole.rate, begin, end)
    if begin < 0 or last <= first:
        until = "its end" if end is None else f"{end:g} s"
        raise UnmaskError(f"{name} has no samples from {begin:g} s to {until}: it has {found.header.seconds:.3f} s.")
    return replace(whole, samples=whole.samples[first:last])


def annotations_of(source: Source, *, ending: str = "atr", name: str = "") -> Annotations:
    """The annotations beside a WFDB record, within its samples. Raises UnmaskError if there are none, or if they are
    damaged."""
    place = _beside(source, ending)
    if place is None or not place.is_file():
        name = name or (str(source) if isinstance(source, str | Path) else "The record")
        raise UnmaskError(f"{name} has no annotations: they are in a file beside it that ends in .{ending}.")
    layout = wfdb.Layout.read(place.with_suffix(".hea"))
    found = wfdb.annotations_in(bytes_of(place), str(place))  # in frames
    return replace(found, samples=found.samples * layout.most).within(layout.header.samples)


def has_annotations(source: Source, *, ending: str = "atr") -> bool:
    """Whether there are annotations beside a record."""
    place = _beside(source, ending)
    return place is not None and place.is_file()


def _beside(source: Source, ending: str) -> Path | None:
    place = wfdb.header_of(Path(source)) if isinstance(source, str | Path) else None
    return None if place is None else place.with_suffix(f".{ending}")


def files_of(source: str | Path) -> list[Path]:
    """The files that hold the samples of a record."""
    place = wfdb.header_of(Path(source))
    return [Path(source)] if place is None else wfdb.Layout.read(place).files


def digest_of(source: Source) -> str:
    """A hash of the samples of a record as they are on disk (BLAKE2b, 16 bytes): the name of the record and its header
    do not count. Raises UnmaskError for a file that cannot be read."""
    if isinstance(source, Signal):
        return source.digest
    parts = [source] if isinstance(source, bytes) else [bytes_of(path) for path in files_of(source)]
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


def bytes_of(path: Path) -> bytes:
    """The content of a file. Raises UnmaskError if it cannot be read, or is too large."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise UnmaskError(f"There is no file {path}.") from None
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(content) > MOST_BYTES:
        raise UnmaskError(f"{path} has more than {MOST_BYTES >> 20} MiB: cut the record into pieces.")
    return content


def _of_bytes(content: bytes, own_rate: float | None, name: str) -> Signal:
    """The record in the bytes of a file, whose format its first bytes say; text is a table of numbers."""
    if not content:
        raise UnmaskError(f"{name} is empty.")
    if edf.is_edf(content):
        return edf.signal(content, name)
    found = arrays.leads_of(content, name)
    rate = found.rate or own_rate
    if rate is None:
        raise UnmaskError(f"{name} does not say its samples a second: give --rate.")
    units = ("",) * len(found.leads)
    return Signal(found.samples, float(rate), found.leads, units)


def _checked(found: Signal, name: str) -> Signal:
    """Raises UnmaskError for a record that is absurd."""
    count, leads = found.samples.shape
    if not count or not leads:
        raise UnmaskError(f"{name} has no samples: it is cut short, or nothing was recorded.")
    if leads > MOST_LEADS or found.samples.size > MOST_SAMPLES:
        raise UnmaskError(
            f"{name} has {leads:,} leads of {count:,} samples, but the limits are {MOST_LEADS:,} leads and "
            f"{MOST_SAMPLES:,} samples: its header is damaged, or it must be cut into pieces."
        )
    if not LOWEST_RATE <= found.rate <= HIGHEST_RATE:
        raise UnmaskError(f"{name} has {found.rate:g} samples a second, but the rate must be {LOWEST_RATE} to 1e6.")
    return found

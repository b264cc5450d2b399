"""Signal: a record of sensors in memory, such as an electrocardiogram of one or more leads, and its header.

Shapes: N samples of a record, L leads, A annotations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from unmask.errors import UnmaskError

MOST_SAMPLES = 1 << 28  # of all leads of a record, 1 GiB
MOST_BYTES = 1 << 30  # of a file, also after it is decompressed
MOST_LEADS = 1_024
LOWEST_RATE, HIGHEST_RATE = 0.001, 1e6  # samples a second
UNEQUAL = "with leads of unequal rates: all have the highest of them"
FINEST = 1_000  # largest denominator of the ratio of two rates; others are rounded to such a ratio


@dataclass(frozen=True, slots=True)
class Header:
    """What a record has: its samples a second, its number of samples N, and the names of its leads."""

    rate: float
    samples: int
    leads: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Length of the record."""
        return self.samples / self.rate

    def bounds(self, rate: float, begin: float = 0.0, end: float | None = None) -> tuple[int, int]:
        """The samples at `rate` from `begin` to `end` seconds, which stay within the record."""
        count = resampled(self.samples, self.rate, rate)
        return min(round(begin * rate), count), count if end is None else min(round(end * rate), count)


@dataclass(frozen=True, slots=True)
class Signal:
    """A record.

    samples  [N, L] float32, in the units of the leads; NaN where the file has no value, unless the gaps are filled
    rate     samples a second
    leads    names of the leads, L
    units    of the leads, such as "mV"; "" if the file does not say them
    notes    what is unusual about the file, as the ends of sentences that begin with "3 records"
    """

    samples: np.ndarray
    rate: float
    leads: tuple[str, ...]
    units: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def header(self) -> Header:
        """What the record has."""
        return Header(self.rate, len(self.samples), self.leads)

    @property
    def digest(self) -> str:
        """A hash of the content."""
        content = hashlib.blake2b(f"{self.rate} {self.samples.shape}".encode(), digest_size=16)
        content.update(np.ascontiguousarray(self.samples).tobytes())
        return content.hexdigest()

    def select(self, leads: Sequence[str], name: str) -> Signal:
        """The leads with these names, ignoring case, in this order. Raises UnmaskError, which begins with `name`, if
        one is missing."""
        known = {lead.casefold(): i for i, lead in reversed(list(enumerate(self.leads)))}
        missing = [lead for lead in leads if lead.casefold() not in known]
        if missing:
            raise UnmaskError(f"{name} lacks the lead {', '.join(missing)}; it has {', '.join(self.leads)}.")
        found = [known[lead.casefold()] for lead in leads]
        names, units = tuple(self.leads[i] for i in found), tuple(self.units[i] for i in found)
        return replace(self, samples=self.samples[:, found], leads=names, units=units)

    def filled(self, name: str) -> Signal:
        """A copy whose gaps, values that are no numbers, are filled by straight lines between their neighbours. Raises
        UnmaskError, which begins with `name`, for a lead that has no value in more than half of the record."""
        absent_NL = ~np.isfinite(self.samples)
        if not absent_NL.any():
            return self
        samples = self.samples.copy()
        for i, lead in enumerate(self.leads):
            absent, places = absent_NL[:, i], np.arange(len(samples))
            if absent.mean() > 0.5:
                raise UnmaskError(
                    f"{name} has no numbers in {absent.mean():.0%} of the lead {lead}: leave the record out, or choose "
                    "other leads."
                )
            samples[absent, i] = np.interp(places[absent], places[~absent], samples[~absent, i])
        return replace(self, samples=samples)

    def at(self, rate: float) -> Signal:
        """A copy with `rate` samples a second, by a polyphase filter (`scipy.signal.resample_poly`)."""
        if rate == self.rate:
            return self
        return replace(self, samples=resample(self.samples, self.rate, rate), rate=rate)


@dataclass(frozen=True, slots=True)
class Annotations:
    """What somebody noted along a record.

    samples  [A] int64, ascending: the sample of each annotation, at the rate of the record
    symbols  A codes, such as "N" for a normal beat
    texts    A further notes, such as "(AFIB" where atrial fibrillation begins; "" without one
    notes    what is unusual, as those of a record
    """

    samples: np.ndarray
    symbols: tuple[str, ...]
    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def only(self, symbols: Mapping[str, str]) -> Annotations:
        """The annotations with these symbols, which become their values: beats as their classes."""
        kept = [i for i, symbol in enumerate(self.symbols) if symbol in symbols]
        names = tuple(symbols[self.symbols[i]] for i in kept)
        return replace(self, samples=self.samples[kept], symbols=names, texts=tuple(self.texts[i] for i in kept))

    def within(self, samples: int) -> Annotations:
        """The annotations of the first `samples` samples; a note says if there are later ones."""
        count = int(np.searchsorted(self.samples, samples))
        if count == len(self):
            return self
        note = "with annotations beyond the end, which are left out"
        return replace(self.part(self.samples, 0, samples), notes=(*self.notes, note))

    def part(self, samples: np.ndarray, first: int, last: int) -> Annotations:
        """Those between two samples, counted from the first; `samples` [A] are theirs, maybe at another rate."""
        kept = np.flatnonzero((samples >= first) & (samples < last)).tolist()
        symbols, texts = tuple(self.symbols[i] for i in kept), tuple(self.texts[i] for i in kept)
        return replace(self, samples=samples[kept] - first, symbols=symbols, texts=texts)


def joined(leads: Sequence[np.ndarray], rates: Sequence[float]) -> tuple[np.ndarray, float, tuple[str, ...]]:
    """Leads [N_l] of maybe unequal rates as samples [N, L] of the highest of them, that rate, and notes. The longest
    leads are cut to the shortest."""
    highest = max(rates)
    equal = [resample(lead, rate, highest) for lead, rate in zip(leads, rates, strict=True)]
    shortest = min(map(len, equal))
    notes = () if min(rates) == highest else (UNEQUAL,)
    return single(np.stack([lead[:shortest] for lead in equal], 1)), highest, notes


def single(numbers: np.ndarray) -> np.ndarray:
    """Numbers as float32; those that are too large become infinite, which counts as a gap."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def resampled(samples: int, rate: float, new: float) -> int:
    """Number of samples after resampling."""
    up, down = _ratio(rate, new)
    return -(-samples * up // down)


def resample(samples: np.ndarray, rate: float, new: float) -> np.ndarray:
    """Samples [N, ...] of `rate` a second as float32 of `new` a second. Beyond the ends, the line through the first and
    the last sample goes on, so that a record that does not begin at zero has no jump."""
    from scipy.signal import resample_poly

    up, down = _ratio(rate, new)
    if up == down:
        return samples
    found: np.ndarray = resample_poly(samples, up, down, padtype="line")
    return found.astype(np.float32)


def _ratio(rate: float, new: float) -> tuple[int, int]:
    ratio = Fraction(new / rate).limit_denominator(FINEST) or Fraction(1, FINEST)
    return ratio.numerator, ratio.denominator

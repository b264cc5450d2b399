"""Building a corpus of records: decoded and resampled once, in parallel, and written into shards."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unmask.data.files import building
from unmask.data.files.building import KEPT, Damage, DecodedBatch, Progress, decoded
from unmask.data.files.damage import MOST_DAMAGED
from unmask.data.files.items import SHOWN, Items, visible
from unmask.data.files.shards import SHARD_BYTES, Unit
from unmask.data.files.timed import cut
from unmask.data.labelled.rows import listed
from unmask.data.signals.checks import doubts_of
from unmask.data.signals.corpus import SignalCorpus
from unmask.data.signals.decoding import decode, digest_of, read
from unmask.data.signals.folder import LONGEST
from unmask.data.signals.items import SignalItem
from unmask.data.signals.processor import FILE, SignalProcessor
from unmask.errors import Missing, UnmaskError, plural

RESAMPLED = "with another number of samples a second than the corpus: they are resampled"
HIGHEST_RATE = 1_000_000
SHORTEST = 1.0  # seconds that the longest unit has at least


class Origin(NamedTuple):
    """What a unit was decoded from.

    rate     of its file, in samples a second
    leads    their number
    seconds  of the unit
    doubts   what is unusual about the record, with the first of its units
    opens    whether it is the first unit of its record
    """

    rate: float
    leads: int
    seconds: float
    doubts: tuple[str, ...]
    opens: bool


@dataclass(frozen=True)
class Decode:
    """Decodes some records; it can be pickled. The facts of a unit are an `Origin`.

    rate      samples a second
    longest   seconds of a unit; a longer record is cut into equal parts
    own_rate  samples a second of files that do not say theirs; None: such a file is damaged
    keep      whether to return the samples, not only a description
    """

    rate: int
    longest: float = LONGEST
    own_rate: float | None = None
    keep: bool = True

    def __call__(self, works: list[SignalItem]) -> DecodedBatch:
        found = DecodedBatch(done=len(works))
        for work in works:
            try:
                found.units += self._units(work)
            except Missing:  # a package; the file may be valid
                raise
            except UnmaskError as error:
                found.damaged.append(Damage(str(error), work.label, work.place))
        return found

    def _units(self, work: SignalItem) -> list[Unit]:
        raw = read(work.source, own_rate=work.own_rate or self.own_rate, name=work.place)
        whole = decode(raw, self.rate, work.begin, work.end, name=work.place)
        first = raw.header.bounds(self.rate, work.begin)[0]
        edges = np.minimum(np.rint(cut(whole.header.seconds, self.longest) * self.rate), len(whole.samples)).astype(int)
        digest, doubts, units = digest_of(work.source), doubts_of(raw), list[Unit]()
        single = len(edges) == 1 and not work.begin and work.end is None
        for begin, end in edges.tolist():
            own = (
                digest if single else hashlib.blake2b(f"{digest} {first + begin}".encode(), digest_size=16).hexdigest()
            )
            samples = whole.samples[begin:end] if self.keep else whole.samples[:0]
            origin = Origin(raw.rate, len(raw.leads), (end - begin) / self.rate, doubts if not begin else (), not begin)
            shape = (first + begin, end - begin, len(raw.leads))
            units.append(Unit(work.name, work.label, samples.ravel().astype("<f4"), shape, bytes.fromhex(own), origin))
        return units


@dataclass
class Tally:
    """Counts records. `rate` and `longest` are those of the corpus."""

    rate: int
    longest: float
    rates: Counter[str] = field(default_factory=Counter)
    leads: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    doubts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, unit: Unit) -> None:
        origin: Origin = unit.facts
        self.seconds.append(origin.seconds)
        if origin.opens:
            self.rates[f"{origin.rate:,g}"] += 1
            self.leads[plural(origin.leads, "lead")] += 1
            other = (RESAMPLED,) if origin.rate != self.rate else ()
            for doubt in (*origin.doubts, *other):
                self.doubts.setdefault(doubt, []).append(visible(unit.name))

    def facts(self) -> dict[str, Any]:
        return {
            "rate": self.rate,
            "longest": self.longest,
            "units": len(self.seconds),
            "hours": self.hours,
            "seconds": self.lengths((0.0, 0.5, 1.0)),
            "rates": dict(self.rates.most_common(KEPT)),
            "leads": dict(self.leads.most_common(KEPT)),
        }

    @property
    def hours(self) -> float:
        """Of all units."""
        return sum(self.seconds) / 3600

    def lengths(self, quantiles: tuple[float, ...]) -> list[float]:
        """Seconds of the units at some quantiles; empty without units."""
        return np.quantile(self.seconds, quantiles).tolist() if self.seconds else []

    def notes(self) -> list[str]:
        return [
            f"{plural(len(names), 'record')} {doubt} ({listed(names, SHOWN)})" for doubt, names in self.doubts.items()
        ]


def build(
    items: Items[Any],
    out: Path | str,
    *,
    rate: int | None = None,
    longest: float = LONGEST,
    workers: int = 1,
    most_damaged: float = MOST_DAMAGED,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> SignalCorpus:
    """Write a corpus folder from records, in their order.

    items    as `items_of` finds them
    rate     samples a second, also of files that do not say theirs; None: that of the processor in the folder of the
             items, else of the default one, and files must say theirs
    longest  seconds of a unit; a longer record is cut into equal parts

    For the other arguments see `data.pictures.building.build`. Memory: a record for each worker. Raises UnmaskError if
    there are no records, too many are damaged, `out` cannot be written, or a number is out of range.
    """
    processor = SignalProcessor.load(items.path) if (items.path / FILE).is_file() else None
    own_rate, rate = rate, rate or (processor or SignalProcessor()).rate
    check_sizes(rate, longest)

    def own(folder: Path) -> Sequence[str]:
        return processor.save(folder) if processor is not None else ()

    building.build(
        items,
        out,
        decoded(items, Decode(rate, longest, own_rate), workers),
        SignalCorpus.format,
        Tally(rate, longest),
        own=own,
        most_damaged=most_damaged,
        shard_bytes=shard_bytes,
        progress=progress,
    )
    return SignalCorpus(out)


def check_sizes(rate: int, longest: float) -> None:
    """Raises UnmaskError for a rate or a longest unit out of range."""
    if not 1 <= rate <= HIGHEST_RATE:
        raise UnmaskError(f"The rate of a corpus of records must be 1 to {HIGHEST_RATE:,}, not {rate:,}.")
    if not longest >= SHORTEST:
        raise UnmaskError(f"The longest unit must have at least {SHORTEST:g} s, not {longest:g}.")

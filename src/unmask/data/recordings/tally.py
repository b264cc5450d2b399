"""Tally: what a manifest and a report say of recordings: hours, rates, clipped, silent and overlapping ones."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from unmask.data.files.building import KEPT
from unmask.data.files.items import SHOWN, visible
from unmask.data.files.shards import Unit
from unmask.errors import plural

QUANTILES = (0.0, 0.5, 1.0)


class Sound(NamedTuple):
    """What a unit was decoded from.

    rate, coding, channels  of its file
    seconds                 of the unit
    trimmed                 seconds of silence at its ends that were left out
    silent                  whether it is silent
    clipped                 clipped samples of the stretch that it opens
    opens                   whether it is the first unit of its file, or of the part of a file that a table names
    span                    begin and end of that part, in seconds; None for a whole file
    """

    rate: int
    coding: str
    channels: int
    seconds: float
    trimmed: float
    silent: bool
    clipped: int
    opens: bool
    span: tuple[float, float | None] | None


@dataclass
class Tally:
    """Counts recordings. `rate`, `longest` and `trim` are those of the corpus."""

    rate: int
    longest: float
    trim: bool
    rates: Counter[str] = field(default_factory=Counter)
    codings: Counter[str] = field(default_factory=Counter)
    channels: Counter[str] = field(default_factory=Counter)
    seconds: array[float] = field(default_factory=lambda: array("f"))
    clipped: dict[str, int] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    trimmed: float = 0.0
    spans: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, unit: Unit) -> None:
        sound: Sound = unit.facts
        self.seconds.append(sound.seconds)
        self.trimmed += sound.trimmed
        if sound.clipped:
            self.clipped[unit.name] = self.clipped.get(unit.name, 0) + sound.clipped
        if sound.silent:
            self.silent.append(unit.name)
        if sound.opens:
            self.rates[f"{sound.rate:,}"] += 1
            self.codings[sound.coding] += 1
            self.channels[str(sound.channels)] += 1
            if sound.span is not None:
                begin, end = sound.span
                self.spans[unit.name].append((begin, float("inf") if end is None else end))

    def facts(self) -> dict[str, Any]:
        return {
            "rate": self.rate,
            "longest": self.longest,
            "trim": self.trim,
            "units": len(self.seconds),
            "hours": self.hours,
            "seconds": self.lengths(QUANTILES),
            "rates": dict(self.rates.most_common(KEPT)),
            "clipped": len(self.clipped),
            "silent": len(self.silent),
            "trimmed": self.trimmed,
        }

    @property
    def hours(self) -> float:
        """Of all units."""
        return float(np.sum(self.seconds, dtype=np.float64)) / 3600

    def lengths(self, quantiles: tuple[float, ...]) -> list[float]:
        """Seconds of the units at some quantiles; empty without units."""
        return np.quantile(np.frombuffer(self.seconds, np.float32), quantiles).tolist() if self.seconds else []

    def notes(self) -> list[str]:
        notes = []
        other = sum(self.rates.values()) - self.rates[f"{self.rate:,}"]
        if other:
            are = "is" if other == 1 else "are"
            notes.append(f"{plural(other, 'recording')} {are} resampled to {self.rate:,} samples a second")
        if mixed := sum(self.channels.values()) - self.channels["1"]:
            has = "has" if mixed == 1 else "have"
            notes.append(f"{plural(mixed, 'recording')} {has} several channels, whose mean is read")
        if self.clipped:
            are = "is" if len(self.clipped) == 1 else "are"
            worst = sorted(self.clipped, key=lambda name: -self.clipped[name])
            named = [f"{visible(name)}: {plural(self.clipped[name], 'sample')}" for name in worst[:SHOWN]]
            notes.append(f"{plural(len(self.clipped), 'recording')} {are} clipped ({_some(named, len(worst))})")
        if self.silent:
            are = "is" if len(self.silent) == 1 else "are"
            named = [visible(name) for name in self.silent[:SHOWN]]
            notes.append(f"{plural(len(self.silent), 'unit')} {are} silent ({_some(named, len(self.silent))})")
        if self.trim:
            notes.append(f"{self.trimmed:,.1f} s of silence at the ends were left out")
        return notes + self._overlaps()

    def _overlaps(self) -> list[str]:
        found = [
            f"{visible(name)}: {one[0]:g} to {one[1]:g} s and {other[0]:g} to {other[1]:g} s"
            for name, spans in self.spans.items()
            for one, other in pairwise(sorted(spans))
            if other[0] < one[1]
        ]
        if not found:
            return []
        return [f"{plural(len(found), 'pair')} of parts of a file overlap ({_some(found[:SHOWN], len(found))})"]


def _some(shown: list[str], count: int) -> str:
    return ", ".join(shown) + (", ..." if count > len(shown) else "")

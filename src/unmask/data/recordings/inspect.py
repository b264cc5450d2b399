"""Corpus check of recordings: hours, lengths, rates, codings, damaged, clipped and silent ones, and copies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from unmask.data.files.building import Progress, decoded
from unmask.data.files.gathered import Gathered, ending
from unmask.data.files.items import Items, shares
from unmask.data.recordings.building import Decode, check_sizes, stretches
from unmask.data.recordings.folder import LONGEST
from unmask.data.recordings.tally import Tally

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `check`.

    recordings   number of recordings that can be decoded
    hours        of all of them
    units        number of units of a corpus that is built from them
    seconds      of a unit at QUANTILES, from the shortest to the longest
    rates        samples a second -> number of recordings, the most frequent first
    codings      container and coding -> number of recordings
    channels     number of channels -> number of recordings
    classes      label -> number of units; empty without labels
    clipped      number of recordings with clipped samples
    silent       number of units that are silent
    damaged      number of recordings that cannot be decoded
    reasons      the first of their reasons
    copies       number of units with the same content as an earlier one
    conflicting  number of copies with another label than the first one
    notes        sentences on what else was found
    """

    recordings: int
    hours: float
    units: int
    seconds: tuple[float, ...]
    rates: dict[str, int]
    codings: dict[str, int]
    channels: dict[str, int]
    classes: dict[str, int]
    clipped: int
    silent: int
    damaged: int
    reasons: tuple[str, ...]
    copies: int
    conflicting: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def check(
    items: Items[Any],
    *,
    rate: int = 16_000,
    longest: float = LONGEST,
    workers: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Decode all recordings once and describe them, as a corpus with this `rate` and `longest` unit has them."""
    check_sizes(rate, longest)
    tally, gathered = Tally(rate, longest, False), Gathered("recording")
    for found in decoded(items, Decode(rate, longest, keep=False), workers, stretches(items, longest)):
        for unit in found.units:
            tally.add(unit)
        gathered.add(found)
        if progress is not None:
            progress("recordings", gathered.done, items.count)
    return Report(
        recordings=gathered.intact,
        hours=tally.hours,
        units=len(gathered.names),
        seconds=tuple(tally.lengths(QUANTILES)),
        rates=dict(tally.rates.most_common()),
        codings=dict(tally.codings.most_common()),
        channels=dict(tally.channels.most_common()),
        clipped=len(tally.clipped),
        silent=len(tally.silent),
        **gathered.facts([*items.notes, *tally.notes()]),
    )


def render(report: Report) -> str:
    """The report as plain lines for a terminal."""
    lines = [f"recordings  {report.recordings:,}, {report.hours:,.2f} hours"]
    if report.units:
        ends = " / ".join(f"{seconds:,.1f}" for seconds in report.seconds)
        lines += [
            f"units       {report.units:,}; shortest / 25% / 50% / 75% / longest: {ends} s",
            f"rates       {shares(report.rates)}",
            f"codings     {shares(report.codings)}",
            f"channels    {shares(report.channels)}",
            f"classes     {shares(report.classes) or 'none'}",
            f"clipped     {report.clipped:,}",
            f"silent      {report.silent:,}",
        ]
    return "\n".join([*lines, *ending(report)])

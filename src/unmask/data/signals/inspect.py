"""Corpus check of records: hours, lengths, rates, leads, damaged and unusual ones, and copies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from unmask.data.files.building import Progress, decoded
from unmask.data.files.gathered import Gathered, ending
from unmask.data.files.items import Items, shares
from unmask.data.signals.building import Decode, Tally, check_sizes
from unmask.data.signals.folder import LONGEST
from unmask.data.signals.processor import SignalProcessor

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `check`.

    records      number of records that can be decoded
    hours        of all of them
    units        number of units of a corpus that is built from them
    seconds      of a unit at QUANTILES, from the shortest to the longest
    rates        samples a second -> number of records, the most frequent first
    leads        number of leads -> number of records
    classes      label -> number of units; empty without labels
    damaged      number of records that cannot be decoded
    reasons      the first of their reasons
    copies       number of units with the same content as an earlier one
    conflicting  number of copies with another label than the first one
    notes        sentences on what else was found
    """

    records: int
    hours: float
    units: int
    seconds: tuple[float, ...]
    rates: dict[str, int]
    leads: dict[str, int]
    classes: dict[str, int]
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
    rate: int | None = None,
    longest: float = LONGEST,
    workers: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Decode all records once and describe them, as a corpus with this `rate` and `longest` unit has them. None: the
    rate of the default processor, and files must say theirs."""
    wanted = rate or SignalProcessor().rate
    check_sizes(wanted, longest)
    tally, gathered = Tally(wanted, longest), Gathered("record")
    for found in decoded(items, Decode(wanted, longest, rate, keep=False), workers):
        for unit in found.units:
            tally.add(unit)
        gathered.add(found)
        if progress is not None:
            progress("records", gathered.done, items.count)
    return Report(
        records=gathered.intact,
        hours=tally.hours,
        units=len(gathered.names),
        seconds=tuple(tally.lengths(QUANTILES)),
        rates=dict(tally.rates.most_common()),
        leads=dict(tally.leads.most_common()),
        **gathered.facts([*items.notes, *tally.notes()]),
    )


def render(report: Report) -> str:
    """The report as plain lines for a terminal."""
    lines = [f"records     {report.records:,}, {report.hours:,.2f} hours"]
    if report.units:
        ends = " / ".join(f"{seconds:,.1f}" for seconds in report.seconds)
        lines += [
            f"units       {report.units:,}; shortest / 25% / 50% / 75% / longest: {ends} s",
            f"rates       {shares(report.rates)}",
            f"leads       {shares(report.leads)}",
            f"classes     {shares(report.classes) or 'none'}",
        ]
    return "\n".join([*lines, *ending(report)])

"""Corpus check of recordings: hours, lengths, rates, codings, damaged, clipped and silent ones, and copies."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from unmask.data.files.building import KEPT, Progress, decoded
from unmask.data.files.copies import copies_note, copies_of
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
    tally, classes, reasons, done = Tally(rate, longest, False), Counter[str](), dict[str, str](), 0
    names, labels, digests = list[str](), list[str](), list[bytes]()
    for found in decoded(items, Decode(rate, longest, keep=False), workers, stretches(items, longest)):
        for unit in found.units:
            tally.add(unit)
            names.append(unit.name)
            labels.append(unit.label)
            digests.append(unit.digest)
        reasons = {one.place: one.reason for one in found.damaged} | reasons
        done += found.done
        if progress is not None:
            progress("recordings", done, items.count)
    classes.update(label for label in labels if label)
    copies = copies_of(digests)
    return Report(
        recordings=done - len(reasons),
        hours=tally.hours,
        units=len(names),
        seconds=tuple(tally.lengths(QUANTILES)),
        rates=dict(tally.rates.most_common()),
        codings=dict(tally.codings.most_common()),
        channels=dict(tally.channels.most_common()),
        classes=dict(classes.most_common()),
        clipped=len(tally.clipped),
        silent=len(tally.silent),
        damaged=len(reasons),
        reasons=tuple(reasons.values())[:KEPT],
        copies=len(copies),
        conflicting=sum(labels[number] != labels[first] for number, first in copies.items()),
        notes=(
            *items.notes,
            *tally.notes(),
            *copies_note(copies, names.__getitem__, labels.__getitem__, "recording"),
        ),
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
    lines.append(f"damaged     {report.damaged:,}")
    lines += [f"  {reason}" for reason in report.reasons]
    lines.append(f"copies      {report.copies:,}")
    lines += [f"  {note.removesuffix('.')}." for note in report.notes]
    return "\n".join(lines)

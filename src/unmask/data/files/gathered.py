"""Gathered: what the corpus checks of pictures, recordings and records collect and say in the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from unmask.data.files.building import KEPT, DecodedBatch
from unmask.data.files.copies import copies_note, copies_of


class Gathered:
    """The names, labels and digests of the units of a corpus, and the items that could not be decoded. Memory: about
    300 bytes a unit.

    noun  one item: "picture"
    """

    def __init__(self, noun: str) -> None:
        self.noun, self.done = noun, 0
        self.names: list[str] = []
        self.labels: list[str] = []
        self.digests: list[bytes] = []
        self.reasons: dict[str, str] = {}  # place -> the first reason; several parts of an item may be damaged

    def add(self, found: DecodedBatch) -> None:
        """Collect some decoded items."""
        for unit in found.units:
            self.names.append(unit.name)
            self.labels.append(unit.label)
            self.digests.append(unit.digest)
        self.reasons = {one.place: one.reason for one in found.damaged} | self.reasons
        self.done += found.done

    @property
    def intact(self) -> int:
        """The number of items that could be decoded."""
        return self.done - len(self.reasons)

    def facts(self, notes: Sequence[str]) -> dict[str, Any]:
        """The fields that all reports have; `notes` come before that on copies."""
        copies = copies_of(self.digests)
        return {
            "classes": dict(Counter(label for label in self.labels if label).most_common()),
            "damaged": len(self.reasons),
            "reasons": tuple(self.reasons.values())[:KEPT],
            "copies": len(copies),
            "conflicting": sum(self.labels[number] != self.labels[first] for number, first in copies.items()),
            "notes": (*notes, *copies_note(copies, self.names.__getitem__, self.labels.__getitem__, self.noun)),
        }


class Checked(Protocol):
    """A report with the fields of `Gathered.facts`."""

    @property
    def damaged(self) -> int: ...
    @property
    def reasons(self) -> tuple[str, ...]: ...
    @property
    def copies(self) -> int: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def ending(report: Checked) -> list[str]:
    """The last lines of a report for a terminal."""
    lines = [f"damaged     {report.damaged:,}", *(f"  {reason}" for reason in report.reasons)]
    return [*lines, f"copies      {report.copies:,}", *(f"  {note.removesuffix('.')}." for note in report.notes)]

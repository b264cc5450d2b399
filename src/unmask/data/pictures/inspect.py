"""Corpus check of pictures: sizes, colour modes, classes, damaged files and copies, before a corpus is built."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unmask.data.files.building import Progress, decoded
from unmask.data.files.gathered import Gathered, ending
from unmask.data.files.items import Items, shares
from unmask.data.pictures.building import Decode, size_of

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `check`.

    pictures     number of pictures that can be decoded
    shorter      pixels of the shorter side at QUANTILES, from the smallest to the largest
    sizes        size -> number of pictures, the most frequent first
    modes        colour mode of Pillow -> number of files
    classes      label -> number of pictures; empty without labels
    damaged      number of pictures that cannot be decoded
    reasons      the first of their reasons
    copies       number of pictures with the same content as an earlier one
    conflicting  number of copies with another label than the first one
    notes        sentences on what else was found
    """

    pictures: int
    shorter: tuple[float, ...]
    sizes: dict[str, int]
    modes: dict[str, int]
    classes: dict[str, int]
    damaged: int
    reasons: tuple[str, ...]
    copies: int
    conflicting: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def check(items: Items[Any], *, workers: int = 1, progress: Progress | None = None) -> Report:
    """Decode all pictures once and describe them. Memory: about 300 bytes a picture."""
    sizes, modes, shorter, gathered = Counter[str](), Counter[str](), array("I"), Gathered("picture")
    for found in decoded(items, Decode(keep=False), workers):
        for unit in found.units:
            sizes[size_of(unit.shape)] += 1
            modes[unit.facts] += 1
            shorter.append(min(unit.shape[:2]))
        gathered.add(found)
        if progress is not None:
            progress("pictures", gathered.done, items.count)
    quantiles = np.quantile(np.frombuffer(shorter, np.uint32), QUANTILES).tolist() if shorter else ()
    return Report(
        pictures=len(gathered.names),
        shorter=tuple(quantiles),
        sizes=dict(sizes.most_common()),
        modes=dict(modes.most_common()),
        **gathered.facts(items.notes),
    )


def render(report: Report) -> str:
    """The report as plain lines for a terminal."""
    lines = [f"pictures    {report.pictures:,}"]
    if report.pictures:
        ends = " / ".join(f"{side:,.0f}" for side in report.shorter)
        lines += [
            f"sizes       {shares(report.sizes)}",
            f"short side  smallest / 25% / 50% / 75% / largest: {ends} pixels",
            f"modes       {shares(report.modes)}",
            f"classes     {shares(report.classes) or 'none'}",
        ]
    return "\n".join([*lines, *ending(report)])

"""Heatmap: a matrix of weights between named rows and columns, as a section of a page."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

CELL, CHARACTER, HEIGHT = 22, 8, 16  # pixels


@dataclass(frozen=True)
class Heatmap:
    """Weights from 0 to 1, one row of them for each name in `rows`; darker is more."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    note: str = ""

    def html(self) -> str:
        left = CHARACTER * max(map(_wide, self.rows)) + 10
        top = CHARACTER * max(map(_wide, self.columns)) + 10
        width, height = left + CELL * len(self.columns), top + CELL * len(self.rows)
        parts = [
            f'<text x="{left + CELL * i + HEIGHT}" y="{top - 6}" transform="rotate(-90 {left + CELL * i + HEIGHT} '
            f'{top - 6})">{escape(name)}</text>'
            for i, name in enumerate(self.columns)
        ]
        for j, (name, row) in enumerate(zip(self.rows, self.values, strict=True)):
            parts.append(f'<text x="{left - 6}" y="{top + CELL * j + HEIGHT}" text-anchor="end">{escape(name)}</text>')
            parts += [
                f'<rect class="bar" x="{left + CELL * i}" y="{top + CELL * j}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill="var(--s0)" fill-opacity="{value:.3f}"><title>{escape(name)} · '
                f"{escape(column)} {value:.3f}</title></rect>"
                for i, (column, value) in enumerate(zip(self.columns, row, strict=True))
            ]
        svg = f'<svg class="chart" viewBox="0 0 {width} {height}" style="max-width:{width}px">{"".join(parts)}</svg>'
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return f'<section><h2>{escape(self.title)}</h2><div class="scroll">{svg}</div>{note}</section>'


def _wide(name: str) -> int:
    """The width of a name in Latin letters; a letter of Han, Kana or Hangul counts as two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name)

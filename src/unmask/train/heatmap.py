"""Heatmap: a matrix of weights between named rows and columns, as a section of a page."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from unmask.train.chart import Drawing

CELL, CHARACTER, HEIGHT = 22, 8, 16  # pixels
LONGEST = 24  # characters of a name; longer ones are cut, and shown in full where the pointer rests
FAINT = 0.55  # opacity of a weight of 1 below a text, which stays readable on light and on dark pages


@dataclass(frozen=True)
class Heatmap:
    """Weights from 0 to 1, one row of them for each name in `rows`; darker is more. `texts`, if given, are the texts in
    the cells: the matrix then keeps its size on a narrow page, which scrolls."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    note: str = ""
    texts: Sequence[Sequence[str]] = ()

    def drawing(self) -> Drawing:
        longest = max((len(text) for row in self.texts for text in row), default=0)
        cell = max(CELL, CHARACTER * longest + 8)
        left = CHARACTER * max(map(_wide, map(_cut, self.rows))) + 10
        top = CHARACTER * max(map(_wide, map(_cut, self.columns))) + 10
        width, height = left + cell * len(self.columns), top + CELL * len(self.rows)
        parts = []
        for i, name in enumerate(self.columns):
            x = left + cell * i + cell // 2 + 5
            parts.append(f'<text x="{x}" y="{top - 6}" transform="rotate(-90 {x} {top - 6})">{_name(name)}</text>')
        for j, (name, row) in enumerate(zip(self.rows, self.values, strict=True)):
            parts.append(f'<text x="{left - 6}" y="{top + CELL * j + HEIGHT}" text-anchor="end">{_name(name)}</text>')
            for i, (column, value) in enumerate(zip(self.columns, row, strict=True)):
                x, y, shade = left + cell * i, top + CELL * j, FAINT * value if self.texts else value
                parts.append(
                    f'<rect class="bar" x="{x}" y="{y}" width="{cell - 1}" height="{CELL - 1}" '
                    f'fill="var(--s0)" fill-opacity="{shade:.3f}"><title>{escape(name)} · '
                    f"{escape(column)} {value:.3f}</title></rect>"
                )
                if self.texts:
                    middle = x + (cell - 1) / 2
                    parts.append(f'<text class="cell" x="{middle}" y="{y + HEIGHT}">{escape(self.texts[j][i])}</text>')
        return Drawing(width, height, "".join(parts), kind="matrix" if self.texts else "chart")

    def html(self) -> str:
        width, height, marks, _, kind = self.drawing()
        bound = "width" if self.texts else "max-width"
        svg = f'<svg class="{kind}" viewBox="0 0 {width} {height}" style="{bound}:{width}px">{marks}</svg>'
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return f'<section><h2>{escape(self.title)}</h2><div class="scroll">{svg}</div>{note}</section>'


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _name(name: str) -> str:
    return f"{escape(_cut(name))}<title>{escape(name)}</title>"


def _wide(name: str) -> int:
    """The width of a name in Latin letters; a letter of Han, Kana or Hangul counts as two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name)

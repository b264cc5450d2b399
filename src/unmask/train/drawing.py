"""Charts, heat maps and pictures as one SVG file, for documents and slides."""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from unmask.train.chart import Bars, Chart, Drawing, Key, swatch
from unmask.train.gallery import Gallery
from unmask.train.heatmap import Heatmap
from unmask.train.report import COLOURS, DRAWINGS

MARGIN, LINE, LETTER = 12, 18, 7.3  # pixels: around a drawing, of a line of text, of a letter on average
NARROWEST = 480

Figure = Chart | Bars | Heatmap | Gallery


def svg(figures: Sequence[Figure]) -> str:
    """An SVG file with the figures below each other, each with its title, legend and note. It has its own style, in the
    colours of a light page, and neither scripts nor links."""
    drawn = [(figure, figure.drawing() or Drawing(NARROWEST, 0, "")) for figure in figures]
    width = max([NARROWEST, *(drawing.width for _, drawing in drawn)])
    y, parts = 0, []
    for figure, drawing in drawn:
        y += MARGIN
        for line in _lines(figure.title, width, 1.1):
            y += LINE
            parts.append(f'<text class="title" x="0" y="{y}">{escape(line)}</text>')
        y += LINE // 2
        for row in _rows(drawing.legend, width):
            for x, key in row:
                parts.append(f'<g transform="translate({x} {y})">{swatch(key)}</g>')
                parts.append(f'<text class="note" x="{x + 32}" y="{y + 10}">{escape(key.name)}</text>')
            y += LINE
        parts.append(f'<g class="{drawing.kind}" transform="translate(0 {y})">{_bare(drawing.marks)}</g>')
        y += drawing.height
        for line in _lines(figure.note, width, 1.0):
            y += LINE
            parts.append(f'<text class="note" x="0" y="{y}">{escape(line)}</text>')
    box = f"{-MARGIN} 0 {width + 2 * MARGIN} {y + MARGIN}"
    size = f'width="{width + 2 * MARGIN}" height="{y + MARGIN}"'
    back = f'<rect x="{-MARGIN}" width="{width + 2 * MARGIN}" height="{y + MARGIN}" fill="var(--back)"/>'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="{box}"><style>{STYLE}</style>{back}'
    return _literal("\n".join([begin, *parts, "</svg>\n"]))


def images(figures: Sequence[Figure], width: int = 400) -> str:
    """HTML of the figures side by side, each at most `width` pixels wide. They are images, because the style of an SVG
    element would change the page around it."""
    drawn = ((figure.title, base64.b64encode(svg([figure]).encode()).decode()) for figure in figures)
    return "".join(
        f'<img alt="{escape(title)}" style="max-width: {width}px; display: inline-block" '
        f'src="data:image/svg+xml;base64,{content}">'
        for title, content in drawn
    )


def _lines(text: str, width: int, size: float) -> list[str]:
    return textwrap.wrap(text, int(width / LETTER / size))


def _rows(legend: Sequence[Key], width: int) -> list[list[tuple[int, Key]]]:
    """The entries of a legend with their places, in rows that fit into the width."""
    rows: list[list[tuple[int, Key]]] = []
    x = 0
    for key in legend:
        room = round(46 + LETTER * len(key.name))
        if not rows or x + room > width:
            rows.append([])
            x = 0
        rows[-1].append((x, key))
        x += room
    return rows


def _bare(marks: str) -> str:
    """Without the texts for the pointer and the spots that show them, which a picture in a document cannot use."""
    return re.sub(r'<circle class="spot.*?</circle>|<title>.*?</title>', "", marks)


def _literal(markup: str) -> str:
    """With the colours in place of their names, which not every program for slides knows."""
    words = COLOURS.replace(";", " ").replace(":", " ").split()
    light = {name: value for name, value in pairwise(words) if name.startswith("--")}
    return re.sub(r"var\((--\w+)\)", lambda name: light[name[1]], markup)


STYLE = f"""
text {{ font: 13px system-ui, sans-serif; fill: var(--ink); }}
.title {{ font-size: 15px; font-weight: 600; }} text.note {{ fill: var(--soft); }}
{DRAWINGS}"""

"""report.html: one self-contained page, without network or scripts, with a dark mode, readable on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from unmask import files
from unmask.train.chart import Bars, Chart, Series, number
from unmask.train.gallery import Captioned, Gallery
from unmask.train.heatmap import Heatmap

__all__ = [
    "Bars",
    "Captioned",
    "Chart",
    "Code",
    "Facts",
    "Gallery",
    "Heatmap",
    "Sample",
    "Samples",
    "Section",
    "Series",
    "Table",
    "Text",
    "render",
    "write",
]


@dataclass(frozen=True)
class Text:
    """Paragraphs. `kind` "warning" highlights them."""

    paragraphs: Sequence[str]
    title: str = ""
    kind: str = ""

    def html(self) -> str:
        body = "".join(f"<p>{escape(p)}</p>" for p in self.paragraphs)
        return f'<section class="text {escape(self.kind)}">{_heading(self.title)}{body}</section>'


@dataclass(frozen=True)
class Code:
    """Lines of a program."""

    title: str
    lines: str

    def html(self) -> str:
        return f"<section>{_heading(self.title)}<pre>{escape(self.lines)}</pre></section>"


@dataclass(frozen=True)
class Table:
    """Rows under named columns. Numbers are aligned to the right; the largest number of a column in `best` is bold."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    best: Sequence[str] = ()

    def html(self) -> str:
        columns = [[row[i] for row in self.rows] for i in range(len(self.columns))]
        cells = [_cells(column, name in self.best) for name, column in zip(self.columns, columns, strict=True)]
        kinds = [' class="number"' if any(map(_is_number, column)) else "" for column in columns]
        head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, self.columns, strict=True))
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        return f"<section>{_heading(self.title)}{table}{note}</section>"


@dataclass(frozen=True)
class Facts:
    """Names and values, e.g. a configuration or the facts of a corpus. With `folded`, a click opens the table."""

    title: str
    values: Mapping[str, Any]
    folded: bool = False

    def html(self) -> str:
        rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(_shown(v))}</td></tr>" for k, v in self.values.items())
        table = f'<div class="scroll"><table class="facts"><tbody>{rows}</tbody></table></div>'
        if self.folded:
            return f"<section><details><summary>{escape(self.title)}</summary>{table}</details></section>"
        return f"<section>{_heading(self.title)}{table}</section>"


@dataclass(frozen=True)
class Sample:
    """A prompt and the model's answers in the course of training: (when, [(answer, probability)])."""

    prompt: str
    answers: Sequence[tuple[str, Sequence[tuple[str, float]]]]


@dataclass(frozen=True)
class Samples:
    """Prompts with their answers in the course of training; answers in `expected` are highlighted."""

    title: str
    samples: Sequence[Sample]
    expected: Mapping[str, Sequence[str]] = field(default_factory=dict)
    note: str = ""

    def html(self) -> str:
        parts = []
        for sample in self.samples:
            good = {e.lower() for e in self.expected.get(sample.prompt, ())}
            rows = ""
            for when, answers in sample.answers:
                row = "".join(_answer(answer, p, answer.lower() in good) for answer, p in answers)
                rows += f"<tr><th>{escape(when)}</th><td>{row}</td></tr>"
            parts.append(
                f'<div class="sample"><p class="prompt">{escape(sample.prompt)}</p><table>{rows}</table></div>'
            )
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return f"<section>{_heading(self.title)}{''.join(parts)}{note}</section>"


Section = Text | Code | Table | Facts | Samples | Chart | Bars | Heatmap | Gallery


def render(title: str, sections: Sequence[Section], *, subtitle: str = "") -> str:
    """The HTML of the page. Consecutive charts are side by side if there is room."""
    parts: list[str] = []
    charts: list[str] = []
    for section in [*sections, None]:
        if isinstance(section, (Chart, Bars)):
            charts.append(section.html())
            continue
        if charts:
            parts.append(f'<div class="charts">{"".join(charts)}</div>')
            charts = []
        if section is not None:
            parts.append(section.html())
    below = f'<p class="subtitle">{escape(subtitle)}</p>' if subtitle else ""
    return PAGE.format(title=escape(title), style=STYLE, subtitle=below, body="\n".join(parts))


def write(folder: Path, title: str, sections: Sequence[Section], *, subtitle: str = "") -> Path:
    """Write `folder/report.html` atomically. Raises UnmaskError if that is not possible."""
    path = folder / "report.html"
    page = render(title, sections, subtitle=subtitle)
    files.write_text(path, page.encode(errors="replace").decode())  # UTF-8 cannot encode a lone surrogate
    return path


def _heading(title: str) -> str:
    return f"<h2>{escape(title)}</h2>" if title else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value)
    return ", ".join(map(_shown, value)) if isinstance(value, (list, tuple)) else str(value)


def _cells(column: Sequence[Any], bold: bool) -> list[str]:
    """The cells of a column; fractions in it have the same number of decimals."""
    fractions = [v for v in column if isinstance(v, float) and 0.001 <= abs(v) < 1000]
    decimals = max((len(number(round(v, 4)).partition(".")[2]) for v in fractions), default=0)
    largest = max(filter(_is_number, column), default=None)
    cells = []
    for value in column:
        aligned = isinstance(value, float) and (value == 0 or 0.001 <= abs(value) < 1000)
        text = escape(f"{value:.{decimals}f}" if aligned else _shown(value))
        kind = ' class="number"' if _is_number(value) else ""
        cells.append(f"<td{kind}>{f'<b>{text}</b>' if bold and value == largest else text}</td>")
    return cells


def _answer(answer: str, probability: float, good: bool) -> str:
    kind = "answer good" if good else "answer"
    return f'<span class="{kind}">{escape(answer)} <small>{100 * probability:.0f} %</small></span>'


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{subtitle}
{body}
</main>
</body>
</html>
"""

# The colours of a light page. The series have those of Okabe & Ito (2008), which colour-blind readers tell apart; they
# are lighter in the dark.
COLOURS = """--back: #fff; --card: #f7f7f8; --ink: #1c1d21; --soft: #5d6068; --rule: #dcdde1; --warn: #fff3d6;
  --s0: #0072b2; --s1: #d55e00; --s2: #007d5c; --s3: #b0588c; --s4: #9a6a00; --s5: #3a8fc4; --good: #d8f0e6;"""

# The style of drawings, on a page or in a file of their own.
DRAWINGS = """.chart text { font-size: 13px; fill: var(--soft); }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.floor { fill: none; stroke: var(--soft); stroke-width: 1.5; }
.spread { stroke-width: 1.5; opacity: .6; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); }
.s3 { stroke: var(--s3); } .s4 { stroke: var(--s4); } .s5 { stroke: var(--s5); }
.dot { stroke: none; } .spot { fill: transparent; stroke: none; } .bar { stroke: none; }
.dot.s0, .bar.s0 { fill: var(--s0); } .dot.s1, .bar.s1 { fill: var(--s1); } .dot.s2, .bar.s2 { fill: var(--s2); }
.dot.s3, .bar.s3 { fill: var(--s3); } .dot.s4, .bar.s4 { fill: var(--s4); } .dot.s5, .bar.s5 { fill: var(--s5); }
.block { stroke-width: 9; }
.matrix text { font-size: 13px; fill: var(--ink); }
.matrix .cell { text-anchor: middle; pointer-events: none; font-variant-numeric: tabular-nums; }
"""

STYLE = (
    f":root {{ {COLOURS} }}\n{DRAWINGS}"
    + """
@media (prefers-color-scheme: dark) {
  :root { --back: #15161a; --card: #1e2026; --ink: #e8e9ed; --soft: #a3a7b3; --rule: #363943; --warn: #43361a;
    --s0: #56b4e9; --s1: #ff8a3d; --s2: #2fc79b; --s3: #e09ac4; --s4: #e6b422; --s5: #9ad0f5; --good: #1d4a3b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 1.15rem; margin: 32px 0 8px; }
p { margin: 0 0 10px; max-width: 75ch; overflow-wrap: anywhere; }
.subtitle, .note, .empty { color: var(--soft); }
.note { font-size: .875rem; margin-top: 6px; }
.charts { display: grid; gap: 16px; margin: 20px 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
figure { margin: 0; padding: 12px 12px 8px; background: var(--card); border-radius: 8px;
  max-width: 640px; min-width: 0; }
figcaption { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 0 14px; font-size: .8125rem; color: var(--soft); }
.chart { width: 100%; height: auto; display: block; }
@media (max-width: 500px) { .chart text { font-size: 16px; } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9375rem; }
th, td { text-align: left; vertical-align: top; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; } .facts th, .sample th { font-weight: 400; color: var(--soft); white-space: nowrap; }
td { overflow-wrap: anywhere; min-width: 4ch; } .number { font-variant-numeric: tabular-nums; text-align: right; }
td.number { white-space: nowrap; } .scroll td:first-child { min-width: 9ch; }
pre { overflow-x: auto; font: .875rem/1.45 ui-monospace, monospace; background: var(--card); border-radius: 8px;
  padding: 10px 14px; }
.warning { background: var(--warn); border-radius: 8px; padding: 10px 14px 2px; margin: 16px 0; }
.warning h2 { margin-top: 0; }
.sample { margin: 0 0 18px; } .sample th, .sample td { border: 0; padding-top: 2px; padding-bottom: 2px; }
.prompt { font-weight: 600; margin-bottom: 2px; }
.answer { display: inline-block; margin: 0 10px 2px 0; padding: 0 5px; border-radius: 4px; }
.good { background: var(--good); } small { color: var(--soft); }
.matrix { display: block; }
.gallery { display: grid; gap: 14px 10px; grid-template-columns: repeat(auto-fill, minmax(112px, 1fr)); }
.picture { min-width: 0; } .picture img { display: block; width: 96px; height: 96px; object-fit: contain; }
.picture.wide { grid-column: span 2; } .picture.wide img { width: 100%; height: 64px; object-fit: fill; }
.picture b, .picture small { display: block; width: fit-content; max-width: 100%; overflow-wrap: anywhere;
  font-size: .8125rem; line-height: 1.35; font-weight: 400; }
.picture b { margin: 4px 0 1px; padding: 0 4px; border-radius: 4px; background: var(--warn); }
.picture b.good { background: var(--good); } .picture b.plain { background: none; padding: 0; }
summary { cursor: pointer; font-weight: 600; font-size: 1.15rem; margin: 32px 0 8px; }
"""
)

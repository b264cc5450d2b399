"""Charts as inline SVG: lines over linear or logarithmic axes, with floors and spreads, and bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 26, 28, 46
MOST_POINTS = 240  # points of a line; longer lines are averaged
MOST_TICKS = 8  # of a logarithmic axis; with more, their labels would overlap
MOST_PLACES = 7  # with at most so many x values, a logarithmic x axis labels each of them
MOST_DOTS = 40  # lines with more points are drawn without dots
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "12 4")  # a second cue besides the colour
COLOURS = len(DASHES)


class Key(NamedTuple):
    """What a colour stands for: a name, the class of the colour in a style sheet, and the dashes of its line."""

    name: str
    kind: str
    dash: str = ""


class Drawing(NamedTuple):
    """SVG elements of a drawing of `width` by `height` pixels, its legend, and its class in the style sheet."""

    width: int
    height: int
    marks: str
    legend: Sequence[Key] = ()
    kind: str = "chart"


@dataclass(frozen=True)
class Series:
    """A line: (x, y) points, and optionally a symmetric spread of each y. A y that is None is a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]
    spread: Sequence[float] | None = None


@dataclass(frozen=True)
class Chart:
    """Lines on common axes. `floors`: name -> y of a horizontal reference line, e.g. the unigram entropy."""

    title: str
    series: Sequence[Series]
    x: str = "step"
    y: str = ""
    log_x: bool = False
    log_y: bool = False
    floors: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def html(self) -> str:
        """A figure with title, legend, drawing and note."""
        return _figure(self.title, self.drawing(), self.note)

    def drawing(self) -> Drawing | None:
        """None if there is nothing to draw."""
        drawn = [_prepared(s, self.log_x, self.log_y) for s in self.series]
        floors = {k: v for k, v in self.floors.items() if _drawable(v, self.log_y)}
        if not any(s.points for s in drawn):
            return None
        across, up = self._axes(drawn, floors)
        marks = [_grid(across, up, self.x, self.y)]
        marks += [_floor(name, y, up) for name, y in floors.items()]
        marks += [_line(s, i % COLOURS, across, up) for i, s in enumerate(drawn) if s.points]
        keys = [Key(s.name, f"s{i % COLOURS}", DASHES[i % COLOURS]) for i, s in enumerate(drawn) if s.points]
        keys += [Key(f"{name} ({number(y)})", "floor", "6 4") for name, y in floors.items()]
        return Drawing(WIDTH, HEIGHT, "".join(marks), keys)

    def _axes(self, drawn: Sequence[Series], floors: Mapping[str, float]) -> tuple[Axis, Axis]:
        points = [(x, y) for s in drawn for x, y in s.points if y is not None]
        heights = [y for _, y in points] + list(floors.values())
        for s in drawn:
            if s.spread is not None:
                pairs = [(y, d) for (_, y), d in zip(s.points, s.spread, strict=True) if y is not None]
                heights += [y + d for y, d in pairs] + [y - d for y, d in pairs if not self.log_y or y > d]
        across = Axis.fit([x for x, _ in points], LEFT, WIDTH - RIGHT, log=self.log_x)
        places = sorted({x for x, _ in points})
        if self.log_x and len(places) <= MOST_PLACES:
            across = across._replace(ticks=tuple(places))
        return across, Axis.fit(heights, HEIGHT - BOTTOM, TOP, log=self.log_y)


@dataclass(frozen=True)
class Bars:
    """Groups of bars. `values`: name of a series -> its value for each label."""

    title: str
    labels: Sequence[str]
    values: Mapping[str, Sequence[float]]
    y: str = ""
    note: str = ""

    def html(self) -> str:
        """A figure with title, legend, drawing and note."""
        return _figure(self.title, self.drawing(), self.note)

    def drawing(self) -> Drawing | None:
        """None if there is nothing to draw."""
        everything = [v for values in self.values.values() for v in values if math.isfinite(v)]
        if not everything:
            return None
        up = Axis.fit([0.0, *everything], HEIGHT - BOTTOM, TOP)
        marks = [_grid(None, up, "", self.y)]
        room = (WIDTH - LEFT - RIGHT) / len(self.labels)
        width = 0.8 * room / len(self.values)
        for i, label in enumerate(self.labels):
            middle = LEFT + (i + 0.5) * room
            marks.append(_text(middle, HEIGHT - BOTTOM + 18, label, "middle"))
            for j, (name, values) in enumerate(self.values.items()):
                if math.isfinite(values[i]):
                    left = middle + (j - len(self.values) / 2) * width
                    top, bottom = sorted((up.place(values[i]), up.place(0.0)))
                    title = f"{label}, {name}: {number(values[i])}"
                    marks.append(
                        f'<rect class="bar s{j % COLOURS}" x="{left:.1f}" y="{top:.1f}" width="{0.92 * width:.1f}" '
                        f'height="{max(0.5, bottom - top):.1f}"><title>{escape(title)}</title></rect>'
                    )
        return Drawing(
            WIDTH, HEIGHT, "".join(marks), [Key(n, f"block s{j % COLOURS}") for j, n in enumerate(self.values)]
        )


class Axis(NamedTuple):
    """A mapping of the values from `low` to `high` to the pixels from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool
    ticks: tuple[float, ...]

    @classmethod
    def fit(cls, values: Sequence[float], begin: float, end: float, *, log: bool = False) -> Axis:
        """An axis that holds all values, with round ticks."""
        low, high = min(values), max(values)
        alone = math.isclose(low, high, rel_tol=1e-8)  # too close for labels to differ
        if log:
            if alone:
                low, high = low / 2, high * 2
            if begin > end:
                low, high = _rounded(low, math.floor), _rounded(high, math.ceil)
            ticks = _log_ticks(low, high)
        else:
            if alone:
                low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
            ticks = _ticks(low, high)
            if begin > end:  # the y axis ends on ticks, so that lines do not touch the frame
                low, high = min(low, ticks[0]), max(high, ticks[-1])
        return cls(low, high, begin, end, log, tuple(t for t in ticks if low <= t <= high))

    def place(self, value: float) -> float:
        """The pixel of a value."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        return self.begin + ((math.log(value) if self.log else value) - low) / (high - low) * (self.end - self.begin)


def number(value: float) -> str:
    """A number for a label: few digits, with k, M or G from 10,000 on.

    >>> number(0.25), number(1500), number(2_000_000), number(0.00001)
    ('0.25', '1,500', '2M', '1e-5')
    """
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        for unit, divisor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if abs(value) >= divisor:
                return f"{value / divisor:.4g}{unit}"
    if abs(value) < 0.001:
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten that enclose the range, at most about `most`."""
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)

    def inside(multiples: Sequence[int]) -> list[float]:
        return [m * 10.0**d for d in decades for m in multiples if low <= m * 10.0**d <= high]

    for ticks in (inside((1,)), inside((1, 2, 5))):
        if len(ticks) >= 3:
            return ticks[:: math.ceil(len(ticks) / MOST_TICKS)]
    return _ticks(low, high)


def _rounded(value: float, towards: Callable[[float], int]) -> float:
    """The next 1, 2 or 5 times a power of ten below (math.floor) or above (math.ceil)."""
    power = 10.0 ** math.floor(math.log10(value))
    marks = [m * power for m in (1, 2, 5, 10)]
    if towards is math.floor:
        return max(m for m in marks if m <= value * (1 + 1e-9))
    return min(m for m in marks if m >= value * (1 - 1e-9))


def _drawable(value: float | None, log: bool) -> bool:
    return value is not None and math.isfinite(value) and (not log or value > 0)


def _prepared(series: Series, log_x: bool, log_y: bool) -> Series:
    """The series for drawing: values that cannot be drawn become gaps; long lines are averaged over runs of points."""
    points = [(x, y if _drawable(y, log_y) else None) for x, y in series.points if _drawable(x, log_x)]
    if all(y is None for _, y in points):
        return Series(series.name, [])
    if len(points) <= MOST_POINTS:
        return Series(series.name, points, series.spread if len(points) == len(series.points) else None)
    size = math.ceil(len(points) / MOST_POINTS)
    runs = [points[i : i + size] for i in range(0, len(points), size)]
    return Series(series.name, [(run[-1][0], _mean([y for _, y in run if y is not None])) for run in runs])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _line(series: Series, colour: int, across: Axis, up: Axis) -> str:
    path, pen = [], "M"
    for x, y in series.points:
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{across.place(x):.1f} {up.place(y):.1f}")
        pen = "L"
    dash = f' stroke-dasharray="{DASHES[colour]}"' if DASHES[colour] else ""
    marks = [f'<path class="line s{colour}" d="{"".join(path)}"{dash}/>']
    known = [(i, x, y) for i, (x, y) in enumerate(series.points) if y is not None]
    for i, x, y in known:
        px, py = across.place(x), up.place(y)
        label = f"{series.name}, {number(x)}: {number(y)}"
        if series.spread is not None:
            d = series.spread[i]
            ends = [up.place(v) for v in (y - d, y + d) if not up.log or v > 0]
            label += f" ± {number(d)}"
            if len(ends) == 2:
                marks.append(f'<path class="spread s{colour}" d="M{px:.1f} {ends[0]:.1f}V{ends[1]:.1f}"/>')
        kind = "dot" if len(known) <= MOST_DOTS else "spot"
        radius = 3 if kind == "dot" else 5
        title = f"<title>{escape(label)}</title>"
        marks.append(f'<circle class="{kind} s{colour}" cx="{px:.1f}" cy="{py:.1f}" r="{radius}">{title}</circle>')
    return "".join(marks)


def _floor(name: str, y: float, up: Axis) -> str:
    title = escape(f"{name}: {number(y)}")
    at = up.place(y)
    return (
        f'<path class="floor" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke-dasharray="6 4"><title>{title}</title></path>'
    )


def _grid(across: Axis | None, up: Axis, x: str, y: str) -> str:
    marks = []
    for tick in up.ticks:
        at = up.place(tick)
        marks.append(
            f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>' + _text(LEFT - 6, at + 4, number(tick), "end")
        )
    if across is not None:
        for tick in across.ticks:
            at = across.place(tick)
            marks.append(f'<path class="grid" d="M{at:.1f} {HEIGHT - BOTTOM}v4"/>')
            marks.append(_text(at, HEIGHT - BOTTOM + 18, number(tick), "middle"))
    marks.append(f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    marks.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x, "middle"))
    marks.append(_text(4, 12, y, "start"))
    return "".join(marks)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def swatch(key: Key) -> str:
    """SVG elements of 26 by 10 pixels: the line of a legend."""
    stroke = f' stroke-dasharray="{key.dash}"' if key.dash else ""
    return f'<path class="line {key.kind}" d="M1 5H25"{stroke}/>'


def _svg(title: str, drawing: Drawing) -> str:
    box = f'viewBox="0 0 {drawing.width} {drawing.height}" role="img" aria-label="{escape(title)}"'
    return f'<svg class="chart" {box}>{drawing.marks}</svg>'


def _figure(title: str, drawing: Drawing | None, note: str) -> str:
    caption = f'<p class="note">{escape(note)}</p>' if note else ""
    body = '<p class="empty">Nothing has been measured yet.</p>' if drawing is None else _svg(title, drawing)
    spans = [
        f'<span><svg width="26" height="10" aria-hidden="true">{swatch(key)}</svg> {escape(key.name)}</span>'
        for key in (drawing.legend if drawing else ())
    ]
    legend = f'<div class="legend">{"".join(spans)}</div>' if spans else ""
    return f"<figure><figcaption>{escape(title)}</figcaption>{legend}{body}{caption}</figure>"

"""The results as a table in Markdown and as a plot of ratios; tables of the other benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.common import Result, introduction

HEADER = ("row", "what is measured", "unmask", "beside", "it has", "times as fast (range)", "goal")
COLOURS = {"reached": "#007d5c", "missed": "#c85200", "": "#0072b2"}


def render(facts: Mapping[str, Any]) -> str:
    """Machine and versions, a line for each row and peer, and the notes of the rows.

    "times as fast" is the median of the turns, with minimum and maximum.
    """
    rows = facts["rows"]
    table = [_cells(HEADER), "|---" * len(HEADER) + "|"]
    table += [_line(row, line, first=i == 0) for row in rows for i, line in enumerate(row["lines"])]
    quick = ["The smallest sizes, one turn: these figures mean nothing."] if facts["run"]["quick"] else []
    notes = [f"- {row['name']}: {note}" for row in rows for note in row.get("notes", ())]
    notes += [
        f"- {row['name']}: {side} was left out, without {', '.join(packages)}."
        for row in rows
        for side, packages in row["missing"].items()
    ]
    notes += [f"- {row['name']} has no result: {row['failed']}" for row in rows if "failed" in row]
    parts = [" ".join([*(f"{line}." if not line.endswith(".") else line for line in introduction(facts["machine"]))])]
    return "\n\n".join([*parts, *quick, "\n".join(table), *(["\n".join(notes)] if notes else [])])


def _line(row: Result, line: Result, *, first: bool) -> str:
    ratio = line.get("ratio")
    return _cells(
        (
            row["name"] if first else "",
            row["work"] if first else "",
            line["ours"]["shown"] if first else "",
            line["peer"] or "nobody",
            line["theirs"]["shown"] if "theirs" in line else "",
            f"**{ratio['median']:.2f}** ({ratio['least']:.2f} to {ratio['greatest']:.2f})" if ratio else "",
            f"{line['goal']}: {'reached' if line['reached'] else 'not reached'}" if "goal" in line else "",
        )
    )


def _cells(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown with aligned columns; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *body = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    rule = " | ".join("-" * width for width in widths)
    return "\n".join(f"| {text} |" for text in (head, rule, *body))


def plot(facts: Mapping[str, Any], path: Path) -> None:
    """Draw how many times as fast unmask is in each row, compared with each peer: median, minimum and maximum.

    Points are green where the goal is reached, orange where it is not, and blue without a goal.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from unmask.files import atomic

    found = [(row, line) for row in facts["rows"] for line in row["lines"] if "ratio" in line][::-1]
    figure = Figure(figsize=(8, 1.2 + 0.32 * max(1, len(found))), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for place, (_, line) in enumerate(found):
        ratio = line["ratio"]
        judged = ("reached" if line["reached"] else "missed") if "goal" in line else ""
        around = [[ratio["median"] - ratio["least"]], [ratio["greatest"] - ratio["median"]]]
        axis.errorbar(ratio["median"], place, xerr=around, fmt="o", capsize=3, color=COLOURS[judged])
    axis.axvline(1, color="#5f6672", linewidth=0.8)
    axis.set_yticks(range(len(found)), [f"{row['name']} / {line['peer']}" for row, line in found], fontsize=8)
    axis.set(xscale="log", xlabel="times as fast as the peer: median, least and greatest")
    axis.xaxis.set_major_formatter("{x:g}")
    with atomic(path) as temporary:
        figure.savefig(
            temporary, format=path.suffix[1:], dpi=160, metadata={"Date": None} if path.suffix == ".svg" else {}
        )

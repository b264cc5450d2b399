"""The display of a run in a notebook: a bar, the newest numbers and their curves, redrawn in place."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from unmask.train.chart import Chart, Series
from unmask.train.display import Display, Terminal, TimeLeft, duration, readable
from unmask.train.drawing import images
from unmask.train.metrics import thin
from unmask.train.report import Table

SECONDS_BETWEEN = 1.0  # between drawings; evaluations are always drawn
MOST, DRAWN = 2, 200  # charts; points of a line


def usual() -> Display:
    """The display that fits: `Notebook` in one, else that of a terminal or of plain lines."""
    shell = sys.modules.get("IPython")  # a notebook has imported it
    current = None if shell is None else shell.get_ipython()
    return Terminal() if current is None or not hasattr(current, "kernel") else Notebook()


class Notebook:
    """One output of a cell for each training; notes are lines above it."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[str, list[Mapping[str, Any]]] = {"train": [], "heldout": []}
        self._left, self._step, self._last = TimeLeft(), 0, float("-inf")

    def start(self, step: int, total: int) -> None:
        self._left.start(step, total)
        self._step = step
        self._draw()

    def show(self, row: Mapping[str, Any]) -> None:
        self._rows.setdefault(str(row["split"]), []).append(row)
        self._step = row["step"]
        now = time.monotonic()
        if row["split"] != "train" or now - self._last >= SECONDS_BETWEEN or self._step == self._left.total:
            self._last = now
            self._draw()

    def note(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        self._handle = None  # the next training gets an output of its own
        self._clear()

    def _draw(self) -> None:
        from IPython.display import HTML, display

        picture = HTML(self.html())
        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)

    def html(self) -> str:
        """The bar, the table of the newest numbers, and charts of the first ones that evaluations have."""
        total, left = self._left.total, self._left.at(self._step)
        place = f"step {self._step:,} of {total:,}" if total else "before the first step"
        remaining = f", {duration(left)} left" if left else ""
        bar = f'<progress value="{self._step}" max="{max(1, total)}" aria-label="{place}"></progress>'
        newest = [dict(readable(rows[-1])) if rows else {} for rows in (self._rows["train"], self._rows["heldout"])]
        names = dict.fromkeys([*newest[0], *newest[1]])
        table = Table(
            "", ["", "training", "held out"], [[name, *(one.get(name, "") for one in newest)] for name in names]
        )
        return f"<p>{bar} {place}{remaining}</p>{table.html() if names else ''}{images(self._charts())}"

    def _charts(self) -> list[Chart]:
        named = {"training": self._rows["train"], "held out": self._rows["heldout"]}
        last = next((rows[-1] for rows in reversed(named.values()) if len(rows) > 1), {})
        names = [name for name, value in last.items() if isinstance(value, float) and name != "seconds"][:MOST]
        found = []
        for name in names:
            points = {line: [(row["step"], row[name]) for row in rows if name in row] for line, rows in named.items()}
            lines = [Series(line, thin(of, DRAWN)) for line, of in points.items() if of]
            found.append(Chart(name, lines))
        return found

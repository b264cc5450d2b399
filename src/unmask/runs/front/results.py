"""Trained and Scored: what the functions at the top return; a notebook shows them as a table and curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from unmask.runs.report import curve, history
from unmask.train import report
from unmask.train.drawing import images
from unmask.train.report import Chart

MOST = 2  # curves in a notebook


@dataclass(frozen=True, repr=False)
class Trained:
    """A run that has ended.

    folder    its folder: the model, metrics.jsonl and report.html
    scores    name -> value, as of the model in the folder: those of the last evaluation, or of each split (`dev/f1`)
    baseline  name -> the value that needs no model, where it is known
    summary   how the run ended, in a few lines
    stopped   why it ended before its last step, else None
    metric    the score that decided which model was kept; empty: none did
    """

    folder: Path
    scores: Mapping[str, float]
    summary: str
    baseline: Mapping[str, float] = field(default_factory=dict)
    stopped: str | None = None
    metric: str = ""

    @property
    def report(self) -> Path:
        """The page about the run, report.html."""
        return self.folder / "report.html"

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl, in the order of their steps: `step`, `seconds`, `split`, and numbers by name."""
        train, heldout = history(self.folder)
        return sorted([*train, *heldout], key=lambda row: row["step"])

    def __fspath__(self) -> str:
        return str(self.folder)

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        return f"<Trained in {self.folder}: {_line(self.scores, self.metric) or 'not evaluated'}>"

    def _repr_html_(self) -> str:
        head = f"<p>Trained in <code>{escape(str(self.folder))}</code>; the report is {escape(self.report.name)}.</p>"
        return head + table(self.scores, self.baseline) + images(curves_of(self.folder))


class Scored(Mapping[str, float]):
    """The scores of a model, by name.

    facts  all that the evaluation found, as `unmask evaluate --json` prints it
    text   the same as a table of text
    """

    def __init__(
        self, scores: Mapping[str, float], facts: Mapping[str, Any], text: str, baseline: Mapping[str, float]
    ) -> None:
        self._scores, self.facts, self.text, self.baseline = dict(scores), facts, text, baseline

    def __getitem__(self, name: str) -> float:
        return self._scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Scored: {_line(self)}>"

    def _repr_html_(self) -> str:
        return table(self, self.baseline)


def table(scores: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    """An HTML table of scores, with a column for the baseline if there is one."""
    if baseline:
        rows = [[name, _shown(value), _shown(baseline.get(name))] for name, value in scores.items()]
        return report.Table("", ["score", "model", "baseline"], rows).html()
    return report.Table("", ["score", "model"], [[name, _shown(value)] for name, value in scores.items()]).html()


def curves_of(folder: Path) -> Sequence[Chart]:
    """Charts of the first values that evaluations have, beside those of training."""
    train, heldout = history(folder)
    known = [name for row in (heldout[-1:] or train[-1:]) for name in row]
    names = [name for name in dict.fromkeys(known) if name not in ("step", "seconds", "split")][:MOST]
    return [chart for name in names for chart in curve(name, name, {"training": train, "held out": heldout})]


def _line(scores: Mapping[str, float], first: str = "") -> str:
    names = sorted(scores, key=lambda name: name.rpartition("/")[2] != first)
    return ", ".join(f"{name} {_shown(scores[name])}" for name in names[:6]) + (", …" if len(scores) > 6 else "")


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"

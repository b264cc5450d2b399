"""report.html of a run: the kinds of runs there are, and what their pages have in common.

A report is a list of sections. Each kind of run has a module with `report_of(folder, facts) -> Report`, which says what
is on its page; `write_report` asks the run which kind it is, and adds the table of its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from unmask.config import flatten, read_json
from unmask.errors import UnmaskError, unknown
from unmask.train import checkpoint, report
from unmask.train.metrics import read as read_metrics

Rows = list[dict[str, Any]]  # of metrics.jsonl


@dataclass(frozen=True)
class Report:
    """What the page of one run shows; `config` comes last, and opens on a click."""

    title: str
    subtitle: str
    sections: Sequence[report.Section]
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of run: the module of its `report_of`, and the file with its facts."""

    module: str
    file: str = checkpoint.RUN


KINDS = {
    "pretraining": Kind("unmask.pretraining_report"),
    "finetuning": Kind("unmask.finetune_report"),
    "translation": Kind("unmask.translation.report"),
    "curve": Kind("unmask.curve", "curve.json"),
    "quickstart": Kind("unmask.quickstart", "quickstart.json"),
}
"""Kind of run, as run.json names it -> its report."""


def write_report(folder: Path) -> Path:
    """Write report.html of the run in `folder`, while it runs, too. Raises UnmaskError where there is no run, or a file
    of it is damaged."""
    beside = (name for name, kind in KINDS.items() if kind.file != checkpoint.RUN and (folder / kind.file).exists())
    name = next(beside, None)
    facts = run_facts(folder) if name is None else read_json(folder / KINDS[name].file)
    if not isinstance(facts.get("config", {}), dict):
        raise UnmaskError(f"{folder} holds a damaged run: its config is no JSON object.")
    name = name or facts.get("kind") or _kind_in_version_01(folder, facts)
    if name not in KINDS:
        raise unknown("kind of run", name, KINDS)
    found: Report = import_module(KINDS[name].module).report_of(folder, facts)
    sections = list(found.sections)
    if found.config is not None:
        sections.append(report.Facts("Configuration", flatten(found.config), folded=True))
    return report.write(folder, found.title, sections, subtitle=found.subtitle)


def _kind_in_version_01(folder: Path, facts: Mapping[str, Any]) -> str:
    """The kind of a run whose run.json does not name it."""
    if facts.get("recipe") == "finetune" or (folder / "results.json").exists():
        return "finetuning"
    return "translation" if "texts" in facts.get("config", {}) else "pretraining"


def run_facts(folder: Path) -> dict[str, Any]:
    """run.json of a run, from its newest checkpoint: that of the folder is older where a run that had ended was made
    longer, and then killed."""
    checkpoints = folder / "checkpoints"
    for step in reversed(checkpoint.steps(checkpoints)):
        with suppress(UnmaskError):  # damaged, or of a run whose checkpoints have none
            return checkpoint.read_one(checkpoint.folder_of(checkpoints, step), "run.json")
    return read_json(folder / "run.json") if (folder / "run.json").exists() else {}


# ------------------------------------------------------------------------------------------------ what pages share


def of_one_run(folder: Path, what: str, facts: Mapping[str, Any], sections: Sequence[report.Section]) -> Report:
    """The report of a run that trains one model: its recipe and its size below the name of the folder."""
    subtitle = f"{facts.get('recipe') or what.lower()} · {facts.get('parameters', 0) / 1e6:.1f} M parameters"
    return Report(f"{what}: {folder.name}", subtitle, sections, facts.get("config"))


def history(folder: Path) -> tuple[Rows, Rows]:
    """What metrics.jsonl holds of training, and of the held-out data."""
    path = folder / "metrics.jsonl"
    return read_metrics(path, "train"), read_metrics(path, "heldout")


def curve(
    title: str, key: str, found: Mapping[str, Rows], *, floors: Mapping[str, float] | None = None, note: str = ""
) -> list[report.Chart]:
    """The chart of one value of metrics.jsonl by step, a line for each name in `found`; none where no row has it."""
    points = {name: [(row["step"], row[key]) for row in rows if key in row] for name, rows in found.items()}
    lines = [report.Series(name, of) for name, of in points.items() if of]
    return [report.Chart(title, lines, floors=floors or {}, note=note)] if lines else []


def spread(lines: Rows, most: int) -> Rows:
    """At most so many of the lines, spread over all of them, the first and the last included."""
    count = min(most, len(lines))
    return [lines[round(i * (len(lines) - 1) / max(1, count - 1))] for i in range(count)]

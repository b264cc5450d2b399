"""report.html of a run: the kinds of runs, and the parts that their reports share.

A report is a list of sections. Each kind of run has a module with `report_of(folder, facts) -> Report`, which makes its
sections; `write_report` reads the kind from run.json, and adds the table of the configuration. The module may have
`weakness(folder, facts) -> str | None`, a sentence if the model has hardly learned anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from unmask.config import flatten, read_json
from unmask.data.files.png import size_of
from unmask.errors import UnmaskError, unknown
from unmask.runs import probes
from unmask.train import checkpoint, report
from unmask.train.metrics import read as read_metrics
from unmask.train.metrics import thin

Rows = list[dict[str, Any]]  # of metrics.jsonl
Answers = list[tuple[str, Sequence[tuple[str, float]]]]  # (step, predictions with their probabilities)


@dataclass(frozen=True)
class Report:
    """The content of a report; `config` comes last, and opens on a click."""

    title: str
    subtitle: str
    sections: Sequence[report.Section]
    config: Mapping[str, Any] | None = None


KINDS = {
    "pretraining": "unmask.runs.pretraining.evaluation",
    "finetuning": "unmask.runs.finetuning.report",
    "cross-validation": "unmask.runs.finetuning.cross_validation",
    "translation": "unmask.runs.translation.report",
    "curve": "unmask.runs.finetuning.learning_curve",
    "probe": "unmask.runs.finetuning.layer_probing",
    "quickstart": "unmask.runs.quickstart",
}
"""Kind of run in run.json -> the module of its `report_of`."""

SEVERAL = {"quickstart.json": "quickstart", "curve.json": "curve", "probe.json": "probe"}
"""File of a folder that holds several runs and has no run.json -> kind of report."""


def write_report(folder: Path) -> Path:
    """Write report.html of the run in `folder`, also while it runs. Raises UnmaskError if there is no run, or a file of
    the run is damaged."""
    file = next((name for name in SEVERAL if (folder / name).exists()), None)
    facts = read_json(folder / file) if file else run_facts(folder)
    if not isinstance(facts.get("config", {}), dict):
        raise UnmaskError(f"{folder} holds a damaged run: its config is no JSON object.")
    kind = SEVERAL[file] if file else str(facts.get("kind") or _kind_in_version_01(folder, facts))
    if kind not in KINDS:
        raise unknown("kind of run", kind, KINDS)
    found: Report = import_module(KINDS[kind]).report_of(folder, facts)
    config = [] if found.config is None else [report.Facts("Configuration", flatten(found.config), folded=True)]
    return report.write(folder, found.title, [*found.sections, *config], subtitle=found.subtitle)


def weakness(folder: Path) -> str | None:
    """A sentence if the model in a folder has hardly learned anything by the last evaluation of its run; None for
    others, and where the folder does not tell."""
    with suppress(UnmaskError, LookupError, TypeError, ValueError, AttributeError):
        facts = read_json(folder / "run.json")
        said = getattr(import_module(KINDS[str(facts.get("kind"))]), "weakness", None)
        return None if said is None else said(folder, facts)
    return None


def _kind_in_version_01(folder: Path, facts: Mapping[str, Any]) -> str:
    """The kind of a run of version 0.1, whose run.json does not name it."""
    if facts.get("recipe") == "finetune" or (folder / "results.json").exists():
        return "finetuning"
    return "translation" if "texts" in facts.get("config", {}) else "pretraining"


def run_facts(folder: Path) -> dict[str, Any]:
    """run.json of a run, from its newest checkpoint. The one in the folder is older if a finished run was extended and
    then killed."""
    checkpoints = folder / "checkpoints"
    for step in reversed(checkpoint.steps(checkpoints)):
        with suppress(UnmaskError):  # the checkpoint is damaged, or has no run.json
            return checkpoint.read_one(checkpoint.folder_of(checkpoints, step), "run.json")
    return read_json(folder / "run.json") if (folder / "run.json").exists() else {}


# ------------------------------------------------------------------------------------------------ shared parts


def of_one_run(folder: Path, what: str, facts: Mapping[str, Any], sections: Sequence[report.Section]) -> Report:
    """The report of a run that trains one model, with its recipe and its size in the subtitle."""
    subtitle = f"{facts.get('recipe') or what.lower()} · {facts.get('parameters', 0) / 1e6:.1f} M parameters"
    return Report(f"{what}: {folder.name}", subtitle, sections, facts.get("config"))


def history(folder: Path) -> tuple[Rows, Rows]:
    """The rows of metrics.jsonl: of training, and of evaluations."""
    path = folder / "metrics.jsonl"
    return read_metrics(path, "train"), read_metrics(path, "heldout")


def curve(
    title: str, key: str, found: Mapping[str, Rows], *, floors: Mapping[str, float] | None = None, note: str = ""
) -> list[report.Chart]:
    """The chart of one value of metrics.jsonl by step, with a line for each name in `found`; empty if no row has it."""
    points = {name: [(row["step"], row[key]) for row in rows if key in row] for name, rows in found.items()}
    lines = [report.Series(name, of) for name, of in points.items() if of]
    return [report.Chart(title, lines, floors=floors or {}, note=note)] if lines or not any(found.values()) else []


def galleries(folder: Path, most: int) -> list[report.Gallery]:
    """A gallery for each probe that is a picture or a spectrogram: what the model was given, then what it restored or
    found at up to `most` evaluations, spread over the run."""
    lines = thin([line for line in probes.read(folder) if line.get("samples")], most)
    found = []
    for n, probe in enumerate(lines[-1]["samples"] if lines else ()):
        if not (last := probes.pictures(probe)):
            continue
        *given, learned = last
        cells = [captioned(last[name], [name], probe["text"], None) for name in given]
        for line in lines:
            then = probes.pictures(line["samples"][n]) if n < len(line["samples"]) else {}
            if learned in then:
                said = [f"{100 * share:.0f} % {what}" for what, share in line["samples"][n].get("guesses", ())]
                cells.append(captioned(then[learned], [f"step {line['step']:,}", *said], probe["text"], None))
        note = "What the model does not find is covered." if probe.get("guesses") else ""
        found.append(report.Gallery(f"{learned.capitalize()} during training: {probe['text']}", cells, note))
    return found


def captioned(content: bytes, lines: Sequence[str], about: str, good: bool | None) -> report.Captioned:
    """A picture of a gallery, or a spectrogram, which is wide."""
    H, W = size_of(content)
    return report.Captioned(content, lines, about, good, wide=W >= 2 * H > 0)


def answers(folder: Path, most: int) -> list[tuple[dict[str, Any], Answers]]:
    """The probes of the last evaluation, each with its predictions at up to `most` evaluations, spread over the run."""
    lines = thin(probes.read(folder), most)
    return [
        (probe, [(f"step {x['step']:,}", x["samples"][n]["guesses"]) for x in lines if n < len(x["samples"])])
        for n, probe in enumerate(lines[-1]["samples"] if lines else ())
    ]

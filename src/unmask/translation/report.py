"""report.html of a translation run: its curves, what it writes as it learns, and where it looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unmask import probes
from unmask.config import flatten
from unmask.errors import UnmaskError
from unmask.report import run_facts
from unmask.serve.alignment import Alignment
from unmask.serve.translator import Translator
from unmask.train import report
from unmask.train.metrics import read as read_metrics
from unmask.translation.ending import hardly_learned

CURVES = (
    ("Loss per token (nats)", "next/nll"),
    ("Tokens guessed right", "next/correct"),
    ("BLEU of greedy translations", "bleu"),
    ("chrF of greedy translations", "chrf"),
    ("Share of exact answers", "exact"),
    ("Learning rate", "lr"),
    ("Real tokens per second", "tokens_per_second"),
)
MAPS = 3  # sentences whose alignment is shown


def write_translation(folder: Path) -> Path:
    """Write report.html from a run's files; while it runs, too."""
    run = run_facts(folder)
    subtitle = f"{run.get('recipe') or 'translation'} · {run.get('parameters', 0) / 1e6:.1f} M parameters"
    return report.write(folder, f"Translation: {folder.name}", translation_sections(folder, run), subtitle=subtitle)


def translation_sections(folder: Path, run: dict[str, Any]) -> list[report.Section]:
    """The parts of the page."""
    train, heldout = read_metrics(folder / "metrics.jsonl", "train"), read_metrics(folder / "metrics.jsonl", "heldout")
    sections: list[report.Section] = []
    if stuck := _hardly_learned(heldout, run):
        sections.append(report.Text([stuck], kind="warning"))
    if run.get("notes"):
        sections.append(report.Text(run["notes"], title="Data"))
    for title, key in CURVES:
        lines = [_series("training", train, key), _series("dev", heldout, key)]
        lines = [line for line in lines if line.points]
        if lines:
            sections.append(report.Chart(title, lines))
    shown = probes.read(folder)
    if shown:
        sections += [_written(shown)]
        sections += [_map(found) for found in _alignments(folder, [s["text"] for s in shown[-1]["samples"][:MAPS]])]
    if run:
        sections.append(report.Facts("Configuration", flatten(run["config"]), folded=True))
    return sections


def _hardly_learned(heldout: list[dict[str, Any]], run: dict[str, Any]) -> str | None:
    """What the run itself says at its end, if it has learned next to nothing."""
    if "metric" not in run:
        return None
    floor = None if run["config"].get("start") else run.get("baseline", {}).get("next/nll")
    minutes = run["config"].get("training", {}).get("minutes")
    return hardly_learned(heldout, run["metric"], floor, "--steps" if minutes is None else "--minutes")


def _series(name: str, rows: list[dict[str, Any]], key: str) -> report.Series:
    return report.Series(name, [(row["step"], row[key]) for row in rows if key in row])


def _written(lines: list[dict[str, Any]], most: int = 5) -> report.Table:
    """The last translations, below what was written on the way."""
    picked = [lines[round(i * (len(lines) - 1) / max(1, most - 1))] for i in range(min(most, len(lines)))]
    rows: list[list[str]] = []
    for number, sample in enumerate(lines[-1]["samples"]):
        rows.append(["source", sample["text"]])
        for line in dict.fromkeys(line["step"] for line in picked):
            found = next(one for one in picked if one["step"] == line)["samples"]
            if number < len(found):
                rows.append([f"step {line:,}", found[number]["guesses"][0][0]])
        rows += [["reference", " / ".join(sample["expected"])], ["", ""]]
    return report.Table("What it writes, as it learns", ["", "text"], rows[:-1])


def _alignments(folder: Path, sources: list[str]) -> list[Alignment]:
    """Where the finished model looks; nothing for a run that has not ended, or a model without attention."""
    if not (folder / "model.safetensors").exists():
        return []
    translator = Translator(folder)
    try:
        return [translator.alignment(source, translator([source])[0]) for source in sources]
    except UnmaskError:
        return []


def _map(found: Alignment) -> report.Heatmap:
    title = "".join(found.source[:-1]).replace("·", " ").strip()
    return report.Heatmap(f"Where it looks: {title}", found.target, found.source, found.weights)

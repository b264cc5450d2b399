"""The report of a translation run: curves, translations during training, and attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.runs.report import Answers, Report, Rows, answers, curve, history, of_one_run
from unmask.runs.translation.ending import hardly_learned
from unmask.serve.translator import Translator
from unmask.train import report
from unmask.train.metrics import require_run

CURVES = (
    ("Loss per token (nats)", "next/nll"),
    ("Accuracy of tokens", "next/correct"),
    ("BLEU of greedy texts", "bleu"),
    ("chrF of greedy texts", "chrf"),
    ("ROUGE-1 of greedy summaries", "rouge1"),
    ("ROUGE-2 of greedy summaries", "rouge2"),
    ("ROUGE-L of greedy summaries", "rougeL"),
    ("BLEU of greedy turns", "bleu_turns"),
    ("Distinct words of greedy turns (%)", "distinct1"),
    ("Distinct pairs of words of greedy turns (%)", "distinct2"),
    ("F1 of greedy trees", "f1"),
    ("Greedy trees that need no repair (%)", "sound"),
    ("Greedy lines of code that parse (%)", "parses"),
    ("Share of exact answers", "exact"),
    ("Learning rate", "lr"),
    ("Real tokens per second", "tokens_per_second"),
)
MAPS = 3  # sentences whose alignment is shown


def report_of(folder: Path, run: dict[str, Any]) -> Report:
    """The report of a run. Raises UnmaskError if the folder has no metrics.jsonl."""
    require_run(folder)
    train, heldout = history(folder)
    sections: list[report.Section] = []
    if stuck := _hardly_learned(heldout, run):
        sections.append(report.Text([stuck], kind="warning"))
    if run.get("notes"):
        sections.append(report.Text(run["notes"], title="Data"))
    for title, key in CURVES:
        sections += curve(title, key, {"training": train, "dev": heldout})
    if probed := answers(folder, 5):
        sections.append(_written(probed))
        sections += _maps(folder, [probe["text"] for probe, _ in probed[:MAPS]])
    return of_one_run(folder, "Translation", run, sections)


def _hardly_learned(heldout: Rows, run: dict[str, Any]) -> str | None:
    """The sentence of the run's summary if it has learned next to nothing."""
    if "metric" not in run:
        return None
    floor = None if run["config"].get("start") else run.get("baseline", {}).get("next/nll")
    minutes = run["config"].get("training", {}).get("minutes")
    return hardly_learned(heldout, run["metric"], floor, "--steps" if minutes is None else "--minutes")


def _written(probed: list[tuple[dict[str, Any], Answers]]) -> report.Table:
    """The translations of some dev sources at several evaluations, and their references."""
    rows: list[list[str]] = []
    for probe, given in probed:
        rows += [["source", probe["text"]], *([step, guesses[0][0]] for step, guesses in given)]
        rows += [["reference", " / ".join(probe["expected"])], ["", ""]]
    return report.Table("Translations during training", ["", "text"], rows[:-1])


def _maps(folder: Path, sources: list[str]) -> list[report.Heatmap]:
    """The attention of the finished model; empty for a run that has not ended, or a model without attention."""
    if not (folder / "model.safetensors").exists():
        return []
    translator = Translator(folder)
    try:
        found = [translator.alignment(source, translator([source])[0]) for source in sources]
    except UnmaskError:
        return []
    titles = ["".join(one.source[:-1]).replace("·", " ").strip() for one in found]
    return [
        report.Heatmap(f"Attention: {title}", one.target, one.source, one.weights)
        for title, one in zip(titles, found, strict=True)
    ]

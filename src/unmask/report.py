"""report.html of a run: its curves beside what word frequencies alone reach, its guesses, its configuration."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from unmask import probes
from unmask.config import flatten, read_json
from unmask.errors import UnmaskError
from unmask.objectives import Term, registry
from unmask.pretraining_evaluation import guessing, plateau
from unmask.train import checkpoint, report
from unmask.train.metrics import read as read_metrics
from unmask.train.metrics import require_run


def write_report(folder: Path) -> Path:
    """Write the report of whatever run lies in `folder`. Raises UnmaskError where none does."""
    if (folder / "quickstart.json").exists():
        from unmask.quickstart import write_quickstart

        return write_quickstart(folder)
    if (folder / "curve.json").exists():
        from unmask.curve import write_curve

        return write_curve(folder)
    if (folder / "results.json").exists():
        from unmask.finetune_report import write_report as write_finetuning

        return write_finetuning(folder)
    require_run(folder)
    if "texts" in run_facts(folder).get("config", {}):
        from unmask.translation.report import write_translation

        return write_translation(folder)
    return write_pretraining(folder)


def write_pretraining(folder: Path) -> Path:
    """Write report.html from a pre-training run's files; while it runs, too."""
    run = run_facts(folder)
    subtitle = f"{run.get('recipe') or 'pre-training'} · {run.get('parameters', 0) / 1e6:.1f} M parameters"
    return report.write(folder, f"Pre-training: {folder.name}", pretraining_sections(folder, run), subtitle=subtitle)


def run_facts(folder: Path) -> dict[str, Any]:
    """run.json of a run, from its newest checkpoint: that of the folder is older where a run that had ended was made
    longer, and then killed."""
    checkpoints = folder / "checkpoints"
    for step in reversed(checkpoint.steps(checkpoints)):
        with suppress(UnmaskError):  # damaged, or of a run whose checkpoints have none
            return checkpoint.read_one(checkpoint.folder_of(checkpoints, step), "run.json")
    return read_json(folder / "run.json") if (folder / "run.json").exists() else {}


def pretraining_sections(folder: Path, run: dict[str, Any]) -> list[report.Section]:
    """The parts of the page, for this report and for pages that contain it."""
    train, heldout = read_metrics(folder / "metrics.jsonl", "train"), read_metrics(folder / "metrics.jsonl", "heldout")
    baseline = run.get("baseline", {})
    sections: list[report.Section] = []
    last = heldout[-1] if heldout else {}
    terms = terms_of(run)
    stuck = plateau(last, baseline, terms.values()) if last.get("step", 0) > 0 else None
    if stuck:
        sections.append(report.Text([stuck], kind="warning"))
    guessed = [term for name, term in guessing(terms.values()).items() if f"loss/{name}" in last]
    sections += [_against_frequencies(term, last, baseline) for term in guessed]
    for term in sorted({key.partition("/")[2] for row in train + heldout for key in row if key.startswith("loss/")}):
        label = terms[term].label if term in terms else term
        sections += _curves(term, label, train, heldout, baseline, _growth(run))
    sections.append(report.Chart("Learning rate", [_series("learning rate", train, "lr")]))
    sections.append(report.Chart("Real tokens per second", [_series("tokens/s", train, "tokens_per_second")]))
    shown = probes.read(folder)
    if shown:
        sections.append(_samples(shown))
    for corpus in run.get("corpora", []):
        manifest = Path(corpus) / "manifest.json"
        if manifest.exists():
            sections.append(_corpus(corpus, read_json(manifest)))
    if run:
        sections.append(report.Facts("Configuration", flatten(run["config"]), folded=True))
    return sections


def terms_of(run: dict[str, Any]) -> dict[str, Term]:
    """Loss term -> how it is described: by the run, or, for one that does not, by the objectives of the house."""
    return registry.terms() | {term["name"]: Term(**term) for term in run.get("terms", [])}


def _against_frequencies(term: Term, last: dict[str, Any], baseline: dict[str, float]) -> report.Table:
    found = {"this model": last} | ({"word frequencies alone, no context": baseline} if baseline else {})
    name, rows = term.name, []
    for who, of in found.items():
        loss = of[f"loss/{name}"]  # None where it was no number
        rows.append([who, of[f"{name}/correct"], loss, None if loss is None else math.exp(min(loss, 700.0))])
    note = f"Accuracy is the share of {term.accuracy}; loss is in nats."
    if last.get(f"{name}/bits_per_character") is not None:
        note += f" The model takes {last[f'{name}/bits_per_character']:.3f} bits per character."
    return report.Table(term.table, ["", "accuracy", "loss", "perplexity"], rows, note=note)


def _growth(run: dict[str, Any]) -> str:
    """A sentence on rows that grow longer, which the curves show as a step; empty where they do not."""
    config = run.get("config", {})
    rows = config.get("rows", {})
    tokens = rows.get("tokens") or config.get("model", {}).get("length")
    if not rows.get("first") or rows["first"] == tokens:
        return ""
    share = f"{rows['first_share']:.0%} of the steps have rows of {rows['first']} tokens"
    return f"The first {share}, the others, and held-out text throughout, have {tokens}."


def _curves(
    term: str, name: str, train: list, heldout: list, baseline: dict[str, float], note: str = ""
) -> list[report.Section]:
    floor = {"word frequencies alone": baseline[f"loss/{term}"]} if f"loss/{term}" in baseline else {}
    charts: list[report.Section] = []
    for what, key, floors in (("loss", f"loss/{term}", floor), ("accuracy", f"{term}/correct", {})):
        lines = [_series("training", train, key), _series("held-out", heldout, key)]
        charts.append(report.Chart(f"{name.capitalize()}: {what}", lines, floors=floors, note=note))
    return charts


def _series(name: str, rows: list[dict[str, Any]], key: str) -> report.Series:
    return report.Series(name, [(row["step"], row[key]) for row in rows if key in row])


def _samples(lines: list[dict[str, Any]], most: int = 6) -> report.Samples:
    """Guesses at a few steps spread over the run, the last one included."""
    picked = [lines[round(i * (len(lines) - 1) / max(1, most - 1))] for i in range(min(most, len(lines)))]
    found, expected = [], {}
    for number, sample in enumerate(lines[-1]["samples"]):
        lines_with = [line for line in picked if number < len(line["samples"])]
        answers = [(f"step {line['step']:,}", line["samples"][number]["guesses"]) for line in lines_with]
        found.append(report.Sample(sample["text"], answers))
        expected[sample["text"]] = sample["expected"]
    return report.Samples("What it guesses, as it learns", found, expected)


def _corpus(folder: str, manifest: dict[str, Any]) -> report.Facts:
    values: dict[str, Any] = {}
    for split, facts in manifest["splits"].items():
        values |= {f"{split}: {what}": facts[what] for what in ("documents", "sentences", "tokens")}
    values |= {"vocabulary": manifest["vocabulary"], "unigram entropy (nats)": manifest["unigram_entropy"]}
    return report.Facts(f"Corpus {folder}", values)

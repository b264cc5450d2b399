"""The report of a pre-training run: its curves beside what word frequencies alone reach, its guesses, its corpora."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from unmask import probes
from unmask.config import read_json
from unmask.objectives import Term, registry
from unmask.pretraining_evaluation import guessing, plateau
from unmask.report import Report, Rows, curve, history, of_one_run, spread
from unmask.train import report
from unmask.train.metrics import require_run


def report_of(folder: Path, run: dict[str, Any]) -> Report:
    """What the page of a run shows. Raises UnmaskError where the folder has no metrics.jsonl."""
    require_run(folder)
    train, heldout = history(folder)
    baseline = run.get("baseline", {})
    sections: list[report.Section] = []
    last = heldout[-1] if heldout else {}
    terms = terms_of(run)
    stuck = plateau(last, baseline, terms.values()) if last.get("step", 0) > 0 else None
    if stuck:
        sections.append(report.Text([stuck], kind="warning"))
    guessed = [term for name, term in guessing(terms.values()).items() if f"loss/{name}" in last]
    sections += [_against_frequencies(term, last, baseline) for term in guessed]
    found = {"training": train, "held-out": heldout}
    for name in sorted({key.partition("/")[2] for row in train + heldout for key in row if key.startswith("loss/")}):
        label = (terms[name].label if name in terms else name).capitalize()
        floors = {"word frequencies alone": baseline[f"loss/{name}"]} if f"loss/{name}" in baseline else {}
        sections += curve(f"{label}: loss", f"loss/{name}", found, floors=floors, note=_growth(run))
        sections += curve(f"{label}: accuracy", f"{name}/correct", found, note=_growth(run))
    sections += curve("Learning rate", "lr", {"learning rate": train})
    sections += curve("Real tokens per second", "tokens_per_second", {"tokens/s": train})
    shown = probes.read(folder)
    if shown:
        sections.append(_samples(shown))
    for corpus in run.get("corpora", []):
        manifest = Path(corpus) / "manifest.json"
        if manifest.exists():
            sections.append(_corpus(corpus, read_json(manifest)))
    return of_one_run(folder, "Pre-training", run, sections)


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


def _samples(lines: Rows, most: int = 6) -> report.Samples:
    """Guesses at a few steps, the last one included."""
    picked = spread(lines, most)
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

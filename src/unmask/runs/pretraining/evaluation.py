"""The evaluation of a pre-training run on held-out text, compared to word frequencies alone, and its report.

Shapes: V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.config import read_json
from unmask.data.files import corpora
from unmask.data.text.tokenizer import Tokenizer
from unmask.files import MANIFEST
from unmask.objectives import Term, registry
from unmask.runs.report import Report, answers, curve, galleries, history, of_one_run
from unmask.train import report
from unmask.train.metrics import require_run
from unmask.types import Batch

CLEARLY = 0.97
"""Share of the loss of word frequencies below which a model clearly uses the context."""


def baseline(batches: Sequence[Batch], log_p: np.ndarray, terms: Iterable[Term]) -> dict[str, float]:
    """The scores of predictions without context on the targets of `batches`.

    log_p  [V] log probability of each token
    terms  the loss terms of the run

    Returns for each term that predicts text:

    loss/TERM     cross-entropy in nats
    TERM/correct  accuracy of predicting the most frequent token
    """
    found = {}
    for name in guessing(terms):
        targets = _targets(batches, name)
        if len(targets):
            found[f"loss/{name}"] = float(-log_p[targets].mean())
            found[f"{name}/correct"] = float((targets == log_p.argmax()).mean())
    return found


def of_classes(batches: Sequence[Batch], terms: Iterable[Term]) -> dict[str, float]:
    """TERM/correct of the most frequent class on the targets of `batches`, for each term with classes."""
    found = {term.name: _targets(batches, term.name) for term in terms if term.classes}
    return {f"{name}/correct": float(np.bincount(y).max() / len(y)) for name, y in found.items() if len(y)}


def guessing(terms: Iterable[Term]) -> dict[str, Term]:
    """Name -> term, for the terms that predict text, as word frequencies alone can."""
    return {term.name: term for term in terms if term.guess}


def characters(batches: Sequence[Batch], tokenizer: Tokenizer, terms: Iterable[Term]) -> float:
    """Mean number of characters of a target token, in the text decoded from the targets, spaces included. The token at
    the end of a text counts as a token without characters."""
    targets = next((found for found in (_targets(batches, name) for name in guessing(terms)) if len(found)), ())
    return len(tokenizer.decode(np.asarray(targets))) / len(targets) if len(targets) else 0.0


def _targets(batches: Sequence[Batch], term: str) -> np.ndarray:
    """All targets of a term; empty if no batch has one."""
    values = [batch.targets[term].values.numpy() for batch in batches if term in batch.targets]
    return np.concatenate(values) if values else np.empty(0, np.int64)


def plateau(result: Mapping[str, float], baseline: Mapping[str, float], terms: Iterable[Term]) -> str | None:
    """A sentence, with advice, for a run that learned no more than word frequencies; None for any other."""
    for name, term in guessing(terms).items():
        loss, floor = result.get(f"loss/{name}"), baseline.get(f"loss/{name}")
        if loss is not None and floor is not None and loss >= CLEARLY * floor:
            return (
                f"The held-out {term.guess} loss, {loss:.2f}, is not clearly better than word frequencies alone "
                f"({floor:.2f}): the model has hardly begun to use the context. Train longer, lower the learning rate, "
                "or lengthen the warm-up."
            )
    return None


# ------------------------------------------------------------------------------------------------ the report


def report_of(folder: Path, run: dict[str, Any]) -> Report:
    """The report of a run. Raises UnmaskError if the folder has no metrics.jsonl."""
    require_run(folder)
    train, heldout = history(folder)
    baseline = run.get("baseline", {})
    sections: list[report.Section] = []
    last = heldout[-1] if heldout else {}
    terms = terms_of(run)
    if stuck := weakness(folder, run):
        sections.append(report.Text([stuck], kind="warning"))
    guessed = [term for name, term in guessing(terms.values()).items() if f"loss/{name}" in last]
    sections += [_against_frequencies(term, last, baseline) for term in guessed]
    found = {"training": train, "held-out": heldout}
    for name in sorted({key.partition("/")[2] for row in train + heldout for key in row if key.startswith("loss/")}):
        label = (terms[name].label if name in terms else name).capitalize()
        floors = {"word frequencies alone": baseline[f"loss/{name}"]} if f"loss/{name}" in baseline else {}
        sections += curve(f"{label}: loss", f"loss/{name}", found, floors=floors, note=_growth(run))
        constant = f"{name}/correct" if name in terms and terms[name].classes else ""
        floors = {"the most frequent class": baseline[constant]} if constant in baseline else {}
        sections += curve(f"{label}: accuracy", f"{name}/correct", found, floors=floors, note=_growth(run))
        for metric, title in terms[name].more if name in terms else ():
            sections += curve(title, f"{name}/{metric}", found)
    sections += curve("Learning rate", "lr", {"learning rate": train})
    sections += curve("Real tokens per second", "tokens_per_second", {"tokens/s": train})
    sections += galleries(folder, 6)
    if probed := [(probe, given) for probe, given in answers(folder, 6) if not probe.get("pictures")]:
        samples = [report.Sample(probe["text"], given) for probe, given in probed]
        expected = {probe["text"]: probe["expected"] for probe, _ in probed}
        sections.append(report.Samples("Predictions during training", samples, expected))
    for corpus in run.get("corpora", []):
        kind = corpora.format_of(Path(corpus))
        if kind is not None:
            facts = DESCRIBED[kind](read_json(Path(corpus) / MANIFEST))
            sections.append(report.Facts(f"Corpus {corpus}", facts))
    return of_one_run(folder, "Pre-training", run, sections)


def weakness(folder: Path, run: dict[str, Any]) -> str | None:
    """The sentence of `plateau` for the last evaluation of a run; None before its first step."""
    last = (history(folder)[1] or [{}])[-1]
    if last.get("step", 0) == 0:
        return None
    return plateau(last, run.get("baseline", {}), terms_of(run).values())


def terms_of(run: dict[str, Any]) -> dict[str, Term]:
    """Name -> loss term, as described in run.json, or by the registry for older runs."""
    return registry.terms() | {term["name"]: Term(**term) for term in run.get("terms", [])}


def _against_frequencies(term: Term, last: dict[str, Any], baseline: dict[str, float]) -> report.Table:
    name, rows, found = term.name, [], {"this model": last}
    if f"loss/{name}" in baseline:
        found["word frequencies alone, no context"] = baseline
    for who, of in found.items():
        loss = of[f"loss/{name}"]  # None if it was not finite
        rows.append([who, of[f"{name}/correct"], loss, None if loss is None else math.exp(min(loss, 700.0))])
    note = f"Accuracy is the share of {term.accuracy}; loss is in nats."
    if last.get(f"{name}/bits_per_character") is not None:
        note += f" The model takes {last[f'{name}/bits_per_character']:.3f} bits per character."
    return report.Table(term.table, ["", "accuracy", "loss", "perplexity"], rows, note=note)


def _growth(run: dict[str, Any]) -> str:
    """A sentence on rows that grow longer, which the curves show as a step; empty for rows of one length."""
    config = run.get("config", {})
    rows = config.get("rows", {})
    tokens = rows.get("tokens") or config.get("model", {}).get("length")
    if not rows.get("first") or rows["first"] == tokens:
        return ""
    share = f"{rows['first_share']:.0%} of the steps have rows of {rows['first']} tokens"
    return f"The first {share}, the others, and held-out text throughout, have {tokens}."


def _texts(manifest: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for split, facts in manifest["splits"].items():
        values |= {f"{split}: {what}": facts[what] for what in ("documents", "sentences", "tokens")}
    return values | {"vocabulary": manifest["vocabulary"], "unigram entropy (nats)": manifest["unigram_entropy"]}


def _pictures(manifest: dict[str, Any]) -> dict[str, Any]:
    values = {"pictures": manifest["pictures"], "classes": len(manifest["classes"])}
    return values | {"damaged pictures left out": manifest["damaged"]["count"]}


def _recordings(manifest: dict[str, Any]) -> dict[str, Any]:
    values = {name: manifest[name] for name in ("recordings", "units", "hours", "rate")}
    values |= {"classes": len(manifest["classes"]), "damaged recordings left out": manifest["damaged"]["count"]}
    return values | {"clipped recordings": manifest["clipped"], "silent units": manifest["silent"]}


def _records(manifest: dict[str, Any]) -> dict[str, Any]:
    values = {name: manifest[name] for name in ("records", "units", "hours", "rate")}
    return values | {"damaged records left out": manifest["damaged"]["count"]}


DESCRIBED: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    corpora.TEXTS: _texts,
    corpora.PICTURES: _pictures,
    corpora.RECORDINGS: _recordings,
    corpora.SIGNALS: _records,
}
"""Format of a corpus -> a function that takes its manifest and returns its facts for the report."""

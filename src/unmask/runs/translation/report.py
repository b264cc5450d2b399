"""The report of a translation run: curves, translations during training, and attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.png import png
from unmask.data.pictures import compositions
from unmask.data.pictures.captions import UnreadPicture
from unmask.errors import UnmaskError
from unmask.runs.report import Answers, Report, answers, curve, history, of_one_run
from unmask.runs.translation.ending import hardly_learned
from unmask.runs.translation.texts import DIGITS
from unmask.serve.translator import Translator
from unmask.train import report
from unmask.train.metrics import require_run
from unmask.visualize.captions import lit

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
    if stuck := weakness(folder, run):
        sections.append(report.Text([stuck], kind="warning"))
    if run.get("notes"):
        sections.append(report.Text(run["notes"], title="Data"))
    for title, key in CURVES:
        sections += curve(title, key, {"training": train, "dev": heldout})
    if probed := answers(folder, 5):
        sections.append(_written(probed))
        sections += _maps(folder, run, [probe["text"] for probe, _ in probed[:MAPS]])
    return of_one_run(folder, "Translation", run, sections)


def weakness(folder: Path, run: dict[str, Any]) -> str | None:
    """The sentence of the run's summary if it has learned next to nothing."""
    if "metric" not in run:
        return None
    floor = None if run["config"].get("start") else run.get("baseline", {}).get("next/nll")
    minutes = run["config"].get("training", {}).get("minutes")
    return hardly_learned(history(folder)[1], run["metric"], floor, "--steps" if minutes is None else "--minutes")


def _written(probed: list[tuple[dict[str, Any], Answers]]) -> report.Table:
    """The translations of some dev sources at several evaluations, and their references."""
    rows: list[list[str]] = []
    for probe, given in probed:
        rows += [["source", probe["text"]], *([step, guesses[0][0]] for step, guesses in given)]
        rows += [["reference", " / ".join(probe["expected"])], ["", ""]]
    return report.Table("Translations during training", ["", "text"], rows[:-1])


def _maps(folder: Path, run: dict[str, Any], sources: list[str]) -> list[report.Heatmap] | list[report.Gallery]:
    """The attention of the finished model; empty for a run that has not ended, or a model without attention.

    sources  those of texts; pictures are made or read again, because samples have their names alone
    """
    if not (folder / "model.safetensors").exists():
        return []
    translator = Translator(folder)
    if translator.model.config.reads_pictures:
        return _pictures(translator, run)
    try:
        found = [translator.alignment(source, translator([source])[0]) for source in sources]
    except UnmaskError:
        return []
    titles = ["".join(one.source[:-1]).replace("·", " ").strip() for one in found]
    return [
        report.Heatmap(f"Attention: {title}", one.target, one.source, one.weights)
        for title, one in zip(titles, found, strict=True)
    ]


def _pictures(translator: Translator, run: dict[str, Any]) -> list[report.Gallery]:
    """The patches that each word of a caption attends to, for some pictures that are drawn here; empty for a run on
    other pictures, which `unmask show attention` shows."""
    texts = run["config"]["texts"]
    if tuple(texts["train"]) != (DIGITS,):
        return []
    found = []
    for source, target in compositions.pairs(MAPS, split="test"):
        [item] = translator.tokenizer.ids([source])
        assert isinstance(item, UnreadPicture)
        picture = item.read()
        one = translator.alignment(source, translator([source])[0])
        cells = [report.Captioned(png(picture), ["the picture"], target)]
        for word, weights in zip(one.target, one.weights, strict=True):
            cells.append(report.Captioned(png(lit(picture, np.array(weights))), [word], target))
        found.append(report.Gallery(f"Patches that each word attends to: {target}", cells))
    return found

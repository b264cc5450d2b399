"""The quickstart: pre-train a BERT from scratch in a few minutes, and measure whether pre-training pays."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unmask.data.labelled.rows import Row
from unmask.data.text import corpus, embedded
from unmask.errors import UnmaskError, plural
from unmask.files import write_text
from unmask.runs import label_efficiency, recipes
from unmask.runs.pretraining import Pretrain, Pretraining, evaluation
from unmask.runs.quickstart_plan import plan
from unmask.runs.report import Report, run_facts, write_report
from unmask.train import report
from unmask.train.display import Terminal, progress

MINUTES = 6.0  # from the start of the command to the end of the report
RECIPE = "modern-tiny"
VOCABULARY = 4_096
MORE = "Longer pre-training changes that: docs/benchmarks.md has runs of several lengths."
PROMPTS: dict[str, tuple[str, ...]] = {
    "Return a [MASK] of strings.": ("list", "tuple", "set", "sequence", "dictionary"),
    "If the file does not exist, an [MASK] is raised.": ("exception", "error"),
    "This [MASK] is deprecated and will be removed in a future version.": ("function", "method", "class", "module"),
    "The default [MASK] is None.": ("value",),
    "If True, return a [MASK] of the array.": ("copy", "view"),
    "The [MASK] of the matrix must be positive.": ("elements", "shape", "dimension", "diagonal", "size"),
}


def quickstart(out: Path, *, minutes: float = MINUTES) -> Path:
    """Run the whole tour in the folder `out`, in about `minutes` minutes; returns the path of its report.

    Raises UnmaskError if `out` is not empty, since a finished run is never overwritten, and if a signal stops it.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnmaskError(f"{out} is not empty. Look at {out / 'report.html'}, or choose another folder: --out FOLDER.")
    if minutes <= 0:
        raise UnmaskError("The minutes of the quickstart must be above 0.")
    begun = time.monotonic()
    print(f"1/4  Building a corpus from the documentation installed with Python, in {out / 'corpus'}", flush=True)
    built = _build_corpus(out / "corpus")
    print(built.summary())
    pool, test = tagged_rows()
    config = recipes.quickstart()
    sizes = config.model.replace(vocabulary=built.tokenizer.size, padding=built.tokenizer.pad)
    pace = label_efficiency.pace(sizes, built.tokenizer, pool, test)
    planned = plan(minutes, time.monotonic() - begun, pace, len(pool), len(test))
    print("\n".join(planned.notes))
    print(f"\n2/4  Pre-training {RECIPE} on it, in {out / 'model'}", flush=True)
    run = _pretrain(out, config.replace(training={"minutes": planned.pretraining / 60}))
    print("\n3/4  Its predictions for [MASK]")
    _print_predictions(out / "model")
    print("\n4/4  Which words of a sentence are code? Fine-tuned on few labels, F1 on documents never seen", flush=True)
    found = label_efficiency.compare(
        out / "model", pool, test[: planned.sentences], counts=planned.counts, seeds=planned.seeds, say=print
    )
    facts = {
        "minutes": minutes,
        "seconds": round(time.monotonic() - begun, 1),
        "plan": {**asdict(planned), "notes": planned.notes},
        "machine": {"python": platform.python_version(), "processor": platform.machine(), "threads": _threads()},
        "heldout": run["heldout"],
        "baseline": run["baseline"],
        "labelled": found,
        "test_sentences": planned.sentences,
    }
    write_text(out / "quickstart.json", json.dumps(facts, indent=2) + "\n")
    path = write_report(out)
    _print_end(out, path, time.monotonic() - begun)
    return path


def held_out(source: str) -> bool:
    """Whether a document of the embedded corpus is kept for testing: one in ten, chosen by the hash of its name."""
    return embedded.heldout(source, 0.1)


def tagged_rows() -> tuple[list[Row], list[Row]]:
    """Sentences whose code words are tagged: those for training, and those of held-out documents for testing.

    Both lists are ordered by the hash of their words, so that any first part is a random sample.
    """
    parts: tuple[list[Row], list[Row]] = ([], [])
    for sentence in embedded.code_mentions():
        tags = tuple(label_efficiency.CODE if tag else label_efficiency.OUTSIDE for tag in sentence.tags)
        parts[held_out(sentence.source)].append(Row(words=sentence.words, tags=tags, place=sentence.source))
    for rows in parts:
        rows.sort(key=lambda row: hashlib.sha256(" ".join(row.words).encode()).digest())
    return parts


def _build_corpus(folder: Path) -> corpus.Corpus:
    """Build a corpus of all documents except those whose sentences are test sentences."""
    with progress() as show:
        return corpus.build(
            lambda: embedded.documents(exclude=held_out), folder, vocabulary_size=VOCABULARY, progress=show
        )


def _pretrain(out: Path, config: Pretraining) -> dict[str, Any]:
    run = Pretrain(config, [out / "corpus"], out / "model", recipe="quickstart", display=Terminal(), prompts=PROMPTS)
    result = run.run()
    print(run.summary(result))
    if result.stopped:
        raise UnmaskError(f"Stopped by {result.stopped}; start again in another folder.")
    return {"heldout": result.heldout, "baseline": run.baseline}


def _print_predictions(folder: Path) -> None:
    from unmask.serve.predictor import Predictor

    predictor = Predictor(folder, top=5)
    for text, answer in zip(PROMPTS, predictor(list(PROMPTS)), strict=True):
        predictions = ", ".join(f"{one['token']} {one['probability']:.2f}" for one in answer["masks"][0])
        print(f"  {text:68} {predictions}")


def _print_end(out: Path, path: Path, seconds: float) -> None:
    print(f"""
Done in {seconds / 60:.1f} minutes. The report: {path}

On your own text and labels:
  unmask predict  --model {out / "model"} "The function returns a [MASK] of strings."
  unmask corpus build --data notes/ --out corpora/mine
  unmask pretrain bert-mini --corpus corpora/mine --out runs/mine --minutes 30
  unmask finetune --model runs/mine --task classification --train train.tsv --dev dev.tsv --out runs/sentiment
  unmask predict  --model runs/sentiment < reviews.txt
Longer training gives a better model: make quickstart ARGS="--minutes 60 --out runs/longer\"""")


# ------------------------------------------------------------------------------------------------ the report


def report_of(folder: Path, facts: Mapping[str, Any]) -> Report:
    """The report of a quickstart: the comparison by labels, and the report of the pre-training run."""
    table = label_efficiency.summary(facts["labelled"])
    methods = list(next(iter(table.values())))
    sections: list[report.Section] = [_opening(facts, table), _label_table(table, methods)]
    if len(table) > 1:
        sections.append(_label_chart(table, methods))
    model = evaluation.report_of(folder / "model", run_facts(folder / "model"))
    subtitle = f"{plural(facts['minutes'], 'minute')} planned, {facts['seconds'] / 60:.1f} taken"
    return Report("A BERT from scratch", subtitle, [*sections, *model.sections], model.config)


def _opening(facts: Mapping[str, Any], table: Mapping[int, Mapping[str, tuple[float, float]]]) -> report.Text:
    heldout, baseline = facts["heldout"], facts["baseline"]
    paragraphs = [
        "This model was pre-trained only on the documentation that is installed with Python and the packages that "
        "unmask needs. " + " ".join(facts.get("plan", {}).get("notes", [])),
        f"Its accuracy on masked tokens of held-out documents is {heldout['mlm/correct']:.1%} (perplexity "
        f"{math.exp(heldout['loss/mlm']):.0f}); word frequencies alone reach {baseline['mlm/correct']:.1%} "
        f"({math.exp(baseline['loss/mlm']):.0f}).",
        verdict(table),
        f"The task is to find the words of a sentence that are code. The labels are the marks that authors put around "
        f"code; the marks are removed from the text. Every sentence has at least one code word that looks like a plain "
        f"word. The test set is {facts['test_sentences']:,} sentences of documents that were also held out of "
        "pre-training. All models in a row of the table are trained on the same labelled sentences; nothing was chosen "
        "by the test sentences.",
    ]
    return report.Text(paragraphs)


def verdict(table: Mapping[int, Mapping[str, tuple[float, float]]]) -> str:
    """Sentences on whether pre-training improved the scores."""
    names = label_efficiency
    gains = {n: m[names.PRETRAINED][0] - m[names.RANDOM][0] for n, m in table.items()}
    clear = [n for n, gain in gains.items() if gain > 2 * max(table[n][names.PRETRAINED][1], table[n][names.RANDOM][1])]
    ahead = [n for n, m in table.items() if m[names.PRETRAINED][0] > m[names.LEXICAL][0]]
    least, most = min(gains.values()), max(gains.values())
    first = (
        f"The pre-trained start is better than the random start by {least:+.2f} to {most:+.2f} F1, by more than two "
        f"standard deviations at {len(clear)} of {len(gains)} label counts."
    )
    if not clear:
        first = f"Pre-training has not paid yet: compared to the random start it gives {least:+.2f} to {most:+.2f} F1."
    if not _has_spread(table):
        first = (
            f"Compared to the random start, pre-training gives {least:+.2f} to {most:+.2f} F1; one seed cannot show "
            "how much of that is chance."
        )
    if not ahead:
        return f"{first} The regression on lexical features is still better than both. {MORE}"
    counts = ", ".join(f"{n:,}" for n in ahead)
    second = f"The model is better than the regression on lexical features at {counts} labelled sentences."
    behind = ", ".join(f"{n:,}" for n in table if n not in ahead)
    return f"{first} {second}" + (f" The regression is better at {behind}. {MORE}" if behind else "")


def _has_spread(table: Mapping[int, Mapping[str, tuple[float, float]]]) -> bool:
    """Whether there are several seeds, whose spread shows how much is chance."""
    return any(spread for means in table.values() for _, spread in means.values())


def _label_table(table: Mapping[int, Mapping[str, tuple[float, float]]], methods: Sequence[str]) -> report.Table:
    shown = "{:.3f} ± {:.3f}" if _has_spread(table) else "{:.3f}"
    rows = [[n, *(shown.format(*means[method]) for method in methods)] for n, means in table.items()]
    return report.Table("Word-level F1 on held-out documents", ["labelled sentences", *methods], rows)


def _label_chart(table: Mapping[int, Mapping[str, tuple[float, float]]], methods: Sequence[str]) -> report.Chart:
    lines = []
    for method in methods:
        points = [(n, means[method][0]) for n, means in table.items()]
        lines.append(report.Series(method, points, [means[method][1] for means in table.values()]))
    return report.Chart(
        "Which words are code? F1 by number of labelled sentences",
        lines,
        x="labelled sentences",
        y="word-level F1",
        log_x=True,
        note="Mean of the seeds; the bars are one standard deviation." if _has_spread(table) else "One seed.",
    )


def _threads() -> int:
    import torch

    return torch.get_num_threads()

"""The quickstart: a BERT from nothing in a few minutes, and whether its pre-training pays."""

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

MINUTES = 6.0  # of everything, from the start of the command to the end of the report
RECIPE = "bert-tiny"
VOCABULARY = 4_096
MORE = "More minutes of pre-training change that: docs/benchmarks.md has runs of several lengths."
PROMPTS: dict[str, tuple[str, ...]] = {
    "Return a [MASK] of strings.": ("list", "tuple", "set", "sequence", "dictionary"),
    "If the file does not exist, an [MASK] is raised.": ("exception", "error"),
    "This [MASK] is deprecated and will be removed in a future version.": ("function", "method", "class", "module"),
    "The default [MASK] is None.": ("value",),
    "If True, return a [MASK] of the array.": ("copy", "view"),
    "The [MASK] of the matrix must be positive.": ("elements", "shape", "dimension", "diagonal", "size"),
}


def quickstart(out: Path, *, minutes: float = MINUTES) -> Path:
    """Do the whole tour in the folder `out`, in about so many minutes; returns the path of its report.

    Raises UnmaskError where `out` holds something already: a finished run is never overwritten.
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
    print("\n3/4  What it guesses now")
    _print_guesses(out / "model")
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
    """Whether a document of the embedded corpus is kept for testing: one in ten, by the hash of its name."""
    return embedded.heldout(source, 0.1)


def tagged_rows() -> tuple[list[Row], list[Row]]:
    """Sentences with their code words marked: those to label from, and those of held-out documents to test on.

    Both are shuffled by the hash of their words, so that any first part is a fair sample.
    """
    parts: tuple[list[Row], list[Row]] = ([], [])
    for sentence in embedded.code_mentions():
        tags = tuple(label_efficiency.CODE if tag else label_efficiency.OUTSIDE for tag in sentence.tags)
        parts[held_out(sentence.source)].append(Row(words=sentence.words, tags=tags, place=sentence.source))
    for rows in parts:
        rows.sort(key=lambda row: hashlib.sha256(" ".join(row.words).encode()).digest())
    return parts


def _build_corpus(folder: Path) -> corpus.Corpus:
    """All documents but those that the labelled sentences are tested on, and the sentences that these contain."""
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


def _print_guesses(folder: Path) -> None:
    from unmask.serve.predictor import Predictor

    predictor = Predictor(folder, top=5)
    for text, answer in zip(PROMPTS, predictor(list(PROMPTS)), strict=True):
        guesses = ", ".join(f"{guess['token']} {guess['probability']:.2f}" for guess in answer["masks"][0])
        print(f"  {text:68} {guesses}")


def _print_end(out: Path, path: Path, seconds: float) -> None:
    print(f"""
Done in {seconds / 60:.1f} minutes. The report: {path}

On your own text and labels:
  unmask predict  --model {out / "model"} "The function returns a [MASK] of strings."
  unmask corpus build --data notes/ --out corpora/mine
  unmask pretrain bert-mini --corpus corpora/mine --out runs/mine --minutes 30
  unmask finetune --model runs/mine --task classification --train train.tsv --dev dev.tsv --out runs/sentiment
  unmask predict  --model runs/sentiment < reviews.txt
More time teaches it more: make quickstart ARGS="--minutes 60 --out runs/longer\"""")


# ------------------------------------------------------------------------------------------------ the report


def report_of(folder: Path, facts: Mapping[str, Any]) -> Report:
    """What the page of a quickstart shows: what its labels brought, and the report of its pre-training run."""
    table = label_efficiency.summary(facts["labelled"])
    ways = list(next(iter(table.values())))
    sections: list[report.Section] = [_opening(facts, table), _label_table(table, ways)]
    if len(table) > 1:
        sections.append(_label_chart(table, ways))
    model = evaluation.report_of(folder / "model", run_facts(folder / "model"))
    subtitle = f"{plural(facts['minutes'], 'minute')} asked for, {facts['seconds'] / 60:.1f} taken"
    return Report("A BERT from nothing", subtitle, [*sections, *model.sections], model.config)


def _opening(facts: Mapping[str, Any], table: Mapping[int, Mapping[str, tuple[float, float]]]) -> report.Text:
    heldout, baseline = facts["heldout"], facts["baseline"]
    paragraphs = [
        "This model was pre-trained on nothing but the documentation that is installed with Python and the packages "
        "that unmask needs. " + " ".join(facts.get("plan", {}).get("notes", [])),
        f"Of the hidden words of documents that it never saw it guesses {heldout['mlm/correct']:.1%} (perplexity "
        f"{math.exp(heldout['loss/mlm']):.0f}); word frequencies alone give {baseline['mlm/correct']:.1%} "
        f"({math.exp(baseline['loss/mlm']):.0f}).",
        verdict(table),
        f"The task: which words of a sentence are code. The labels are the marks that authors put around code, removed "
        f"from the text; every sentence has at least one code word that looks like a plain word. The test: "
        f"{facts['test_sentences']:,} sentences of documents that were held out of pre-training too. All models of a "
        "row see the same labelled sentences; nothing was chosen by the test sentences.",
    ]
    return report.Text(paragraphs)


def verdict(table: Mapping[int, Mapping[str, tuple[float, float]]]) -> str:
    """One sentence that says whether pre-training paid, as it came out."""
    names = label_efficiency
    gains = {n: m[names.PRETRAINED][0] - m[names.RANDOM][0] for n, m in table.items()}
    clear = [n for n, gain in gains.items() if gain > 2 * max(table[n][names.PRETRAINED][1], table[n][names.RANDOM][1])]
    ahead = [n for n, m in table.items() if m[names.PRETRAINED][0] > m[names.LEXICAL][0]]
    least, most = min(gains.values()), max(gains.values())
    first = (
        f"The pre-trained start is ahead of the random one by {least:+.2f} to {most:+.2f} F1, by more than two "
        f"standard deviations at {len(clear)} of {len(gains)} label counts."
    )
    if not clear:
        first = f"Pre-training has not paid yet: beside the random start it gives {least:+.2f} to {most:+.2f} F1."
    if not _has_spread(table):
        first = (
            f"Beside the random start, pre-training gives {least:+.2f} to {most:+.2f} F1; of one seed, nothing tells "
            "how much of that is chance."
        )
    if not ahead:
        return f"{first} The regression on lexical features is still ahead of both. {MORE}"
    counts = ", ".join(f"{n:,}" for n in ahead)
    second = f"The model is ahead of the regression on lexical features at {counts} labelled sentences."
    behind = ", ".join(f"{n:,}" for n in table if n not in ahead)
    return f"{first} {second}" + (f" The regression is ahead at {behind}. {MORE}" if behind else "")


def _has_spread(table: Mapping[int, Mapping[str, tuple[float, float]]]) -> bool:
    """Whether there were several seeds, which tell how much is chance."""
    return any(spread for means in table.values() for _, spread in means.values())


def _label_table(table: Mapping[int, Mapping[str, tuple[float, float]]], ways: Sequence[str]) -> report.Table:
    shown = "{:.3f} ± {:.3f}" if _has_spread(table) else "{:.3f}"
    rows = [[n, *(shown.format(*means[way]) for way in ways)] for n, means in table.items()]
    return report.Table("Word-level F1 on documents never seen", ["labelled sentences", *ways], rows)


def _label_chart(table: Mapping[int, Mapping[str, tuple[float, float]]], ways: Sequence[str]) -> report.Chart:
    lines = []
    for way in ways:
        points = [(n, means[way][0]) for n, means in table.items()]
        lines.append(report.Series(way, points, [means[way][1] for means in table.values()]))
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

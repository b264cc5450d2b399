"""Evaluation of a model that writes, on pairs of texts: the scores of a kind of texts, exact matches, plain references,
and for translations BLEU by length of the source."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from unmask.data.bitext.forms import TURNS
from unmask.data.bitext.pairs import Bitext
from unmask.files import check_place, write_text
from unmask.generate import Search
from unmask.huggingface import OtherKind
from unmask.metrics import translation as scores
from unmask.metrics.hypotheses import refuse_tokenised
from unmask.metrics.translation import Bucket
from unmask.runs.report import run_facts
from unmask.runs.translation.scoring import scoring
from unmask.runs.translation.texts import read_pairs
from unmask.serve.prompted import Prompted
from unmask.serve.translator import Translator

BOUNDS = (5, 10, 15, 20, 30, 40, 50)  # words of a source


def evaluate_pairs(
    model: Translator | Prompted | Path | str,
    pairs: Sequence[str],
    search: Search | None = None,
    *,
    columns: tuple[str, str] | None = None,
    format: str | None = None,
    encoding: str | None = None,
    turns: int | None = None,
    known: Bitext | None = None,
    metric: str = "bleu",
    out: Path | str | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Translate the sources of some pairs, and score the translations against the targets.

    model   a Translator, the folder of one, or a language model with examples
    search  settings of the search; None: those of the model
    columns, format, encoding  as for `read_pairs`
    turns   previous turns of a dialogue that are read; None: those of the run of the folder
    known   training pairs: the target of the most similar source is a plain reference
    metric  one of `scoring.SCORINGS`
    out     file for the translations, one a line, with an empty line for each pair that is left out: line n belongs to
            line n of two aligned files, or to row n of a table
    force   score references even if they look tokenised

    Returns `scores` (of translations bleu, chrf and, for text with spaces between words, the BLEU of lower-cased
    tokens, each with its signature), `plain` (the scores of plain references, such as the first sentence of a source,
    and the share of their texts that are exact, in %), `exact` (the share of texts that equal a reference), `by_length`
    (of translations; empty if sources are vectors), `search` with its formula, `sentences_per_second`, `description`
    and `notes`. Raises UnmaskError for a folder that does not translate, an unknown metric, pairs that cannot be read,
    and if `out` cannot be written.
    """
    how = scoring(metric)
    if out is not None:
        check_place(Path(out))
    translator = writer(model) if isinstance(model, Path | str) else model
    found = read_pairs(pairs, columns, format, encoding, turns_of(translator.folder) if turns is None else turns)
    if how.tokenised and not force:
        refuse_tokenised("references", found.targets)  # before anything is translated
    translator.search = search or translator.search
    translator.cut = translator.unknown = translator.endless = 0  # so that the notes count these pairs only
    began = time.perf_counter()
    answers = list(translator.stream(found.sources))
    seconds = time.perf_counter() - began
    texts = [answer.text for answer in answers]
    if out is not None:
        write_text(Path(out), "".join(f"{line}\n" for line in _lines(found, texts)))
    if how.tokenised and not force:
        refuse_tokenised("hypotheses", texts)
    buckets = []  # vectors and pictures have no length
    if how.by_length and translator.tokenizer.reads_texts:
        buckets = scores.by_length(found.sources, texts, found.references, BOUNDS, force=True)
    used = translator.search
    assert isinstance(used, Search)
    return {
        "description": f"{found.description}.",
        "notes": [*translator.notes, *_of_empty_lines(found, out)],
        "sentences": len(found),
        "sentences_per_second": len(found) / seconds,
        "search": {**used.to_dict(), "formula": used.formula},
        "scores": {name: asdict(score(texts, found.references)) for name, score in how.reported(found).items()},
        "plain": how.plain(found, known, near=translator.tokenizer.reads_texts),
        "exact": scores.exact_match_accuracy(texts, found.references),
        "by_length": [_bucket(bucket) for bucket in buckets if bucket.count],
    }


def writer(folder: Path | str, **where: Any) -> Translator:
    """A Translator, to be scored on pairs. Raises UnmaskError as it does, and names the rows for an encoder."""
    try:
        return Translator(folder, **where)
    except OtherKind as error:
        instead = "to score it on labelled rows, use --data (data= in Python)"
        raise OtherKind(f"{str(error).removesuffix('.')}; {instead}.") from None


def turns_of(folder: Path | str) -> int:
    """The previous turns of a dialogue that the model of a run has learned to read."""
    texts = run_facts(Path(folder)).get("config", {}).get("texts", {})
    return int(texts.get("turns", TURNS))


def _lines(pairs: Bitext, texts: Sequence[str]) -> Iterator[str]:
    """The lines of a file of translations, in the order of the input; a line without a pair is empty."""
    line_of = dict(zip(pairs.lines, (" ".join(text.split("\n")) for text in texts), strict=True))
    left_out = chain.from_iterable(pairs.report.left_out.values())
    return (line_of.get(number, "") for number in sorted([*line_of, *left_out]))


def _of_empty_lines(pairs: Bitext, out: Path | str | None) -> list[str]:
    count = sum(map(len, pairs.report.left_out.values()))
    return [f"Empty lines in {out}, for pairs that are left out: {count:,}."] if out is not None and count else []


def _bucket(bucket: Bucket) -> dict[str, Any]:
    value = None if bucket.score is None else bucket.score.value
    return {"above": bucket.above, "up_to": bucket.up_to, "sentences": bucket.count, "bleu": value}


def render_scores(found: Mapping[str, Any]) -> str:
    """The result of `evaluate_pairs` as text."""
    search = found["search"]
    how = "greedy" if search["beam_size"] == 1 else f"beam of {search['beam_size']}, score {search['formula']}"
    lines = [found["description"], *found["notes"], f"Search: {how}.", ""]
    names = {key: one["name"] for key, one in found["scores"].items()}
    width = max([8, *(len(name) + 1 for name in names.values())])
    lines += [f"{one['name']:{width}}{one['value']:8.2f}  {one['signature']}" for one in found["scores"].values()]
    lines.append(f"{'exact':{width}}{100 * found['exact']:8.2f}  % of texts that equal their reference")
    for plain, values in found["plain"].items():
        lines.append(f"{plain}: " + ", ".join(f"{names.get(key, key)} {value:.2f}" for key, value in values.items()))
    lines += ["", f"{'source words':16}{'sentences':>10}{'BLEU':>8}"] if found["by_length"] else []
    for bucket in found["by_length"]:
        words = f"{bucket['above'] + 1}-{bucket['up_to']}" if bucket["up_to"] else f"over {bucket['above']}"
        lines.append(f"{words:16}{bucket['sentences']:10,}{bucket['bleu']:8.1f}")
    lines += ["", f"{found['sentences_per_second']:.1f} sentences a second."]
    return "\n".join(lines)

"""Minimal pairs: does a model give a grammatical sentence a higher probability than its ungrammatical counterpart?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.tables import column_of, guess_format, read_table
from unmask.errors import UnmaskError, plural
from unmask.huggingface import Loaded
from unmask.serve.likelihood import Scorer

RIGHT, WRONG = ("sentence_good", "good"), ("sentence_bad", "bad")
KIND, FIELD = ("UID", "paradigm", "kind"), ("field",)
FILES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".tsv", ".csv", ".parquet")


@dataclass(frozen=True)
class Pair:
    """A correct and an incorrect sentence. `kind` is what they differ in, `field` the field of grammar."""

    right: str
    wrong: str
    kind: str
    field: str = ""


def read(paths: Sequence[Path | str], *, most: int | None = None, encoding: str | None = None) -> list[Pair]:
    """Read pairs from files or folders in the format of BLiMP: columns sentence_good and sentence_bad, optionally UID
    and field. A file without UID is one kind, named after the file.

    most      most pairs of each kind, the first ones; None: all
    encoding  as for `data.files.lines.lines`

    Raises UnmaskError for a missing file, for one without these columns, and for a row without two sentences.
    """
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for path in _files(paths):
        table = read_table(path, guess_format(path, encoding=encoding), encoding=encoding)
        right, wrong, kind, field = (column_of(table.columns, names) for names in (RIGHT, WRONG, KIND, FIELD))
        if right is None or wrong is None:
            known = ", ".join(table.columns)
            raise UnmaskError(f"{path} needs the columns {RIGHT[0]} and {WRONG[0]}, but has {known}.")
        for number, row in table.rows:
            texts = [row.get(name) for name in (right, wrong)]
            if not all(isinstance(text, str) and text.strip() for text in texts):
                raise UnmaskError(f"{path}, row {number}: {right} and {wrong} must both hold a sentence.")
            name = str(row.get(kind) or path.name.split(".")[0]) if kind else path.name.split(".")[0]
            if most is None or len(pairs[name]) < most:
                pairs[name].append(Pair(str(texts[0]), str(texts[1]), name, str(row.get(field) or "") if field else ""))
    return [pair for kind in sorted(pairs) for pair in pairs[kind]]


def evaluate_minimal_pairs(
    model: Path | str | Loaded,
    paths: Sequence[Path | str],
    *,
    most: int | None = None,
    encoding: str | None = None,
) -> dict[str, Any]:
    """The share of pairs whose correct sentence is the more probable one (Warstadt et al. 2020, section 4).

    The score of a sentence depends on the head of the model (`serve.likelihood.SCORINGS`). A tie counts as an error.
    The accuracy is the mean over kinds, each with the same weight.

    Returns `accuracy`, `kinds` and `fields` (name -> {"accuracy", "pairs"}), `pairs`, `score` (the kind of score).
    Raises UnmaskError for a model without a head that scores texts, and for files that hold no pairs.
    """
    scorer = Scorer(model)
    pairs = read(paths, most=most, encoding=encoding)
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.right, pair.wrong)))
    score = dict(zip(texts, scorer.scores(texts).tolist(), strict=True))
    right = np.array([score[pair.right] > score[pair.wrong] for pair in pairs])
    kinds = _shares([pair.kind for pair in pairs], right)
    fields = _shares([pair.field for pair in pairs], right)
    fields.pop("", None)
    return {
        "accuracy": float(np.mean([kind["accuracy"] for kind in kinds.values()])),
        "pairs": len(pairs),
        "score": scorer.name,
        "fields": fields,
        "kinds": kinds,
    }


def _shares(names: Sequence[str], right: np.ndarray) -> dict[str, dict[str, float]]:
    groups = np.array(names)
    return {
        name: {"accuracy": float(right[groups == name].mean()), "pairs": int((groups == name).sum())}
        for name in dict.fromkeys(names)
    }


def _files(paths: Sequence[Path | str]) -> list[Path]:
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.name.endswith(FILES) and one.is_file())
            if not inside:
                raise UnmaskError(f"{path} has no files of pairs: {', '.join(FILES)}.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UnmaskError(f"There is no file or folder {path}.")
    return found


def render(found: dict[str, Any]) -> str:
    """The result of `evaluate_minimal_pairs` as text: the worst kinds last."""
    kinds = sorted(found["kinds"].items(), key=lambda item: -item[1]["accuracy"])
    width = max(map(len, [*found["kinds"], *found["fields"]]))
    lines = [
        f"Accuracy by {found['score']}: {100 * found['accuracy']:.1f} %, the mean over {plural(len(kinds), 'kind')} "
        f"with {plural(found['pairs'], 'pair')}; chance is 50 %."
    ]
    for part in (sorted(found["fields"].items()), kinds):
        rows = [f"{name:{width}} {100 * one['accuracy']:6.1f} {one['pairs']:8,}" for name, one in part]
        lines += ["", *rows] if rows else []
    return "\n".join(lines)

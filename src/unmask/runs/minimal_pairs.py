"""Minimal pairs: does a model find the right one of two sentences, which differ in one thing, more likely?"""

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
    """Two sentences; the first is the correct one. `kind` is what they differ in, `field` the part of grammar."""

    right: str
    wrong: str
    kind: str
    field: str = ""


def read(paths: Sequence[Path | str], *, most: int | None = None, encoding: str | None = None) -> list[Pair]:
    """The pairs of files or folders, as BLiMP writes them: columns sentence_good and sentence_bad, and where there are
    UID and field; a file without UID is one kind, called as the file is.

    most      pairs of each kind, its first ones; None: all
    encoding  as for `data.files.lines.lines`

    Raises UnmaskError for what is not there, and for a file without these columns.
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
    """The share of pairs whose right sentence is the more likely one (Warstadt et al. 2020, section 4).

    How likely a sentence is depends on the head of the model (`serve.likelihood.SCORINGS`). A tie counts as wrong. The
    accuracy is the mean over kinds, which count alike.

    Returns `accuracy`, `kinds` and `fields` (name -> {"accuracy", "pairs"}), `pairs`, `score` (how likely was found).
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
    own = np.array(names)
    return {
        name: {"accuracy": float(right[own == name].mean()), "pairs": int((own == name).sum())}
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
    """What `evaluate_minimal_pairs` found, as text: the worst kinds last."""
    kinds = sorted(found["kinds"].items(), key=lambda item: -item[1]["accuracy"])
    width = max(map(len, [*found["kinds"], *found["fields"]]))
    lines = [
        f"{100 * found['accuracy']:.1f} % of the pairs are told apart by {found['score']}, in the mean over "
        f"{plural(len(kinds), 'kind')} with {plural(found['pairs'], 'pair')}; half would be luck."
    ]
    for part in (sorted(found["fields"].items()), kinds):
        rows = [f"{name:{width}} {100 * one['accuracy']:6.1f} {one['pairs']:8,}" for name, one in part]
        lines += ["", *rows] if rows else []
    return "\n".join(lines)

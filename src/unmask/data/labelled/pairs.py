"""Pairs for sentence embeddings: with scores, with labels, positive pairs without either, and triplets.

STS-B (Cer et al. 2017) and SICK (Marelli et al. 2014) have scores, SNLI (Bowman et al. 2015) has labels, and questions
with the passages that answer them are positive pairs. Triplets from labelled pairs: Gao et al., "SimCSE", EMNLP 2021,
section 4.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask.data.files.tables import Table, column_of, guess_format, read_table, rows
from unmask.data.labelled import columns as usual
from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row, Triplet, listed
from unmask.errors import UnmaskError, kind_of, unknown

SCORED, LABELLED, POSITIVES, TRIPLETS = (
    "pairs with scores",
    "pairs with labels",
    "pairs that belong together",
    "triplets",
)

FORMATS = ("tsv", "csv", "jsonl", "json", "parquet")
MATCHES = (  # names of the columns of positive pairs, in addition to those of `columns.PAIRS`
    *(("question", "passage"), ("query", "passage"), ("question", "context"), ("question", "answer")),
    *(("query", "document"), ("query", "answer"), ("anchor", "positive"), ("query", "positive")),
)
NEGATIVES = (  # anchor, positive, negative
    ("anchor", "positive", "negative"),
    ("query", "positive", "negative"),
    ("sent0", "sent1", "hard_neg"),
)


def read(
    path: Path | str,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    negative: str | None = None,
    names: Sequence[str] | None = None,
    format: str | None = None,
    skip: bool = False,
    encoding: str | None = None,
) -> Dataset:
    """Read pairs or triplets from a TSV, CSV, JSON lines, JSON or Parquet file, also .gz or .zst.

    text, pair, label, negative  names of the columns; None: the usual names of public data sets. Numbers count columns
                                 from 1 and mean that there is no header line
    names                        names of the labels 0, 1, …, such as ("entailment", "neutral", "contradiction")
    format                       tsv, csv, jsonl, json or parquet; None: by the file's name and first lines
    skip                         whether to leave out damaged rows (another number of fields, no text, no label) and
                                 count them in `notes`, instead of raising for the first
    encoding                     as for `data.files.lines.lines`

    `columns["kind"]` and the description have the kind of the rows: TRIPLETS with a column of negatives (rows are
    `Triplet`), SCORED if all labels are numbers, LABELLED if none is, POSITIVES without labels. Triplets and positive
    pairs with an empty text, and rows on which the annotators disagreed ("-" in SNLI), are left out and counted in
    `notes`. Raises UnmaskError, which names file, row and column, if something is missing or not valid.
    """
    path = Path(path)
    if not path.is_file():
        raise UnmaskError(f"There is no file {path}.")
    if format is not None and format not in FORMATS:
        raise unknown("format", format, FORMATS)
    format = format or guess_format(path, encoding=encoding)
    if format not in FORMATS:
        raise UnmaskError(f"{path} looks like {format}, which cannot have pairs; if it is another, give it (format).")
    given = {"text": text, "pair": pair, "label": label, "negative": negative}
    header = not any(name is not None and name.isdigit() for name in given.values())
    first = next(rows(path, format, header=header, encoding=encoding, ragged=[] if skip else None), None)
    if first is None:
        raise UnmaskError(f"{path} has no rows.")
    columns = _columns(path, list(first[1]), given)
    if "label" in columns:
        how: dict[str, Any] = {role: columns[role] for role in ("text", "pair", "label")}
        return _labelled(dataset.read(path, **how, format=format, skip=skip, encoding=encoding), names)
    ragged: list[int] | None = [] if skip else None
    table = read_table(path, format, header=header, encoding=encoding, ragged=ragged)
    return _unlabelled(path, table, columns, ragged)


def triplets(pairs: Dataset) -> Dataset:
    """Triplets from pairs with the labels entailment, neutral and contradiction, ignoring case.

    Each hypothesis that a premise entails is a positive of one triplet, and one that the premise contradicts is the
    negative; negatives are used in turn, so that the same rows always give the same triplets. `notes` counts the rows
    without a partner. Raises UnmaskError if no premise has both.
    """
    premises: dict[str, dict[str, dict[str, Row]]] = {}
    for row in pairs:
        by_label = premises.setdefault(_plain(row.text), {})
        by_label.setdefault(row.label.casefold(), {}).setdefault(_plain(row.pair or ""), row)
    used = [pair for by_label in premises.values() for pair in _partners(by_label)]
    if not used:
        raise UnmaskError(
            f"{pairs.path} has no text with both a pair labelled entailment and one labelled contradiction."
        )
    found = tuple(
        Triplet(row.text, row.pair, id=row.id, place=row.place, negative=other.pair or "") for row, other in used
    )
    taken = {id(row) for partners in used for row in partners}
    alone = Counter(row.label.casefold() for row in pairs if id(row) not in taken)
    counts = ", ".join(f"{count:,} {label}" for label, count in sorted(alone.items()))
    notes = (f"Rows without a partner, which are in no triplet: {counts}.",) if counts else ()
    columns = {role: name for role, name in pairs.columns.items() if role != "label"}
    return Dataset(pairs.path, found, {**columns, "kind": TRIPLETS}, (*pairs.notes, *notes))


def _partners(by_label: Mapping[str, Mapping[str, Row]]) -> list[tuple[Row, Row]]:
    """Each entailed row of a premise with a contradicted one; texts that are both are left out."""
    entailed, contradicted = (by_label.get(name, {}) for name in ("entailment", "contradiction"))
    negatives = [row for text, row in contradicted.items() if text not in entailed]
    positives = [row for text, row in entailed.items() if text not in contradicted]
    return [(row, negatives[i % len(negatives)]) for i, row in enumerate(positives)] if negatives else []


def _plain(text: str) -> str:
    return " ".join(text.split())


# ------------------------------------------------------------------------------------------------ columns


def _columns(path: Path, names: Sequence[str], given: Mapping[str, str | None]) -> dict[str, str]:
    """Role -> column, from the given names and the usual ones."""
    columns = {role: name for role, name in given.items() if name is not None}
    for name in columns.values():
        if name not in names:
            raise unknown("column", name, names, path)
    if ("text" in columns) != ("pair" in columns):
        missing, name = ("second", "pair") if "text" in columns else ("first", "text")
        raise UnmaskError(
            f"Give the column of {path} for the {missing} text with --{name} ({name}= in Python); it has: "
            f"{', '.join(names[:30])}."
        )
    if "text" not in columns:
        columns = {**_usual(path, names, "label" not in columns), **columns}
    if "negative" in columns and "label" in columns:
        raise UnmaskError(f"Triplets have no labels; give the column of {path} with labels or that with negatives.")
    label = column_of([name for name in names if name not in columns.values()], usual.LABELS)
    return columns if label is None or {"negative", "label"} & columns.keys() else {**columns, "label": label}


def _usual(path: Path, names: Sequence[str], negatives: bool) -> dict[str, str]:
    """The columns of texts with usual names: three with negatives, else two."""
    for known in (*(NEGATIVES if negatives else ()), *usual.PAIRS, *MATCHES):
        found = [column_of(names, [name]) for name in known]
        if all(found):
            return {role: name for role, name in zip(("text", "pair", "negative"), found, strict=False) if name}
    raise UnmaskError(
        f"{path} has no columns of pairs with usual names; give two of these with --text and --pair (text= and pair= "
        f"in Python): {', '.join(names[:30])}."
    )


# ------------------------------------------------------------------------------------------------ rows


def _labelled(found: Dataset, names: Sequence[str] | None) -> Dataset:
    """Pairs with labels, and their kind: SCORED or LABELLED."""
    if "label" not in found.columns:
        raise UnmaskError(f"The rows of {found.path} have several labels, but a pair has one score or one label.")
    undecided = ("-", "-1") if names is not None else ("-",)  # the annotators of SNLI disagreed
    kept = tuple(row for row in found if row.label not in undecided)
    left = [row.place for row in found if row.label in undecided]
    if not kept:
        raise UnmaskError(f"The annotators of {found.path} agreed on no label: every label is '{found[0].label}'.")
    if names is not None:
        kept = tuple(_named(row, names) for row in kept)
    numbers = sum(map(_is_number, kept))
    pair = (found.columns["text"].lower(), found.columns["pair"].lower())
    if numbers and pair == ("premise", "hypothesis") and {row.label for row in kept} <= {"-1", "0", "1", "2"}:
        raise UnmaskError(
            f"The labels of {found.path} are numbers without a known meaning; give their names in order, "
            'often ("entailment", "neutral", "contradiction").'
        )
    if 0 < numbers < len(kept):
        dataset.scores(kept)  # raises, naming the first label that is not a number
    kind = SCORED if numbers else LABELLED
    notes = (f"Rows left out without agreement on a label: {len(left):,} ({listed(left)}).",) if left else ()
    return Dataset(found.path, kept, {"kind": kind, **found.columns}, (*found.notes, *notes))


def _named(row: Row, names: Sequence[str]) -> Row:
    if not (row.label.isdecimal() and len(row.label) < 10 and int(row.label) < len(names)):
        raise UnmaskError(f"{row.place} has the label '{row.label}', but only 0 to {len(names) - 1} have names.")
    return replace(row, label=names[int(row.label)])


def _is_number(row: Row) -> bool:
    try:
        return math.isfinite(float(row.label))
    except ValueError:
        return False


def _unlabelled(path: Path, table: Table, columns: Mapping[str, str], ragged: Sequence[int] | None) -> Dataset:
    """Triplets, or positive pairs. ragged: rows that were left out already; None: damaged rows are an error."""
    rest = [name for name in table.columns if name not in columns.values()]
    id = column_of(rest, usual.IDS)
    kept: list[Row] = []
    torn = [f"{path}:{number}" for number in ragged or ()]
    left: dict[str, list[str]] = {"with more or fewer fields than the first line": torn}
    for number, values in table.rows:
        place = f"{path}:{number}"
        fault = _fault(values, columns)
        if fault is not None and ragged is None:
            raise UnmaskError(f"{place}: {fault}.")
        row = _row(place, values, columns, id) if fault is None else None
        if row is not None and _is_whole(row):
            kept.append(row)
        else:
            left.setdefault("without a text" if row is None else "with an empty text", []).append(place)
    notes = [f"Rows left out {why}: {len(at):,} ({listed(at)})." for why, at in left.items() if at]
    if len(kept) < sum(map(len, left.values())):
        raise UnmaskError(f"{path} has more damaged rows than valid ones; check its format. {' '.join(notes)}")
    if unused := [name for name in rest if name != id]:
        notes.append(f"Columns that are not used: {', '.join(unused[:30])}.")
        if "negative" not in columns and (name := _of_numbers(table, unused)) is not None:
            notes.append(f"{name} holds numbers: --label {name} (label= in Python) makes them scores of the pairs.")
    kind = TRIPLETS if "negative" in columns else POSITIVES
    return Dataset(path, tuple(kept), {"kind": kind, **columns}, tuple(notes))


def _of_numbers(table: Table, names: Sequence[str]) -> str | None:
    """The first of some columns that holds only numbers; None if there is none."""
    numbers = (all(dataset.number(str(values.get(name))) is not None for _, values in table.rows) for name in names)
    return next((name for name, found in zip(names, numbers, strict=True) if found), None)


def _fault(values: Mapping[str, Any], columns: Mapping[str, str]) -> str | None:
    """The fault of the texts of a row; None if they are valid."""
    name = next((name for name in columns.values() if not isinstance(values.get(name), str)), None)
    if name is None:
        return None
    value = values.get(name)
    return f"the column {name} must be text, not {'missing' if value is None else kind_of(value)}"


def _row(place: str, values: Mapping[str, Any], columns: Mapping[str, str], id: str | None) -> Row:
    text, pair = values[columns["text"]], values[columns["pair"]]
    name = "" if id is None or values.get(id) is None else str(values[id])
    if "negative" in columns:
        return Triplet(text, pair, id=name, place=place, negative=values[columns["negative"]])
    return Row(text, pair, id=name, place=place)


def _is_whole(row: Row) -> bool:
    texts = [row.text, row.pair or "", *([row.negative] if isinstance(row, Triplet) else [])]
    return all(text.strip() for text in texts)

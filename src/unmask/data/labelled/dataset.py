"""Labelled rows: texts, pairs and tagged words from TSV, CSV, JSON, Parquet and CoNLL files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from unmask.data.files.tables import FORMATS, Table, guess_format, on_hub, read_table
from unmask.data.labelled import columns, spans
from unmask.data.labelled.conll import read_conll
from unmask.data.labelled.rows import Row, listed
from unmask.errors import UnmaskError, plural, unknown

# Largest share of a dev set that may also be in the training set. Short texts repeat in any language: 2.8 % of the
# Naver movie reviews and 6.0 % of the CoNLL-2003 sentences are in several of their published splits.
MOST_OVERLAP = 0.1

R = TypeVar("R", bound=Row)

SEPARATORS = (";", "|", ",")  # usual separators of several labels in a cell


@dataclass(frozen=True)
class Dataset(Sequence[Row]):
    """The rows of one file, and the roles of its columns.

    columns  role ("text", "pair", "label", "labels", or "words", "tags") -> name of the column
    notes    sentences on rows that were left out or repaired, with counts and the first places
    """

    path: Path
    rows: tuple[Row, ...]
    columns: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, index: Any) -> Any:
        """A row, or a Dataset for a slice."""
        return replace(self, rows=self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def take(self, indices: Iterable[int]) -> Dataset:
        """The rows with these indices, in this order."""
        return replace(self, rows=tuple(self.rows[i] for i in indices))

    @property
    def tagged(self) -> bool:
        """Whether the rows are sentences of tagged words."""
        return "words" in self.columns

    @property
    def several(self) -> bool:
        """Whether a row may have several labels, or none."""
        return "labels" in self.columns

    @property
    def labels(self) -> tuple[str, ...]:
        """The different labels, or tags, sorted as numbers if all are numbers, else as text."""
        return tuple(ordered(self.histogram()))

    def histogram(self) -> dict[str, int]:
        """Label, or tag -> its count; the most frequent first."""
        return dict(Counter(value for row in self for value in values_of(row)).most_common())

    @property
    def description(self) -> str:
        """The number of rows, the roles of columns, and the notes, without the last full stop."""
        picked = ", ".join(f"{role} = {name}" for role, name in self.columns.items())
        blank = sum(bool(row.texts) and not row.text.strip() for row in self)
        note = f"; {blank:,} with an empty text" if blank else ""
        sentences = (f"{self.path}: {plural(len(self), 'row')} ({picked}){note}", *self.notes)
        return ". ".join(sentence.removesuffix(".") for sentence in sentences)


def values_of(row: Row) -> tuple[str, ...]:
    """The tags, the labels, or the label of a row; empty if it has none of these."""
    return row.tags or row.labels or ((row.label,) if row.label else ())


def read(
    path: Path | str,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    format: str | None = None,
    labelled: bool = True,
    several: str | None = None,
    skip: bool = False,
    encoding: str | None = None,
) -> Dataset:
    """Read rows from a TSV, CSV, JSONL, JSON, Parquet or CoNLL file, also .gz or .zst.

    text, pair, label  names of the columns; None: the usual names of public data sets, and `Dataset.description` names
                       the columns that were used. A number counts columns from 1 and means that a TSV or CSV has no
                       header line. In CoNLL, `text` and `label` are the numbers of the columns of words and tags
                       (default: first and last; 2 and 4 in .conllu)
    format             tsv, csv, jsonl, json, parquet or conll; None: by the file's name and first lines
    labelled           False: rows without labels, for prediction; columns of labels are ignored
    several            separator of several labels in one cell: "|" in "red|round"
    skip               whether to leave out damaged rows (another number of fields, no text, no label) and count them in
                       `notes`, instead of raising for the first
    encoding           as for `data.files.lines.lines`

    A text may have any number of labels in three cases: with `several`; if the column of labels has lists (JSON,
    Parquet); if `label` names columns of 0 and 1, one for each label ("toxic,threat"). They become `Row.labels`. Rows
    with a list of words and one of tags (JSON, Parquet) become tagged sentences, and so do texts with character spans
    (`spans.read_spans`). A column of names or numbers of rows becomes `Row.id`. Rows whose `gold_label` is "-", because
    the annotators of SNLI and MultiNLI disagreed, are left out and counted. Raises UnmaskError, which names the file,
    and the row or column if there is one, if something is missing or not valid.
    """
    path = Path(path)
    if not (path.is_file() or on_hub(path)):
        raise UnmaskError(f"There is no file {path}.")
    if format is not None and format not in FORMATS:
        raise unknown("format", format, FORMATS)
    format = format or guess_format(path, encoding=encoding)
    if format == "conll":
        return Dataset(path, *read_conll(path, text, label, labelled=labelled, encoding=encoding))
    ragged: list[int] = []
    header = not columns.without_header(text, pair, label)
    table = read_table(path, format, header=header, encoding=encoding, ragged=ragged if skip else None)
    marked = spans.column(table, label) if labelled and pair is None and several is None else None
    if marked is not None:
        return Dataset(path, *spans.read_spans(path, table, marked, text))
    roles = {"text": text, "pair": pair, "label": label}
    reading = columns.understand(path, table, **roles, labelled=labelled, several=several)
    rows, notes = _sound_rows(path, table, reading, ragged, skip)
    doubts = (*(_quoted(rows, reading) if format == "tsv" else ()), *_doubts(rows, reading, several))
    return Dataset(path, rows, reading.columns, (*notes, *doubts))


def classes(train: Dataset, *others: Dataset) -> tuple[str, ...]:
    """The labels, or tags, of the training rows.

    Raises UnmaskError if there is only one, and for a row of the other sets with a label that `train` lacks.
    """
    labels = train.labels
    if len(labels) < 2:
        single = f"a single label, '{labels[0]}'" if labels else "no labels"
        raise UnmaskError(f"{train.path} has {single}: at least two are needed.")
    for other in others:
        check_labels(other, labels, f"the training rows of {train.path}")
    return labels


def check_labels(dataset: Dataset, labels: Sequence[str], owner: str) -> None:
    """Raises UnmaskError for the first row with a label, or tag, that is not among `labels`."""
    known = set(labels)
    for row in dataset:
        strange = next((value for value in values_of(row) if value not in known), None)
        if strange is not None:
            kind = "tag" if row.tags else "label"
            shown = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
            raise UnmaskError(f"{row.place} has the {kind} '{strange}', which {owner} do not have ({shown}).")


def scores(dataset: Iterable[Row]) -> list[float]:
    """The labels as numbers. Raises UnmaskError for the first label that is not a finite number."""
    values = []
    for row in dataset:
        value = number(row.label)
        if value is None:
            raise UnmaskError(f"{row.place}: the score '{row.label}' is not a number; regression needs numbers.")
        values.append(value)
    return values


def overlap(train: Dataset, dev: Dataset) -> list[Row]:
    """Rows of `dev` whose text (and pair) is also in `train`, ignoring case and whitespace."""
    known = {row.key for row in train}
    return [row for row in dev if row.key in known]


def check_apart(train: Dataset, dev: Dataset) -> list[Row]:
    """The rows of `dev` that are also in `train`. Raises UnmaskError if they are more than 10 % of `dev`."""
    common = overlap(train, dev)
    if len(common) > MOST_OVERLAP * len(dev):
        raise UnmaskError(
            f"{dev.path} shares {len(common):,} of its {plural(len(dev), 'row')} with {train.path} (the first is "
            f"{common[0].place}), so its score would not measure generalisation; "
            "remove them, or set --allow-overlap yes (allow_overlap=True in Python)."
        )
    return common


def hold_out(
    dataset: Dataset, count: int, rng: np.random.Generator, *, stratified: bool = False
) -> tuple[Dataset, Dataset]:
    """`count` rows, drawn at random, and the other rows, both in the order of the file.

    stratified  whether each class gives its share of the rows, rounded by Webster's method; its last row is drawn only
                if there is no other one
    """
    order = rng.permutation(len(dataset)).tolist()
    if stratified:
        sizes, drawn, turns = Counter(row.label for row in dataset), Counter[str](), {}
        for i in order:
            label = dataset[i].label
            drawn[label] += 1
            turns[i] = (drawn[label] - 0.5) / sizes[label] if drawn[label] < sizes[label] else 1.0
        order.sort(key=turns.__getitem__)
    return dataset.take(sorted(order[:count])), dataset.take(sorted(order[count:]))


def hold_out_classes(dataset: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """All rows of classes that are drawn at random until they have `count` rows, at least two classes, and the other
    rows, both in the order of the file. Only classes of two rows or more are drawn.

    Raises UnmaskError if fewer than four classes have two rows.
    """
    sizes = dataset.histogram()
    labels = [label for label in ordered(sizes) if sizes[label] > 1]
    if len(labels) < 4:
        raise UnmaskError(
            f"{dataset.path} has {plural(len(labels), 'class', 'classes')} of two rows or more: too few to hold some "
            "out; give --dev FILE."
        )
    drawn = list[str]()
    for i in rng.permutation(len(labels)).tolist()[:-2]:
        if len(drawn) > 1 and sum(sizes[label] for label in drawn) >= count:
            break
        drawn.append(labels[i])
    held = [i for i, row in enumerate(dataset) if row.label in drawn]
    return dataset.take(held), dataset.take(i for i, row in enumerate(dataset) if row.label not in drawn)


def hold_out_groups(dataset: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """All rows of groups that are drawn at random until they have `count` rows, and the other rows, both in the order
    of the file. Raises UnmaskError if there are fewer than two groups."""
    groups = [row.group for row in dataset]
    names = sorted(set(groups))
    if len(names) < 2:
        raise UnmaskError(
            f"{dataset.path} has {plural(len(names), 'group')}: too few to hold one out; give --dev FILE, or leave "
            "--group out."
        )
    drawn, rows = set[str](), 0
    for i in rng.permutation(len(names)).tolist()[:-1]:
        if rows >= count:
            break
        drawn.add(names[i])
        rows += groups.count(names[i])
    return (
        dataset.take(i for i, group in enumerate(groups) if group in drawn),
        dataset.take(i for i, group in enumerate(groups) if group not in drawn),
    )


def in_turns(rows: Iterable[R]) -> list[R]:
    """The first row of each class, then the second ones, and so on: the first rows cover all classes."""
    counts, turns = Counter[str](), []
    for row in rows:
        turns.append((counts[row.label], row))
        counts[row.label] += 1
    return [row for _, row in sorted(turns, key=lambda turn: turn[0])]


def ordered(labels: Iterable[str]) -> list[str]:
    """The labels sorted as numbers if all are numbers, else as text with "O" first."""
    values = list(labels)
    numbers = {value: number(value) for value in values}
    if None not in numbers.values():
        return sorted(values, key=lambda value: (numbers[value], value))
    return sorted(values, key=lambda value: (value != "O", value))


def _sound_rows(
    path: Path, table: Table, reading: columns.Reading, ragged: Sequence[int], skip: bool
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The valid rows of a table, and sentences on those that were left out."""
    rows: list[Row] = []
    faulty: list[str] = []
    undecided: list[str] = []
    voted = reading.columns.get("label", "").lower() == "gold_label"
    for number, values in table.rows:
        place = f"{path}:{number}"
        try:
            row = reading.row(values, place)
        except UnmaskError:
            if not skip:
                raise
            faulty.append(place)
            continue
        if voted and row.label == "-":
            undecided.append(place)
        else:
            rows.append(row)
    left_out = {
        "with more or fewer fields than the first line": [f"{path}:{number}" for number in ragged],
        "without a text or a valid label": faulty,
        "without agreement on a label": undecided,
    }
    notes = tuple(f"Rows left out {why}: {len(at):,} ({listed(at)})." for why, at in left_out.items() if at)
    if not rows and len(undecided) == len(table.rows):
        raise UnmaskError(f"The annotators of {path} agreed on no label: every label is '-'.")
    if len(faulty) + len(ragged) > len(rows):
        raise UnmaskError(f"{path} has more damaged rows than valid ones; check its format. {' '.join(notes)}")
    return tuple(rows), notes


def separator_in(rows: Iterable[Row]) -> tuple[str, str] | None:
    """The probable separator of several labels in a cell, and such a cell; None if cells seem to have one label."""
    labels = {row.label for row in rows}
    return next(((mark, cell) for mark in SEPARATORS if (cell := _joined(labels, mark)[0])), None)


def _doubts(rows: Sequence[Row], reading: columns.Reading, several: str | None) -> Iterator[str]:
    """Sentences on labels that were probably read wrongly."""
    found = {label for row in rows for label in row.labels}
    rare = [name for name in reading.flags if name not in found]
    if rare:
        yield f"No row has the label {', '.join(rare)}."
    if several is not None and "labels" in reading.columns and all(len(row.labels) < 2 for row in rows):
        yield f"No row has several labels: no cell of {reading.columns['labels']} has the separator '{several}'."
    for separator in SEPARATORS:
        cell, part = _joined({row.label for row in rows}, separator)
        if cell:
            yield (
                f"Cells of {reading.columns['label']} such as '{cell}' are read as one label, although '{part}' is the "
                f"label of other rows; if texts may have several, set --task multilabel --several '{separator}'."
            )


def _joined(labels: set[str], separator: str) -> tuple[str, str]:
    """A label that seems to be several, and one of its parts that is the only label of other rows; else empty."""
    parts = {label: frozenset(map(str.strip, label.split(separator))) for label in sorted(labels)}
    often = Counter(part for distinct in set(parts.values()) for part in distinct)
    for label, found in parts.items():
        alone = sorted(found & labels)
        if len(found) > 1 and alone and all(often[part] > 1 for part in found):
            return label, alone[0]
    return "", ""


def _quoted(rows: Sequence[Row], reading: columns.Reading) -> Iterator[str]:
    """A sentence if the texts of a TSV are quoted like those of a CSV."""
    names = [reading.columns[role] for role in ("text", "pair") if _are_quoted([getattr(row, role) for row in rows])]
    if names:
        yield (
            f'Most cells of {" and ".join(names)} are in quotes ("), which are characters of the text in TSV; if '
            "they are not part of the text, save the table as CSV."
        )


def _are_quoted(texts: Sequence[str | None]) -> bool:
    """Whether most texts are in quotes, and some have a doubled quote inside."""
    inner = [text[1:-1] for text in texts if text is not None and len(text) > 1 and text[0] == text[-1] == '"']
    return len(inner) > len(texts) / 2 and any('""' in text for text in inner)


def number(value: str) -> float | None:
    """A label as a finite number; None if it is none."""
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None

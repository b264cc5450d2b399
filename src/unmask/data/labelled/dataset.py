"""Labelled rows: texts, pairs and tagged words from TSV, CSV, JSON, Parquet and CoNLL files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.tables import FORMATS, Table, guess_format, read_table
from unmask.data.labelled import columns, spans
from unmask.data.labelled.conll import read_conll
from unmask.data.labelled.rows import Row, listed
from unmask.errors import UnmaskError, plural, unknown

# Share of a dev set that may also be in the training set. Short texts repeat in any language: 2.8 % of the Naver movie
# reviews and 6.0 % of the CoNLL-2003 sentences do, between their published splits.
MOST_OVERLAP = 0.1

SEPARATORS = (";", "|", ",")  # what often stands between the labels of a cell that has several


@dataclass(frozen=True)
class Dataset(Sequence[Row]):
    """The rows of one file, and how its columns were understood.

    columns  role ("text", "pair", "label", "labels", or "words", "tags") -> name of the column
    notes    sentences on what was left out or repaired, with counts and the first places
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
        """A row, or for a slice a Dataset."""
        return replace(self, rows=self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def take(self, indices: Iterable[int]) -> Dataset:
        """The rows at these places, in this order."""
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
        """The different labels, or tags, in order: as numbers where all are numbers, else as text."""
        return tuple(ordered(self.histogram()))

    def histogram(self) -> dict[str, int]:
        """Label, or tag, -> how often; most frequent first."""
        return dict(Counter(value for row in self for value in values_of(row)).most_common())

    @property
    def description(self) -> str:
        """How many rows, which column was taken for what, and the notes; the last full stop is left to the reader."""
        picked = ", ".join(f"{role} = {name}" for role, name in self.columns.items())
        blank = sum(bool(row.texts) and not row.text.strip() for row in self)
        note = f"; {blank:,} with an empty text" if blank else ""
        sentences = (f"{self.path}: {plural(len(self), 'row')} ({picked}){note}", *self.notes)
        return ". ".join(sentence.removesuffix(".") for sentence in sentences)


def values_of(row: Row) -> tuple[str, ...]:
    """The labels of a row, its tags, or its label; nothing where it has none of these."""
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
    """Rows from a TSV, CSV, JSONL, JSON, Parquet or CoNLL file, also .gz or .zst.

    text, pair, label  names of the columns; without them, the usual names of public data sets are looked for, and
                       `Dataset.description` says what was taken. A number counts columns from 1 and means that a
                       TSV or CSV has no header line. In CoNLL, `text` and `label` are such numbers of the word and
                       the tag (default: first and last; 2 and 4 in .conllu).
    format             where the file's name does not tell: tsv, csv, jsonl, json, parquet, conll
    labelled           False: rows to be answered, as test files hold them; labels are not looked at
    several            what stands between the labels of a text that has several, in one cell: "|" in "red|round"
    skip               leave damaged rows out (another number of fields, no text, no label), counted in `notes`, in
                       place of raising for the first
    encoding           as for `data.files.lines.lines`

    A text may have several labels, or none, in three ways: with `several`; where the column of labels has lists (JSON,
    Parquet); where `label` names columns of 0 and 1 that are a label each ("toxic,threat"). They become `Row.labels`.
    Rows with a list of words and one of tags (JSON, Parquet) are read as tagged sentences, and so are texts with
    character spans (`spans.read_spans`). A column of names or numbers of rows becomes `Row.id`. Rows whose `gold_label`
    is "-", as SNLI and MultiNLI say that the annotators did not agree, are left out and counted. Raises UnmaskError
    that names the file, and the row or column where there is one, for anything that is missing or does not fit.
    """
    path = Path(path)
    if not path.is_file():
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
    """The labels, or tags, of the training rows, which the other sets must not go beyond.

    Raises UnmaskError where there is only one, and for a row of the others with a label that `train` lacks.
    """
    labels = train.labels
    if len(labels) < 2:
        single = f"a single label, '{labels[0]}'" if labels else "no labels"
        raise UnmaskError(f"{train.path} has {single}: there is nothing to tell apart.")
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
    """The labels as numbers. Raises UnmaskError for the first that is not a finite number."""
    values = []
    for row in dataset:
        value = _number(row.label)
        if value is None:
            raise UnmaskError(f"{row.place}: the score '{row.label}' is not a number; regression needs numbers.")
        values.append(value)
    return values


def overlap(train: Dataset, dev: Dataset) -> list[Row]:
    """Rows of `dev` whose text (and pair) is also in `train`, apart from capitals and spaces."""
    known = {row.key for row in train}
    return [row for row in dev if row.key in known]


def check_apart(train: Dataset, dev: Dataset) -> list[Row]:
    """The overlapping rows, where they are few. Raises UnmaskError where they are more than 10 % of `dev`."""
    common = overlap(train, dev)
    if len(common) > MOST_OVERLAP * len(dev):
        raise UnmaskError(
            f"{dev.path} shares {len(common):,} of its {plural(len(dev), 'row')} with {train.path} (the first is "
            f"{common[0].place}), so its score would not tell what was learned; "
            "take them out, or set --allow-overlap yes."
        )
    return common


def hold_out(
    dataset: Dataset, count: int, rng: np.random.Generator, *, stratified: bool = False
) -> tuple[Dataset, Dataset]:
    """So many rows, drawn at random, and the rest, both in the order of the file.

    stratified  each class gives its share of them, rounded by Webster's method; its last row is drawn only where
                there is no other
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


def ordered(labels: Iterable[str]) -> list[str]:
    """Labels as numbers where all are, else as text; "O" first among tags, as it is the rest."""
    values = list(labels)
    numbers = {value: _number(value) for value in values}
    if None not in numbers.values():
        return sorted(values, key=lambda value: (numbers[value], value))
    return sorted(values, key=lambda value: (value != "O", value))


def _sound_rows(
    path: Path, table: Table, reading: columns.Reading, ragged: Sequence[int], skip: bool
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows of a table, and sentences on those that were left out."""
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
        "without a text or a sound label": faulty,
        "without agreement on a label": undecided,
    }
    notes = tuple(f"Rows left out {why}: {len(at):,} ({listed(at)})." for why, at in left_out.items() if at)
    if not rows and len(undecided) == len(table.rows):
        raise UnmaskError(f"The annotators of {path} agreed on no label: every one is '-'.")
    if len(faulty) + len(ragged) > len(rows):
        raise UnmaskError(f"{path} has more damaged rows than sound ones: is it of another format? {' '.join(notes)}")
    return tuple(rows), notes


def separator_in(rows: Iterable[Row]) -> tuple[str, str] | None:
    """What seems to stand between several labels of a cell, and such a cell; None where cells seem to have one each."""
    labels = {row.label for row in rows}
    return next(((mark, cell) for mark in SEPARATORS if (cell := _joined(labels, mark)[0])), None)


def _doubts(rows: Sequence[Row], reading: columns.Reading, several: str | None) -> Iterator[str]:
    """Sentences on several labels that look as if something was mistaken."""
    found = {label for row in rows for label in row.labels}
    rare = [name for name in reading.flags if name not in found]
    if rare:
        yield f"No row has the label {', '.join(rare)}."
    if several is not None and "labels" in reading.columns and all(len(row.labels) < 2 for row in rows):
        yield f"No row has several labels; in no cell of {reading.columns['labels']} they stand apart by '{several}'."
    for separator in SEPARATORS:
        cell, part = _joined({row.label for row in rows}, separator)
        if cell:
            yield (
                f"Cells of {reading.columns['label']} such as '{cell}' are taken as one label, though '{part}' is the "
                f"label of other rows; if texts may have several, say --task multilabel --several '{separator}'."
            )


def _joined(labels: set[str], separator: str) -> tuple[str, str]:
    """A label that looks as if it were several, and one of these that other rows have alone; else nothing."""
    parts = {label: frozenset(map(str.strip, label.split(separator))) for label in sorted(labels)}
    often = Counter(part for distinct in set(parts.values()) for part in distinct)
    for label, found in parts.items():
        alone = sorted(found & labels)
        if len(found) > 1 and alone and all(often[part] > 1 for part in found):
            return label, alone[0]
    return "", ""


def _quoted(rows: Sequence[Row], reading: columns.Reading) -> Iterator[str]:
    """A sentence where the texts of a TSV stand in quotes, as those of a CSV do."""
    names = [reading.columns[role] for role in ("text", "pair") if _are_quoted([getattr(row, role) for row in rows])]
    if names:
        yield (
            f'Most cells of {" and ".join(names)} stand in quotes ("), which are characters of the text in TSV; where '
            "they should not be, save the table as CSV."
        )


def _are_quoted(texts: Sequence[str | None]) -> bool:
    """Whether most stand in quotes, and some have a quote doubled within."""
    inner = [text[1:-1] for text in texts if text is not None and len(text) > 1 and text[0] == text[-1] == '"']
    return len(inner) > len(texts) / 2 and any('""' in text for text in inner)


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

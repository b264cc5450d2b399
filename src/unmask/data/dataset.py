"""Labelled rows: texts, pairs and tagged words from TSV, CSV, JSON, Parquet and CoNLL files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.data.lines import lines
from unmask.data.rows import Row
from unmask.data.tables import FORMATS, Table, guess_format, read_table
from unmask.errors import UnmaskError, unknown

PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("#1 String", "#2 String"),
    ("sentence_A", "sentence_B"),
    ("text_a", "text_b"),
    ("text1", "text2"),
)
TEXTS = ("sentence", "text", "document", "review", "content", "comment")
LABELS = (
    *("label", "labels", "gold_label", "score", "similarity", "Quality", "is_duplicate"),
    *("class", "category", "sentiment", "target", "relatedness_score"),
)
WORDS = ("words", "tokens")
TAGS = ("tags", "ner_tags", "pos_tags", "chunk_tags", "labels", "label")

# Share of a dev set that may also be in the training set. Short texts repeat in any language: 2.8 % of the Naver movie
# reviews and 6.0 % of the CoNLL-2003 sentences do, between their published splits.
MOST_OVERLAP = 0.1


@dataclass(frozen=True)
class Dataset(Sequence[Row]):
    """The rows of one file, and how its columns were understood.

    columns  role ("text", "pair", "label", or "words", "tags") -> name of the column
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
        return Dataset(self.path, self.rows[index], self.columns) if isinstance(index, slice) else self.rows[index]

    def take(self, indices: Iterable[int]) -> Dataset:
        """The rows at these places, in this order."""
        return Dataset(self.path, tuple(self.rows[i] for i in indices), self.columns)

    @property
    def tagged(self) -> bool:
        """Whether the rows are sentences of tagged words."""
        return "words" in self.columns

    @property
    def labels(self) -> tuple[str, ...]:
        """The different labels, or tags, in order: as numbers where all are numbers, else as text."""
        return tuple(ordered(self.histogram()))

    def histogram(self) -> dict[str, int]:
        """Label, or tag, -> how often; most frequent first."""
        values = (tag for row in self for tag in row.tags) if self.tagged else (row.label for row in self)
        return dict(Counter(values).most_common())

    @property
    def description(self) -> str:
        """One sentence: how many rows, and which column was taken for what."""
        picked = ", ".join(f"{role} = {name}" for role, name in self.columns.items())
        blank = sum(not row.text.strip() for row in self)
        note = f"; {blank:,} with an empty text" if blank else ""
        return f"{self.path}: {len(self):,} rows ({picked}){note}"


def read(
    path: Path | str,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    format: str | None = None,
) -> Dataset:
    """Labelled rows from a TSV, CSV, JSONL, JSON, Parquet or CoNLL file, also .gz or .zst.

    text, pair, label  names of the columns; without them, the usual names of public data sets are looked for, and
                       `Dataset.description` says what was taken. A number counts columns from 1 and means that a
                       TSV or CSV has no header line. In CoNLL, `text` and `label` are such numbers of the word and
                       the tag (default: first and last; 2 and 4 in .conllu).
    format             where the file's name does not tell: tsv, csv, jsonl, json, parquet, conll

    Rows with a list of words and one of tags (JSON, Parquet) are read as tagged sentences. Raises UnmaskError that
    names the file, and the row or column where there is one, for anything that is missing or does not fit.
    """
    path = Path(path)
    if not path.is_file():
        raise UnmaskError(f"There is no file {path}.")
    if format is not None and format not in FORMATS:
        raise unknown("format", format, FORMATS)
    format = format or guess_format(path)
    if format == "conll":
        return _conll(path, text, label)
    header = not any(name is not None and name.isdigit() for name in (text, pair, label))
    table = read_table(path, format, header=header)
    columns = _columns(path, table, text, pair, label)
    make = _tagged_row if "words" in columns else _text_row
    rows = tuple(make(values, columns, f"{path}:{number}") for number, values in table.rows)
    return Dataset(path, rows, columns)


def classes(train: Dataset, *others: Dataset) -> tuple[str, ...]:
    """The labels, or tags, of the training rows, which the other sets must not go beyond.

    Raises UnmaskError where there is only one, and for a row of the others with a label that `train` lacks.
    """
    labels = train.labels
    if len(labels) < 2:
        raise UnmaskError(f"{train.path} has a single label, '{labels[0]}': there is nothing to tell apart.")
    for other in others:
        check_labels(other, labels, f"the training rows of {train.path}")
    return labels


def check_labels(dataset: Dataset, labels: Sequence[str], owner: str) -> None:
    """Raises UnmaskError for the first row with a label, or tag, that is not among `labels`."""
    known = set(labels)
    for row in dataset:
        strange = next((value for value in (row.tags or (row.label,)) if value not in known), None)
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
            f"{len(common):,} of the {len(dev):,} rows of {dev.path} are also in {train.path} (the first is "
            f"{common[0].place}), so their score would not tell what was learned; "
            "take them out, or set --allow-overlap yes."
        )
    return common


def ordered(labels: Iterable[str]) -> list[str]:
    """Labels as numbers where all are, else as text; "O" first among tags, as it is the rest."""
    values = list(labels)
    numbers = {value: _number(value) for value in values}
    if None not in numbers.values():
        return sorted(values, key=lambda value: (numbers[value], value))
    return sorted(values, key=lambda value: (value != "O", value))


# ------------------------------------------------------------------------------------------------ columns


def _columns(path: Path, table: Table, text: str | None, pair: str | None, label: str | None) -> dict[str, str]:
    """Role -> column, from the names given and the usual ones."""
    for name in (text, pair, label):
        if name is not None and name not in table.columns:
            raise unknown(f"column in {path}", name, table.columns)
    if pair is not None and text is None:
        raise UnmaskError(f"The second text of {path} is {pair}; say which column is the first (--text).")
    lists = {name for name, value in table.rows[0][1].items() if isinstance(value, (list, tuple))}
    if text in lists or (text is None and (word := _first(table, WORDS)) in lists and word is not None):
        tags = label or _first(table, [name for name in TAGS if name in lists])
        if tags is None or tags not in lists:
            raise UnmaskError(f"{path} has words but no list of tags among its columns: {_listed(table)}.")
        return {"words": text or _first(table, WORDS) or "", "tags": tags}
    columns = {"text": text} if text is not None else _usual_texts(path, table)
    if pair is not None:
        columns["pair"] = pair
    label = label or _first(table, [name for name in LABELS if name not in columns.values()])
    if label is None:
        raise UnmaskError(
            f"{path} has no column of labels that is known by name; say which it is of: {_listed(table)}."
        )
    return {**columns, "label": label}


def _usual_texts(path: Path, table: Table) -> dict[str, str]:
    for names in PAIRS:
        first, second = (_first(table, [name]) for name in names)
        if first is not None and second is not None:
            return {"text": first, "pair": second}
    text = _first(table, TEXTS)
    if text is None:
        raise UnmaskError(f"{path} has no column of texts that is known by name; say which it is of: {_listed(table)}.")
    return {"text": text}


def _first(table: Table, names: Iterable[str]) -> str | None:
    """The first of these names that is a column, whatever its capitals."""
    by_lower = {column.lower(): column for column in reversed(table.columns)}
    return next((by_lower[name.lower()] for name in names if name.lower() in by_lower), None)


def _listed(table: Table) -> str:
    return ", ".join(table.columns[:30])


# ------------------------------------------------------------------------------------------------ rows


def _text_row(values: Mapping[str, Any], columns: Mapping[str, str], place: str) -> Row:
    texts = {}
    for role in ("text", "pair"):
        if role in columns:
            value = values.get(columns[role])
            if not isinstance(value, str):
                raise UnmaskError(f"{place}: the column {columns[role]} must be text, not {_kind(value)}.")
            texts[role] = value
    label = _label(values.get(columns["label"]))
    if label is None:
        raise UnmaskError(
            f"{place} has no label: its column {columns['label']} is {_kind(values.get(columns['label']))}."
        )
    return Row(texts["text"], texts.get("pair"), label, place=place)


def _tagged_row(values: Mapping[str, Any], columns: Mapping[str, str], place: str) -> Row:
    words, tags = (values.get(columns[role]) for role in ("words", "tags"))
    if not isinstance(words, (list, tuple)) or not isinstance(tags, (list, tuple)) or not words:
        raise UnmaskError(f"{place}: {columns['words']} and {columns['tags']} must be lists that are not empty.")
    if len(words) != len(tags):
        raise UnmaskError(f"{place} has {len(words)} words but {len(tags)} tags.")
    named = [_label(tag) for tag in tags]
    if not all(isinstance(word, str) for word in words) or None in named:
        raise UnmaskError(f"{place}: every word must be text, and every tag text or a whole number.")
    return Row(" ".join(words), words=tuple(words), tags=tuple(tag for tag in named if tag is not None), place=place)


def _label(value: Any) -> str | None:
    """A label as text: 1, 1.0 and "1" are the same one; None for what cannot be a label."""
    if isinstance(value, float):
        return None if not math.isfinite(value) else str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, (str, int, bool)):
        return str(value).strip() or None
    return None


def _kind(value: Any) -> str:
    return "missing" if value is None else "empty" if value in ("", []) else f"a {type(value).__name__}"


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


# ------------------------------------------------------------------------------------------------ CoNLL


def _conll(path: Path, word: str | None, tag: str | None) -> Dataset:
    """Sentences apart by blank lines, one word a line, columns apart by tabs where there are any, else by spaces."""
    universal = ".conllu" in path.suffixes
    word, tag = word or ("2" if universal else "1"), tag or ("4" if universal else None)
    for name in (word, tag):
        if name is not None and not (name.isdigit() and int(name) > 0):
            raise UnmaskError(
                f"The columns of {path} have no names; give a number, counted from 1, instead of '{name}'."
            )
    numbered = [(number, line.removesuffix("\n").removesuffix("\r")) for number, line in lines(path, newline="\n")]
    tabbed = any("\t" in line for _, line in numbered)
    rows: list[Row] = []
    sentence: list[tuple[str, str]] = []
    begin = width = 0

    def close() -> None:
        if sentence:
            words, tags = zip(*sentence, strict=True)
            rows.append(Row(" ".join(words), words=words, tags=tags, place=f"{path}:{begin}"))
            sentence.clear()

    for number, line in numbered:
        if line.startswith("-DOCSTART-") or not line.strip():
            close()
            continue
        if line.startswith("##") or (tabbed and line.startswith("# ")):
            continue
        fields = line.split("\t") if tabbed else line.split()
        width = width or len(fields)
        _check_fields(f"{path}:{number}", fields, width, word, tag)
        if universal and not fields[0].isdigit():  # 3-4 is a contraction, 8.1 a word that was left out
            continue
        begin = begin if sentence else number
        sentence.append((fields[int(word) - 1], fields[int(tag or width) - 1].strip()))
    close()
    if not rows:
        raise UnmaskError(f"{path} has no sentences.")
    if len(rows) == 1 and any(" " in word.strip() for word in rows[0].words):
        raise UnmaskError(f"{path} has no blank line between sentences, and texts for words: it is a table, not CoNLL.")
    return Dataset(path, tuple(rows), {"words": f"column {word}", "tags": f"column {tag or width}"})


def _check_fields(place: str, fields: Sequence[str], width: int, word: str, tag: str | None) -> None:
    if len(fields) != width:
        raise UnmaskError(f"{place} has {len(fields)} columns, but the lines before it have {width}.")
    if width < 2:
        raise UnmaskError(f"{place} has one column only; a word and its tag are needed.")
    if max(int(word), int(tag or 1)) > width:
        raise UnmaskError(f"{place} has {width} columns; there is no column {max(int(word), int(tag or 1))}.")
    if not fields[int(tag or width) - 1].strip():
        raise UnmaskError(f"{place} has no tag.")

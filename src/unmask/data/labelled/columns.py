"""Columns: finds the columns of texts, words and labels in a table by the names in public data sets; makes rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from unmask.data.files.tables import Table, column_of
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, kind_of, plural, unknown

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
TEXTS = ("sentence", "text", "document", "review", "content", "comment", "comment_text")
LABELS = (
    *("label", "labels", "gold_label", "score", "similarity", "Quality", "is_duplicate"),
    *("class", "category", "sentiment", "target", "relatedness_score", "labels.label"),
)
WORDS = ("words", "tokens")
TAGS = ("tags", "ner_tags", "pos_tags", "chunk_tags", "labels", "label")
IDS = ("index", "id", "guid", "idx", "pairID", "pair_ID")

_FLAGS = {"0": False, "1": True, "false": False, "true": True}

_Values = Mapping[str, Any]
_Labels = Callable[[_Values, str], dict[str, Any]]  # values and place of a row -> its `label`, `labels` or `tags`


@dataclass(frozen=True)
class Reading:
    """The interpretation of a table.

    columns  role -> column: "text" and "pair", or "words"; "label", or "labels" if a row may have several, or "tags"
    row      (values of a line, its place) -> a row; raises UnmaskError for values that are not valid
    flags    the columns of 0 and 1, one for each label, if labels have this form
    """

    columns: dict[str, str]
    row: Callable[[_Values, str], Row]
    flags: tuple[str, ...] = ()


def understand(
    path: Path,
    table: Table,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    labelled: bool = True,
    several: str | None = None,
) -> Reading:
    """Find the columns: those that are given, and usual names for the others; the arguments are as in `dataset.read`.

    Raises UnmaskError for a name that is not a column, and if no column of texts, or of labels, is known.
    """
    labels = _split(label, table) if labelled and label is not None else []
    for name in (text, pair, *labels):
        if name is not None and name not in table.columns:
            raise unknown("column", name, table.columns, path)
    if pair is not None and text is None:
        raise UnmaskError(f"The second text of {path} is {pair}; give the column of the first one too (--text).")
    words = text if text is not None else column_of(table.columns, WORDS)
    if words is not None and _is_list(table.rows[0][1].get(words)):
        return _of_words(path, table, words, labels[0] if labels else None, labelled)
    columns = {"text": text} if text is not None else _usual_texts(path, table, labelled)
    if pair is not None:
        columns["pair"] = pair
    roles, read_labels = _of_labels(path, table, columns, labels, several) if labelled else ({}, _no_label)
    columns = {**columns, **roles}
    make = partial(_text_row, columns, read_labels, _usual_id(table, columns))
    return Reading(columns, make, tuple(labels) if len(labels) > 1 else ())


def without_header(*names: str | None) -> bool:
    """Whether one of the given columns is a number, so that the first line is a row."""
    return any(part.strip().isdigit() for name in names if name is not None for part in name.split(","))


# ------------------------------------------------------------------------------------------------ which column


def _split(label: str, table: Table) -> list[str]:
    """The columns of "toxic,obscene", unless there is a column with this whole name."""
    return [label] if label in table.columns else [name.strip() for name in label.split(",")]


def _of_words(path: Path, table: Table, words: str, tags: str | None, labelled: bool) -> Reading:
    columns = {"words": words}
    if labelled:
        lists = [name for name in table.columns if name != words and _is_list(table.rows[0][1].get(name))]
        tags = tags or column_of(lists, TAGS)
        if tags is None or tags not in lists:
            raise UnmaskError(f"{path} has words but no list of tags among its columns: {_listed(table)}.")
        columns["tags"] = tags
    return Reading(columns, partial(_tagged_row, columns, _usual_id(table, columns)))


def _usual_texts(path: Path, table: Table, labelled: bool) -> dict[str, str]:
    for names in PAIRS:
        first, second = (column_of(table.columns, [name]) for name in names)
        if first is not None and second is not None:
            return {"text": first, "pair": second}
    text = column_of(table.columns, TEXTS)
    if text is None and len(table.columns) == 1 and not labelled:
        text = table.columns[0]
    if text is None:
        raise UnmaskError(
            f"{path} has no column of texts with a usual name; give one of these with --text (text= in Python): "
            f"{_listed(table)}."
        )
    return {"text": text}


def _of_labels(
    path: Path, table: Table, texts: Mapping[str, str], names: Sequence[str], several: str | None
) -> tuple[dict[str, str], _Labels]:
    """Role -> column of labels, and the function that reads them."""
    if len(names) > 1:
        return {"labels": ", ".join(names)}, partial(_flags, tuple(names))
    rest = [name for name in table.columns if name not in texts.values()]
    name = names[0] if names else column_of(rest, LABELS)
    if name is None:
        flags = [name for name in rest if all(_flag(values.get(name)) is not None for _, values in table.rows)]
        hint = f" (for columns of 0 and 1, one for each label: --label {','.join(flags)})" * (len(flags) > 1)
        if not rest:
            instead = "a column of labels; in Python, give (text, label) tuples or dictionaries with a label"
            raise UnmaskError(f"The rows of {path} have only texts; add {instead}.")
        raise UnmaskError(
            f"{path} has no column of labels with a usual name; give one of these with --label (label= in Python): "
            f"{', '.join(rest[:30])}{hint}."
        )
    if any(_is_list(values.get(name)) for _, values in table.rows):
        return {"labels": name}, partial(_list, name)
    if several is None:
        return {"label": name}, partial(_single, name)
    if not several:
        raise UnmaskError("The separator of several labels must have at least one character, such as '|'.")
    return {"labels": name}, partial(_cell, name, several)


def _usual_id(table: Table, columns: Mapping[str, str]) -> str | None:
    return column_of([name for name in table.columns if name not in columns.values()], IDS)


def _listed(table: Table) -> str:
    return ", ".join(table.columns[:30])


# ------------------------------------------------------------------------------------------------ rows


def _text_row(columns: Mapping[str, str], labels: _Labels, id: str | None, values: _Values, place: str) -> Row:
    text = _text(columns["text"], values, place)
    pair = _text(columns["pair"], values, place) if "pair" in columns else None
    return Row(text, pair, **labels(values, place), id=_id(id, values), place=place)


def _text(column: str, values: _Values, place: str) -> str:
    value = values.get(column)
    if not isinstance(value, str):
        raise UnmaskError(f"{place}: the column {column} must be text, not {_kind(value)}.")
    return value


def _tagged_row(columns: Mapping[str, str], id: str | None, values: _Values, place: str) -> Row:
    lists = {role: values.get(columns[role]) for role in ("words", "tags") if role in columns}
    if not all(_is_list(value) and value for value in lists.values()):
        names = " and ".join(columns[role] for role in lists)
        raise UnmaskError(f"{place}: {names} must be lists that are not empty.")
    words, tags = lists["words"] or (), lists.get("tags") or ()
    if tags and len(words) != len(tags):
        raise UnmaskError(f"{place} has {plural(len(words), 'word')} but {plural(len(tags), 'tag')}.")
    named = [_label(tag) for tag in tags]
    if not all(isinstance(word, str) for word in words) or None in named:
        raise UnmaskError(f"{place}: every word must be text, and every tag text or a whole number.")
    found = tuple(tag for tag in named if tag is not None)
    return Row(" ".join(words), words=tuple(words), tags=found, id=_id(id, values), place=place)


def _id(column: str | None, values: _Values) -> str:
    return "" if column is None else _label(values.get(column)) or ""


# ------------------------------------------------------------------------------------------------ labels


def _no_label(values: _Values, place: str) -> dict[str, Any]:
    return {}


def _single(column: str, values: _Values, place: str) -> dict[str, Any]:
    label = _label(values.get(column))
    if label is None:
        raise UnmaskError(
            f"{place} has no label: its column {column} is {_kind(values.get(column))}; if texts may have any number "
            "of labels, set --task multilabel, and their separator with --several."
        )
    return {"label": label}


def _list(column: str, values: _Values, place: str) -> dict[str, Any]:
    found = values.get(column)
    if not _is_list(found):
        raise UnmaskError(f"{place}: the column {column} must be a list of labels, not {_kind(found)}.")
    labels = [_label(value) for value in found or ()]
    if None in labels:
        number = labels.index(None)
        kind = _kind((found or ())[number])
        raise UnmaskError(f"{place}: label {number + 1} of the column {column} must be text or a number, not {kind}.")
    return {"labels": tuple(dict.fromkeys(labels))}


def _cell(column: str, separator: str, values: _Values, place: str) -> dict[str, Any]:
    found = values.get(column)
    cell = "" if found == "" else _label(found)
    if cell is None and not isinstance(found, str):
        raise UnmaskError(f"{place} has no labels: its column {column} is {_kind(found)}.")
    parts = (part.strip() for part in (cell or "").split(separator))
    return {"labels": tuple(dict.fromkeys(part for part in parts if part))}


def _flags(names: Sequence[str], values: _Values, place: str) -> dict[str, Any]:
    found = []
    for name in names:
        flag = _flag(values.get(name))
        if flag is None:
            value = values.get(name)
            wrong = f"'{value}'" if isinstance(value, (str, int, float)) and value != "" else _kind(value)
            raise UnmaskError(f"{place}: the column {name} must be 0 or 1, not {wrong}.")
        if flag:
            found.append(name)
    return {"labels": tuple(found)}


def _flag(value: Any) -> bool | None:
    return _FLAGS.get((_label(value) or "").lower())


def _label(value: Any) -> str | None:
    """A label as text: 1, 1.0 and "1" are the same label; None for a value that cannot be a label."""
    if isinstance(value, float):
        return None if not math.isfinite(value) else str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, (str, int, bool)):
        return str(value).strip() or None
    return None


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _kind(value: Any) -> str:
    return "missing" if value is None else "empty" if value in ("", []) else kind_of(value)

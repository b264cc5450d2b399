"""The layouts of multiple-choice files: finds the columns of context, question, choices and label."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from unmask.config import flatten
from unmask.data.files.tables import column_of, json_values, rows
from unmask.errors import UnmaskError, kind_of

FORMATS = ("tsv", "csv", "jsonl", "json", "parquet")
MOST = 26  # largest number of choices of a row, which have the letters A to Z

TEXTS = (
    *("sent1", "article", "passage", "context", "dialogue", "text", "premise", "ctx_a", "ctx", "sentence", "goal"),
    "startphrase",
)
QUESTIONS = ("question", "question.stem", "question_stem", "query", "sent2", "ctx_b")
LISTS = ("choices", "options", "endings", "choice", "candidates", "choices.text", "question.choices")
MARKS = ("choices.label",)
LABELS = ("label", "answerKey", "answer", "correct", "correct_answer", "gold", "target")
IDS = ("id", "questionID", "qid")

MARK = re.compile(r"\(?([A-Za-z]|\d\d?)[).]?")  # a letter or number that names a choice: A, (A), 1.
_NUMBERED = re.compile(r"((?:(?:ending|choice|option|answer|solution)s?|sol|)[_. -]?)(\d\d?|[a-z])")

Entry = tuple[str, Mapping[str, Any]]  # place, value by column


def entries_of(
    path: Path, format: str, ragged: list[int] | None = None, encoding: str | None = None
) -> Iterator[Entry]:
    """The place and values of each question; items of DREAM and RACE, with several questions on one text, are split.

    ragged  is extended with the lines of a table with more or fewer fields than the first, which are left out; None:
            such lines are an error
    """
    if format in ("tsv", "csv"):
        header = _names_columns(list(next(rows(path, format, header=False, encoding=encoding))[1].values()))
        found: Iterable[tuple[int, Any]] = rows(path, format, header=header, encoding=encoding, ragged=ragged)
    elif format == "parquet":
        found = rows(path, format)
    elif format in ("json", "jsonl"):
        found = json_values(path, format, encoding)
    else:
        raise UnmaskError(f"{path} cannot have choices: they are read from {', '.join(FORMATS)}.")
    for number, value in found:
        place = f"{path}:{number}"
        if isinstance(value, list):
            yield from _dream(place, value)
        elif not isinstance(value, Mapping):
            raise UnmaskError(f"{place} must be an object, not {kind_of(value)}.")
        elif {"article", "questions", "options"} <= value.keys():
            yield from _race(place, value)
        else:
            yield place, flatten(value)


def _dream(place: str, item: list[Any]) -> Iterator[Entry]:
    if len(item) != 3 or not isinstance(item[0], list) or not isinstance(item[1], list):
        raise UnmaskError(f"{place} must be [turns, questions, id], as in DREAM, or an object.")
    for i, values in enumerate(item[1], 1):
        if not isinstance(values, Mapping):
            raise UnmaskError(f"{place}, question {i} must be an object, not {kind_of(values)}.")
        yield f"{place}, question {i}", {"id": f"{item[2]}-{i}", "dialogue": item[0], **values}


def _race(place: str, values: Mapping[str, Any]) -> Iterator[Entry]:
    singular = {"questions": "question", "options": "options", "answers": "answer"}
    names = [name for name in singular if values.get(name) is not None]
    wrong = next((name for name in names if not isinstance(values[name], list)), None)
    if wrong is not None:
        raise UnmaskError(f"{place}: '{wrong}' must be a list, not {kind_of(values[wrong])}.")
    if len({len(values[name]) for name in names}) > 1:
        counts = ", ".join(f"{len(values[name])} {name}" for name in names)
        raise UnmaskError(f"{place} is ragged: {counts}; there must be one of each for every question.")
    for i, parts in enumerate(zip(*(values[name] for name in names), strict=True), 1):
        whole = {"id": f"{values['id']}-{i}"} if "id" in values else {}
        singles = dict(zip((singular[name] for name in names), parts, strict=True))
        yield f"{place}, question {i}", {**whole, "article": values["article"], **singles}


# ------------------------------------------------------------------------------------------------ columns


@dataclass(frozen=True)
class Layout:
    """The roles of columns. choices: one column of lists, several columns, or none if they are in the question."""

    text: str
    pair: str | None
    choices: tuple[str, ...]
    marks: str | None
    label: str | None
    id: str | None
    first: int | None = None  # 0 if the names of the columns count from 0, because labels then do too

    @property
    def columns(self) -> dict[str, str]:
        """Role -> column, as in `Dataset.columns`."""
        choices = self.choices or (self.text,)
        ends = dict.fromkeys((choices[0], choices[-1]))
        roles = {"text": self.text, "pair": self.pair, "choices": " … ".join(ends), "label": self.label}
        return {role: name for role, name in roles.items() if name is not None}


def layout_of(path: Path, entries: Sequence[Entry], labelled: bool) -> Layout:
    """The layout of a file, without a label unless `labelled`. Raises UnmaskError if the columns are not known."""
    names = list(dict.fromkeys(name for _, values in entries for name in values))
    unnamed = names == [str(i + 1) for i in range(len(names))]
    layout = _by_place(names, entries[0][1]) if unnamed else _by_name(names, entries)
    if layout is None:
        raise UnmaskError(f"{path} has no columns of choices with usual names; it has: {', '.join(names[:30])}.")
    if labelled and layout.label is None:
        raise UnmaskError(f"{path} has no column of labels; rows without labels can only be predicted.")
    return layout if labelled else replace(layout, label=None)


def _by_place(names: Sequence[str], values: Mapping[str, Any]) -> Layout | None:
    """The layout of a table without a header, as in some copies of ARC: question, choices, key."""
    if len(names) < 4 or MARK.fullmatch(values[names[-1]].strip()) is None:
        return None
    return Layout(names[0], None, tuple(names[1:-1]), None, names[-1], None)


def _by_name(names: Sequence[str], entries: Sequence[Entry]) -> Layout | None:
    text, question = column_of(names, TEXTS), column_of(names, QUESTIONS)
    lists = [name for name in LISTS if (column := column_of(names, [name])) and _is_list(column, entries)]
    choices = (column_of(names, lists) or "",) if lists else _numbered(names)
    label = column_of([name for name in names if name not in choices], LABELS)
    if (text or question) is None or not (choices or (text is None and _any_inline(question, entries))):
        return None
    first = 0 if len(choices) > 1 and choices[0].endswith("0") else None
    pair = question if text is not None else None
    return Layout(text or question or "", pair, choices, column_of(names, MARKS), label, column_of(names, IDS), first)


def _names_columns(fields: Sequence[str]) -> bool:
    """Whether the first line of a table is its header."""
    names = [name.strip() for name in fields]
    question = column_of(names, QUESTIONS)
    named = _numbered(names) or column_of(names, LABELS)
    return bool(named and (question or column_of(names, TEXTS)))


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """The columns ending0, ending1, …, or choice1, …, or A, B, …: the longest series that begins with 0, 1 or A."""
    groups: dict[str, dict[str, str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name.lower())
        if match is not None and (match[1] or match[2].isalpha()):
            groups.setdefault(match[1], {})[match[2]] = name
    series = ([str(i) for i in range(100)], [str(i) for i in range(1, 100)], list(ascii_lowercase))
    found = [
        tuple(group[mark] for mark in marks[: len(group)])
        for group in groups.values()
        for marks in series
        if len(group) > 1 and set(marks[: len(group)]) == set(group)
    ]
    return max(found, key=len, default=())


def _is_list(column: str, entries: Sequence[Entry]) -> bool:
    return any(isinstance(values.get(column), (list, tuple)) for _, values in entries)


def inline(text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Question, choices and their marks from "question (A) … (B) …" or "question (1) … (2) …"."""
    for marks in (ascii_uppercase, [str(i) for i in range(1, MOST + 1)]):
        for start in re.finditer(rf"\({marks[0]}\)", text):
            second = text.find(f"({marks[1]})", start.end())
            if second < 0 or f"({marks[0]})" in text[start.end() : second]:  # a mark that the question mentions
                continue
            ends = [start.start(), second]
            while len(ends) < MOST and (place := text.find(f"({marks[len(ends)]})", ends[-1])) >= 0:
                ends.append(place)
            parts = [text[begin:end] for begin, end in zip(ends, [*ends[1:], len(text)], strict=True)]
            choices = tuple(part.partition(")")[2].strip() for part in parts)
            return text[: ends[0]].strip(), choices, tuple(marks[: len(ends)])
    return text, (), ()


def _any_inline(question: str | None, entries: Sequence[Entry]) -> bool:
    return question is not None and any(inline(str(values.get(question)))[1] for _, values in entries)

"""Multiple choice from files in the formats of SWAG, ARC, DREAM and RACE: rows with choices and the correct one.

Zellers et al., "SWAG: A Large-Scale Adversarial Dataset for Grounded Commonsense Inference", EMNLP 2018; Clark et al.,
"Think you have Solved Question Answering? Try ARC", 2018; Sun et al., "DREAM: A Challenge Data Set and Models for
Dialogue-Based Reading Comprehension", TACL 2019; Lai et al., "RACE: Large-scale ReAding Comprehension Dataset From
Examinations", EMNLP 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from unmask.data.files.tables import guess_format
from unmask.data.labelled.choice_tables import FORMATS, MARK, MOST, Layout, entries_of, inline, layout_of
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Choices, listed
from unmask.errors import UnmaskError, kind_of, plural, unknown


class DamagedRow(UnmaskError):
    """A row has invalid choices, or a label that is none of them; such rows may be left out."""


def read(
    path: Path | str,
    format: str | None = None,
    *,
    labelled: bool = True,
    first: int | None = None,
    skip: bool = False,
    encoding: str | None = None,
) -> Dataset:
    """Read the rows of a multiple-choice file.

    format    tsv, csv, jsonl, json or parquet; None: by the file's name and first lines
    labelled  False: rows without labels, for prediction; labels in the file are ignored
    first     the number, 0 or 1, of the first choice in labels; None: see below
    skip      whether to leave out damaged rows, also those with another number of fields, and count them in `notes`,
              instead of raising for the first
    encoding  as for `data.files.lines.lines`

    The columns determine the layout: SWAG (sent1, sent2, ending0, …); ARC as CSV ("… (A) … (B) …" with AnswerKey, or
    without header: question, choices, key) and as JSON lines (question.stem, question.choices, answerKey); DREAM
    ([turns, questions, id]); RACE (article, questions, options, answers); the form of these in the `datasets` library;
    and other rows with a text or context, an optional question, a list or numbered columns of choices, and a label. In
    numbered columns, empty fields after the last choice are ignored, so that rows may have different numbers of
    choices. Labelled rows whose fields are all empty, as in some copies of ARC, are always left out and counted.

    In a file, labels are texts of the correct choices, or their letters or numbers. Numbers count from 0, unless none
    is 0 and either there are letters too or one equals the number of choices: then they count from 1. `Row.label`
    counts from 0.

    Raises UnmaskError, which names the file, and the row and field if there is one, if something is missing, and
    DamagedRow for an empty choice, fewer than 2 or more than MOST choices, and a label that is missing or not a choice.
    With `skip` too, it is an error if more rows are damaged than valid.
    """
    path = Path(path)
    if not path.is_file():
        raise UnmaskError(f"There is no file {path}.")
    if format is not None and format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if first not in (None, 0, 1):
        raise UnmaskError(f"The number of the first choice in labels must be 0 or 1, not {first}.")
    ragged: list[int] = []
    format = format or guess_format(path, encoding=encoding)
    entries = list(entries_of(path, format, ragged if skip else None, encoding))
    if not entries:
        raise UnmaskError(f"{path} has no rows.")
    layout = layout_of(path, entries, labelled)
    damage = _Damage(skip)
    for number in ragged:
        damage.passes(f"{path}:{number}", ("more or fewer fields than the first line", ""))
    raws = [_raw(*entry, layout) for entry in entries]
    bare = [raw.place for raw in raws if labelled and len(layout.choices) > 1 and not raw.choices]
    without = set(bare)
    for place in bare:
        damage.left_out("no choice at all", place)
    sound = [raw for raw in raws if raw.place not in without and damage.passes(raw.place, _fault(raw))]
    scheme = _scheme(sound, layout.first if first is None else first) if labelled else None
    found = [row for raw in sound if (row := _row(raw, scheme, damage)) is not None]
    if len(found) < damage.count:
        remedy = "check its format."
        raise UnmaskError(f"{path} has more damaged rows than valid ones; {remedy} {' '.join(damage.notes())}")
    notes = (scheme.note,) if scheme is not None and scheme.note else ()
    return Dataset(path, tuple(found), layout.columns, (*notes, *damage.notes()))


@dataclass
class _Damage:
    """Damaged rows: the first is an error; with `skip`, their places are collected by the kind of damage."""

    skip: bool
    places: dict[str, list[str]] = field(default_factory=dict)

    def passes(self, place: str, fault: tuple[str, str] | None) -> bool:
        """Whether there is no fault. A fault is its kind in general, and its description for this row."""
        if fault is None:
            return True
        kind, detail = fault
        if not self.skip:
            raise DamagedRow(f"{place} has {detail}; correct the row, or leave out such rows (--skip yes).")
        self.left_out(kind, place)
        return False

    def left_out(self, kind: str, place: str) -> None:
        """Record a row that is left out, with or without `skip`."""
        self.places.setdefault(kind, []).append(place)

    @property
    def count(self) -> int:
        return sum(map(len, self.places.values()))

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"Rows left out with {kind}: {len(places):,} ({listed(places)})." for kind, places in self.places.items()
        )


# ------------------------------------------------------------------------------------------------ rows


@dataclass(frozen=True)
class _Raw:
    """A row before its label is interpreted. marks: the names of its choices in the file; empty if there are none."""

    place: str
    id: str
    text: str
    pair: str | None
    choices: tuple[str, ...]
    marks: tuple[str, ...]
    label: str | int | None


def _raw(place: str, values: Mapping[str, Any], layout: Layout) -> _Raw:
    text = _text(place, values, layout.text)
    asked = layout.pair is not None and values.get(layout.pair) is not None
    pair = _text(place, values, layout.pair or "").strip() or None if asked else None
    if not layout.choices:
        text, choices, marks = inline(text)
    elif len(layout.choices) == 1:
        choices, marks = _list(place, values, layout)
    else:
        choices, marks = _cells(place, values, layout.choices), ()
    label = _label(place, values, layout.label) if layout.label is not None else None
    id = "" if layout.id is None or values.get(layout.id) is None else str(values[layout.id])
    return _Raw(place, id, text, pair, choices, marks, label)


def _text(place: str, values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return "\n".join(value)  # the turns of a dialogue
    if not isinstance(value, str):
        raise UnmaskError(f"{place} has no '{name}'." if value is None else _not_text(place, name, value))
    return value


def _not_text(place: str, name: str, value: Any) -> str:
    return f"{place}: '{name}' must be text, not {'missing' if value is None else kind_of(value)}."


def _cells(place: str, values: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    cells = [values.get(name) for name in names]
    while cells and (cells[-1] is None or str(cells[-1]).strip() == ""):
        cells.pop()
    return tuple(_choice(place, name, "" if cell is None else cell) for name, cell in zip(names, cells, strict=False))


def _list(place: str, values: Mapping[str, Any], layout: Layout) -> tuple[tuple[str, ...], tuple[str, ...]]:
    (name,) = layout.choices
    parts = values.get(name)
    if not isinstance(parts, (list, tuple)):
        raise UnmaskError(f"{place} has no list '{name}'.")
    marks = values.get(layout.marks) if layout.marks is not None else None
    if marks is None and parts and all(isinstance(part, Mapping) and "label" in part for part in parts):
        marks = [part["label"] for part in parts]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if marks is not None and len(marks) != len(texts):
        found = f"{plural(len(texts), 'choice')}, but {plural(len(marks), 'label')} of them"
        raise UnmaskError(f"{place} is ragged: {found}.")
    choices = tuple(_choice(place, f"{name}[{i}]", text) for i, text in enumerate(texts))
    return choices, tuple(str(mark).strip() for mark in marks or ())


def _choice(place: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UnmaskError(_not_text(place, name, value))
    return value.strip()


def _fault(raw: _Raw) -> tuple[str, str] | None:
    """The fault of the choices of a row: its kind, and its description; None if they are valid."""
    count = len(raw.choices)
    if "" in raw.choices:
        return "an empty choice", f"an empty choice, number {raw.choices.index('') + 1} of {count}"
    if count < 2:
        return "fewer than 2 choices", f"{('no choices', 'one choice')[count]}, but at least 2 are needed"
    if count > MOST:
        return f"more than {MOST} choices", f"{count} choices, but at most {MOST} are allowed"
    return None


def _row(raw: _Raw, scheme: _Scheme | None, damage: _Damage) -> Choices | None:
    """The row with its label as a number from 0, or without a label if there is no scheme. None if the label is not a
    choice."""
    number = None if scheme is None else scheme.number(raw)
    if scheme is not None and number is None:
        detail = f"the label '{raw.label}', which is none of its {len(raw.choices)} choices"
        damage.passes(raw.place, ("no label",) * 2 if raw.label is None else ("a label that is not a choice", detail))
        return None
    label = "" if number is None else str(number)
    return Choices(raw.text, raw.pair, label, id=raw.id, place=raw.place, choices=raw.choices)


def _label(place: str, values: Mapping[str, Any], name: str) -> str | int | None:
    """The label as text or a whole number; None if there is none."""
    value = values.get(name)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (str, int))):
        raise UnmaskError(f"{place}: '{name}' must be text or a whole number, not {kind_of(value)}.")
    return value.strip() or None if isinstance(value, str) else value


# ------------------------------------------------------------------------------------------------ labels


@dataclass(frozen=True)
class _Scheme:
    """The form of the labels of a file: texts of choices, or letters, or numbers that begin with `first`."""

    texts: bool
    first: int
    note: str = ""

    def number(self, raw: _Raw) -> int | None:
        """The number, from 0, of the correct choice; None if the label is not a choice."""
        if raw.marks:
            marks = [mark.casefold() for mark in raw.marks]
            label = str(raw.label).casefold()
            return marks.index(label) if label in marks else None
        if self.texts and isinstance(raw.label, str):
            return _same(raw.label, raw.choices)
        number = _counted(raw.label)
        if number is None:  # no label, or neither a letter nor a number
            return None
        place = number - (0 if _is_letter(raw.label) else self.first)
        return place if 0 <= place < len(raw.choices) else None


def _scheme(raws: Sequence[_Raw], first: int | None) -> _Scheme:
    """The form of label that fits most rows; see `read`."""
    rows = [raw for raw in raws if raw.label is not None and not raw.marks]
    named = [raw for raw in rows if isinstance(raw.label, str)]
    texts = sum(_same(str(raw.label), raw.choices) is not None for raw in named)
    if named and texts >= sum(MARK.fullmatch(str(raw.label)) is not None for raw in named):
        return _Scheme(texts=True, first=first or 0)
    letters = any(_is_letter(raw.label) for raw in rows)
    numbers = [(n, raw) for raw in rows if not _is_letter(raw.label) and (n := _counted(raw.label)) is not None]
    if first is not None or not numbers:
        return _Scheme(texts=False, first=first or 0)
    if any(n == 0 for n, _ in numbers):
        return _Scheme(texts=False, first=0)
    if letters or any(n == len(raw.choices) for n, raw in numbers):
        return _Scheme(texts=False, first=1, note="The numbers of its labels count from 1.")
    return _Scheme(texts=False, first=0, note="The numbers of its labels are read as counting from 0, but none is 0.")


def _same(label: str, choices: Sequence[str]) -> int | None:
    """The index of the first choice with this text, ignoring whitespace; None if there is none."""
    words = label.split()
    return next((i for i, choice in enumerate(choices) if choice.split() == words), None)


def _is_letter(label: str | int | None) -> bool:
    match = MARK.fullmatch(label) if isinstance(label, str) else None
    return match is not None and match[1].isalpha()


def _counted(label: str | int | None) -> int | None:
    """The number of a label: its value, or the index of its letter (a is 0); None for any other label."""
    if not isinstance(label, str):
        return label
    match = MARK.fullmatch(label)
    if match is None:
        return None
    return ascii_uppercase.index(match[1].upper()) if match[1].isalpha() else int(match[1])

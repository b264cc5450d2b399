"""Forms: the inputs that a task answers, as rows: texts, pairs, words, objects with named fields, lines of text.

`Form` is for texts and pairs. A task with other rows extends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from unmask.data.labelled.columns import PAIRS, TEXTS
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, kind_of

Input = str | Sequence[str] | Mapping[str, Any]
"""A text, a pair of texts, a list of words, or an object by names."""

Object = Mapping[str, Any]

SHOWN = 8  # names of an object in a message


class Form:
    """A text, a pair of texts, or {"text", "pair"}, also by the usual names of public data sets.

    wanted   description of all valid inputs, for messages
    known    field names of an object that are read; a line of JSON must have one of them
    shown    field names of an object that are shown for it: the first one that it has
    object   description of a valid object, for messages about inputs of another type
    lacking  description of a valid input, for messages about an object without a needed field
    example  an input on the command line, as a shell reads it
    several  the arguments of the command line for a file or folder of inputs
    asks     whether inputs are questions about a context, which have an id each in data sets
    """

    wanted = (
        f"an object with text, maybe pair, or in their place one of {', '.join(n for n in TEXTS if n != 'text')}, "
        f"or two of {', '.join(' and '.join(names) for names in PAIRS)}"
    )
    known = frozenset({"text", *TEXTS, *(name for pair in PAIRS for name in pair)})
    shown = ("question", "text", "context")
    object = "an object with text"
    lacking = "a string, a pair of strings, or an object with text"
    example, several = '"A text."', "--file texts.txt"
    asks = False

    def by_name(self, parts: Sequence[str], whole: bool, number: int) -> Object:
        """The object for a text (`whole`) or a list of strings."""
        if len(parts) > 2:
            raise UnmaskError(f"Text {number} has {len(parts)} parts; a pair has two.")
        return dict(zip(("text", "pair"), parts, strict=False))

    def row(self, values: Object, place: str) -> Row:
        """The row for an object. Raises UnmaskError, which begins with `place`, for an invalid one."""
        known: tuple[tuple[str, ...], ...] = (("text", "pair"), *PAIRS, *((name,) for name in TEXTS))
        names = next((names for names in known if set(names) <= values.keys()), ("text",))
        texts = [self.text(values, name, place, empty=len(names) > 1) for name in names]
        if not any(text.strip() for text in texts):
            raise UnmaskError(f"{place} is empty.")
        return Row(texts[0], texts[1] if len(texts) == 2 else None)

    def line(self, line: str, number: int, *, single: bool = False) -> Input:
        """A line that is not an object: the two texts of a pair with a tab between them, or a text.

        single  whether the model has learned from single texts, so that a tab does not divide a pair
        """
        begin, tab, rest = line.partition("\t")
        if tab and single:
            raise UnmaskError(
                f"Text {number} has a tab, as pairs have, and this model was fine-tuned on single texts: cut the other "
                "columns out, write a space for the tab, or score labelled rows with `unmask evaluate`."
            )
        if "\t" in rest:
            raise UnmaskError(
                f"Text {number} has {line.count(tab) + 1} columns, and a pair has two: cut out the other columns and "
                "the line with their names, or score labelled rows with `unmask evaluate`."
            )
        return (begin, rest) if tab else line

    def text(self, values: Object, name: str, place: str, *, empty: bool = False) -> str:
        """`values[name]`, which must be a text, and not empty unless `empty` allows it."""
        if name not in values:
            known = ", ".join(map(str, islice(values, SHOWN))) or "nothing"
            raise UnmaskError(f"{place} has no '{name}', but {known}; it must be {self.lacking}.")
        text = values[name]
        if not isinstance(text, str):
            raise UnmaskError(f"{place}: '{name}' must be a string, not {kind_of(text)}.")
        if not text.strip() and not empty:
            raise UnmaskError(f"{place} is empty." if name == "text" else f"{place} has an empty {name}.")
        return text

    def item(self, row: Row) -> Input | None:
        """The input that a request sends for a row; None for a row that no request can send. Inverse of `as_row`."""
        text = row.text or " ".join(row.words)
        return text if row.pair is None else [text, row.pair]

    def with_defaults(self, values: Object) -> Form:
        """The form with these values of fields for items that do not have them. Raises UnmaskError for a form without
        such fields."""
        raise UnmaskError(f"--{next(iter(values))} is for models that read signals: leave it out.")

    def completed(self, row: Row) -> Row:
        """A row from a file, with the values of `with_defaults`."""
        return row

    # -- from outside

    def as_row(self, item: Input, number: int) -> Row:
        """An input as a row. An object may have an "id", which the answer repeats.

        Raises UnmaskError, which counts the inputs by `number`, for an input of another form, and for an empty text.
        """
        named = item if isinstance(item, Mapping) else self._named(item, number)
        values = {name: value for name, value in named.items() if value is not None}
        place = f"Text {number}"
        return replace(self.row(values, place), id=str(values.get("id", "")), place=place)

    def from_line(self, line: str, number: int, *, single: bool = False) -> Input:
        """A line of text as an input: a JSON object, or the result of `line`.

        Raises UnmaskError, which counts the lines by `number`, for a line of another form.
        """
        found = object_of(line)
        if found is None:
            return self.line(line, number, single=single)
        if self.known & found.keys():
            return found
        raise UnmaskError(f"Text {number} is a JSON object without a known key; it must be {self.wanted}.")

    def shown_of(self, item: Input, line: str) -> str:
        """The text to show for an input and its line: for an object, the question or the first text; else the line."""
        if not isinstance(item, Mapping):
            return line
        return next((str(item[name]) for name in self.shown if item.get(name)), line)

    def _named(self, item: str | Sequence[str], number: int) -> Object:
        parts: list[Any] = list(item) if isinstance(item, (list, tuple)) else [item]
        if not parts or not are_texts(parts):
            raise UnmaskError(f"Text {number} must be a string, a pair of strings, or {self.object}.")
        if not any(part.strip() for part in parts):
            raise UnmaskError(f"Text {number} is empty.")
        return self.by_name(parts, isinstance(item, str), number)


class ItemForm(Form):
    """An object with one field, such as {"pixels": [[0, 16], [8, 4]]}, for a task whose items are not texts.

    name  of the field
    read  (value, place) -> its row; raises TypeError or ValueError for a value of another form
    """

    def __init__(self, name: str, read: Callable[[Any, str], Row]) -> None:
        self.name, self.read = name, read
        self.known = frozenset({name})
        self.wanted = self.object = self.lacking = f'an object such as {{"{name}": [...]}}'

    def by_name(self, parts: Sequence[str], whole: bool, number: int) -> Object:
        raise UnmaskError(f"Text {number} is a text, and this model reads no text; it must be {self.object}.")

    def item(self, row: Row) -> Input | None:
        return None

    def row(self, values: Object, place: str) -> Row:
        if self.name not in values:
            raise UnmaskError(f"{place} has no '{self.name}'; it must be {self.lacking}.")
        try:
            return self.read(values[self.name], place)
        except (TypeError, ValueError) as error:
            raise UnmaskError(f"{place}: '{self.name}' cannot be read: {error}.") from None


def are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value)


def object_of(line: str) -> dict[str, Any] | None:
    """A line parsed as a JSON object; None if it is not one."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

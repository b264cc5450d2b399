"""Cells: values of the rows of tables, and of the names of files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.data.files.tables import column_of
from unmask.errors import UnmaskError

BEGINS, ENDS = ("begin", "start", "onset"), ("end", "stop", "offset")
"""Usual names of columns."""
SAID = {"label": "labels", "text": "transcripts", "group": "groups"}
"""Role of a column -> what it holds, in messages."""


class Pattern:
    """A regular expression with one group in brackets, which finds a value in the name of a file.

    Raises UnmaskError about `option` for one that is not valid.
    """

    def __init__(self, expression: str, option: str) -> None:
        self.option = option
        try:
            self.compiled = re.compile(expression)
        except re.error as error:
            raise UnmaskError(f"{option} {expression} is not a regular expression: {error}.") from None
        if self.compiled.groups != 1:
            raise UnmaskError(f"{option} {expression} must have one group in brackets, such as '_([a-z]+)_'.")

    def __call__(self, name: str, place: str) -> str:
        """Raises UnmaskError, which begins with `place`, for a name in which nothing is found."""
        found = self.compiled.search(name)
        if found is None or not found[1]:
            raise UnmaskError(f"{place}: {self.option} {self.compiled.pattern} finds nothing in the name {name}.")
        return found[1]


def is_pattern(name: str | None) -> bool:
    """Whether the name of a column is an expression for the names of files instead."""
    return name is not None and "(" in name


def column_in(
    names: Sequence[str], asked: str | None, usual: Sequence[str], what: str, path: Path, *, option: str
) -> str:
    """The column of this name, ignoring case, else the first with a usual one. Raises UnmaskError if there is none.

    option  names the column at the command line
    """
    found = column_of(names, (asked,) if asked else usual)
    if found is None and asked:
        raise UnmaskError(f"{path} has no column '{asked}'; it has {', '.join(names)}.")
    if found is None:
        raise UnmaskError(
            f"{path} has no column of {what} with a usual name ({', '.join(usual)}): name the column by {option}."
        )
    return found


def value_in(cells: Mapping[str, Any], column: str, place: str) -> str:
    """The value of a row. Raises UnmaskError if it is empty."""
    value = cells.get(column)
    if value is None or not str(value).strip():
        raise UnmaskError(f"{place}: the column '{column}' is empty; every row needs a value.")
    return str(value).strip()


def span_in(cells: Mapping[str, Any], place: str) -> tuple[float, float | None]:
    """The begin and end of a row in seconds; (0, None) without such columns, or where they are empty. Raises
    UnmaskError for values that are no seconds in ascending order."""
    begin, end = (next((cells[name] for name in usual if name in cells), None) for usual in (BEGINS, ENDS))
    found = _seconds(begin, place) or 0.0, _seconds(end, place)
    if found[1] is not None and found[1] <= found[0]:
        raise UnmaskError(f"{place}: a part that begins at {found[0]:g} s cannot end at {found[1]:g} s.")
    return found


def _seconds(value: Any, place: str) -> float | None:
    if value is None or str(value).strip() == "":
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise UnmaskError(f"{place}: the begin and end of a part must be seconds, not {value!r}.")
    return found

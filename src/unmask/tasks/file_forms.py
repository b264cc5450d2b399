"""Forms of items that are files: pictures and recordings, and two of them that are compared."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.tasks.forms import Form, Input, Object

SMALL = 64_000  # bytes of a file that an example may have
OTHER = "other"
"""The field of the second item of a pair."""


class FileForm(Form):
    """A file: on the command line its name, in a request {"picture": its bytes in Base64}. With `pair` also two files
    that are compared: on a line with a tab between their names, in a request {"picture", "other"}.

    name    of an item, and of its field: "picture", "recording"
    made    (place=, source=) -> the row of an item
    pair    (place=, source=, other=) -> the row of two items; None: one item is read
    ending  the usual ending of a file, for examples
    """

    def __init__(
        self, name: str, made: Callable[..., Row], pair: Callable[..., Row] | None = None, *, ending: str = ""
    ) -> None:
        self.name, self.made, self.pair = name, made, pair
        self.example, self.several = f"{name}{ending}", f"--data {name}s"
        self.known = frozenset({name} if pair is None else {name, OTHER})
        self.wanted = self.object = self.lacking = f'an object such as {{"{name}": "<the bytes of a file in Base64>"}}'

    def by_name(self, parts: Sequence[str], whole: bool, number: int) -> Object:
        raise UnmaskError(f"Text {number} is a text, and this model reads {self.name}s; it must be {self.wanted}.")

    def line(self, line: str, number: int, *, single: bool = False) -> Input:
        """The item in the file that a line names, or the two items in two files."""
        first, tab, second = line.partition("\t") if self.pair else (line, "", "")
        return {self.name: self._read(first)} | ({OTHER: self._read(second)} if tab else {})

    def row(self, values: Object, place: str) -> Row:
        source = self._source(values.get(self.name), place)
        if self.pair is None or OTHER not in values:
            return self.made(place=place, source=source)
        return self.pair(place=place, source=source, other=self._source(values[OTHER], place))

    def item(self, row: Any) -> Input | None:
        """The bytes of the file of a row; None for a part of a file, a large one, and one that is kept elsewhere."""
        if getattr(row, OTHER, None) is not None:
            return None  # two items
        alone = self.made(place=row.place, source=row.source)
        source = Path(row.source) if isinstance(row.source, str) else row.source
        if isinstance(source, Path) and source.is_file() and source.stat().st_size <= SMALL:
            source = source.read_bytes()
        if not isinstance(source, bytes) or len(source) > SMALL or alone.key != row.key:
            return None
        return {self.name: base64.b64encode(source).decode("ascii")}

    def _read(self, name: str) -> Path:
        path = Path(name.strip())
        if not path.is_file():
            raise UnmaskError(f"There is no {self.name} {path}; give the name of a file.")
        return path

    def _source(self, given: object, place: str) -> Path | bytes:
        if isinstance(given, Path):  # of a line; no request holds one
            return given
        if isinstance(given, str):
            try:
                given = base64.b64decode(given.partition("base64,")[2] or given, validate=True)
            except (binascii.Error, ValueError):
                raise UnmaskError(f"{place}: the {self.name} is not Base64.") from None
        if not isinstance(given, bytes) or not given:
            raise UnmaskError(f"{place} has no {self.name}; it must be {self.wanted}.")
        return given

"""Sources: the rows of a file in blocks of fixed size, a damaged row beside the others."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from unmask.data.files import encodings
from unmask.data.files.lines import lines
from unmask.data.files.tables import format_by_name, parquet_file
from unmask.errors import UnmaskError, kind_of

BLOCK = 1_024  # rows that are read, answered and written together

Value = str | Mapping[str, Any]
"""A row of a file: a line of text, or an object by the names of the columns."""


@dataclass(frozen=True)
class Block:
    """Successive rows of a file.

    first    the number of the first row, from 1
    values   one value for each row
    kept     [n] columns that a Parquet file of answers keeps: a `pyarrow.Table`, or lists by name
    name     the name of a value that is a text
    damaged  index in the block -> the error, for rows that cannot be read; their values are what could be
    """

    first: int
    values: Sequence[Value]
    kept: Any
    name: str = "text"
    damaged: Mapping[int, UnmaskError] = field(default_factory=dict)


class Source(Protocol):
    """The rows of a file.

    path   the file
    names  its columns, if all rows have the same
    """

    path: Path
    names: Collection[str]

    @property
    def rows(self) -> int:
        """The number of rows."""

    def blocks(self, begin: int, end: int | None) -> Iterator[Block]:
        """The blocks from number `begin` to before `end`, or to the last; one without rows if there are none."""


class Lines:
    """A file with one text, or one JSON object, a line; compressed or not.

    Every line is a row, also a blank one. In a file of JSON lines, by its name, a line that is neither blank nor an
    object is a damaged row; so is a line with bytes that are not valid in the encoding, in any file.
    """

    names: Collection[str] = ()

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path, self._encoding = path, encoding
        self._json = format_by_name(path) == "jsonl"

    @cached_property
    def rows(self) -> int:
        return sum(1 for _ in self._lines())

    def blocks(self, begin: int, end: int | None) -> Iterator[Block]:
        source = islice(self._lines(), begin * BLOCK, None if end is None else end * BLOCK)
        first = begin * BLOCK + 1
        while (read := list(islice(source, BLOCK))) or first == begin * BLOCK + 1:
            yield self._block(first, read)
            first += BLOCK

    def _lines(self) -> Iterator[str]:
        for _, line in lines(self.path, encoding=self._encoding, newline="\n", escaped=True):
            yield line.rstrip("\r\n")

    def _block(self, first: int, read: list[str]) -> Block:
        values, damaged = list[Value](), dict[int, UnmaskError]()
        for i, line in enumerate(read):
            place = f"{self.path}:{first + i}"
            try:
                if not encodings.is_sound(line):
                    raise encodings.undecodable(place, line, self._encoding)
                values.append(_object(line, place) if self._json and line.strip() else line)
            except UnmaskError as error:
                read[i] = _shown(line)
                values.append(read[i])
                damaged[i] = error
        name = "line" if self._json else "text"
        return Block(first, values, {name: read}, name, damaged)


class ParquetRows:
    """A Parquet file. A block is read from the row groups that it lies in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with parquet_file(path) as file:
            self.names: Collection[str] = file.schema_arrow.names
            self._sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        self.rows = sum(self._sizes)

    def blocks(self, begin: int, end: int | None) -> Iterator[Block]:
        import pyarrow

        row, last = begin * BLOCK, self.rows if end is None else min(end * BLOCK, self.rows)
        groups, skipped = self._groups(row, last)
        with parquet_file(self.path) as file:
            held = [file.schema_arrow.empty_table()]
            for batch in file.iter_batches(batch_size=BLOCK, row_groups=groups):
                held.append(pyarrow.Table.from_batches([batch.slice(skipped)]))
                skipped = max(skipped - len(batch), 0)
                while sum(map(len, held)) >= BLOCK and row < last:
                    read = pyarrow.concat_tables(held)
                    yield _of_table(row, read.slice(0, min(BLOCK, last - row)))
                    held, row = [read.slice(BLOCK)], row + BLOCK
                if row >= last:
                    return
            if row < last or row == begin * BLOCK:
                yield _of_table(row, pyarrow.concat_tables(held).slice(0, max(last - row, 0)))

    def _groups(self, begin: int, end: int) -> tuple[list[int], int]:
        """The row groups that hold the rows from `begin` to before `end`, and the rows of the first one before
        `begin`."""
        found, skipped, row = list[int](), 0, 0
        for i, size in enumerate(self._sizes):
            if max(row, begin) < min(row + size, end):
                skipped = skipped if found else begin - row
                found.append(i)
            row += size
        return found, skipped


def source_of(path: Path | str, encoding: str | None = None) -> Source:
    """The rows of a file, by its name: Parquet, else lines. For `encoding` see `data.files.lines.lines`."""
    path = Path(path)
    if not path.is_file():
        raise UnmaskError(f"There is no file {path}.")
    return ParquetRows(path) if format_by_name(path) == "parquet" else Lines(path, encoding)


def _of_table(row: int, table: Any) -> Block:
    return Block(row + 1, table.to_pylist(), table)


def _object(line: str, place: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnmaskError(f"{place} is not valid JSON, one object a line: {error}.") from None
    if not isinstance(value, dict):
        raise UnmaskError(f"{place} must be a JSON object, not {kind_of(value)}.")
    return value


def _shown(line: str) -> str:
    """A line with replacement characters for bytes that are not valid in its encoding."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

"""One text a row: JSON lines, CSV, TSV, Parquet and Hugging Face hub data sets."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unmask.data.streams import LONGEST_LINE, FileFacts, NotText, lines
from unmask.errors import UnmaskError, unknown

LONGEST_JSON = 1 << 28  # characters of a JSON array, which can only be read whole

Rows = Iterator[tuple[int, str]]


def json_rows(path: Path, column: str, facts: FileFacts, doubt: bool) -> Rows:
    """Line number and text of each object of a JSON lines file, or row number and text of a JSON array."""
    stream = lines(path, facts, doubt=doubt)
    for number, line in stream:
        if not line.strip():
            continue
        if line.lstrip()[0] == "[":
            yield from _json_array(path, column, line, stream)
            return
        yield from _field(_json(path, line, number), column, path, number)


def _json_array(path: Path, column: str, start: str, stream: Rows) -> Rows:
    held, size = [start], len(start)
    for _, line in stream:
        held.append(line)
        size += len(line)
        if size > LONGEST_JSON:
            raise UnmaskError(f"{path} is too large a JSON array; write it as JSON lines, one object a line.")
    for number, row in enumerate(_json(path, "".join(held), 1), 1):
        yield from _field(row, column, path, number)


def _json(path: Path, text: str, number: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnmaskError(f"{path}, line {number} is not JSON, one object a line: {error}.") from None


def csv_rows(path: Path, column: str, facts: FileFacts, doubt: bool) -> Rows:
    """Line number and text of each row of a comma-separated file whose first line names the columns."""
    return _separated(path, column, facts, doubt, delimiter=",", quoting=csv.QUOTE_MINIMAL)


def tsv_rows(path: Path, column: str, facts: FileFacts, doubt: bool) -> Rows:
    """The same for tab-separated files, in which quotation marks are ordinary characters."""
    return _separated(path, column, facts, doubt, delimiter="\t", quoting=csv.QUOTE_NONE)


def _separated(path: Path, column: str, facts: FileFacts, doubt: bool, **dialect: Any) -> Rows:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    reader = csv.reader((line for _, line in lines(path, facts, doubt=doubt)), **dialect)
    try:
        header = [name.strip() for name in next(reader, [])]
        if column not in header:
            raise unknown(f"column of {path}", column, header)
        place = header.index(column)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise UnmaskError(
                    f"{path}, line {reader.line_num} has {len(row)} fields where the first line names {len(header)}; "
                    "quote fields that hold the separator."
                )
            yield reader.line_num, row[place]
    except csv.Error as error:
        raise UnmaskError(f"{path}, line {reader.line_num} cannot be read: {error}.") from None


def parquet_rows(path: Path, column: str, facts: FileFacts, doubt: bool) -> Rows:
    """Row number and text of each row of a Parquet file, read in batches."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise UnmaskError(f"Reading {path} needs pyarrow: run pip install 'unmask[data]'.") from None
    if path.stat().st_size == 0:
        raise NotText(path, "it is empty")
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if column not in names:
                raise unknown(f"column of {path}", column, names)
            number = 0
            for batch in file.iter_batches(batch_size=1024, columns=[column]):
                for value in batch.column(0).to_pylist():
                    number += 1
                    yield from _field({column: value}, column, path, number)
    except (arrow.ArrowException, OSError) as error:
        raise UnmaskError(f"{path} is damaged or not Parquet: {_first_line(error)}.") from None


def hub_rows(name: str, column: str) -> Rows:
    """Row number and text of each row of `hub:owner/name[/configuration][:split]`, streamed; the split is train
    where none is named. Raises UnmaskError without the `datasets` library or a network."""
    where, _, split = name.removeprefix("hub:").partition(":")
    owner, _, rest = where.partition("/")
    dataset, _, configuration = rest.partition("/")
    if not owner or not dataset:
        raise UnmaskError(f"'{name}' is not a hub data set: write hub:owner/name or hub:owner/name:split.")
    try:
        import datasets
    except ImportError:
        raise UnmaskError(f"Reading {name} needs datasets: run pip install 'unmask[data]'.") from None
    try:
        rows = datasets.load_dataset(
            f"{owner}/{dataset}", configuration or None, split=split or "train", streaming=True
        )
        for number, row in enumerate(rows, 1):
            yield from _field(row, column, name, number)
    except UnmaskError:
        raise
    except Exception as error:  # the library and its transports raise many kinds
        raise UnmaskError(f"{name} cannot be read from the hub: {_first_line(error)}.") from None


def _field(row: Any, column: str, where: Path | str, number: int) -> Rows:
    """The text of one row; nothing where it is null."""
    if not isinstance(row, Mapping):
        raise UnmaskError(f"{where}, row {number} is a {type(row).__name__}; it must be an object with '{column}'.")
    if column not in row:
        raise unknown(f"column in row {number} of {where}", column, map(str, row))
    value = row[column]
    if value is None:
        return
    if not isinstance(value, str):
        raise UnmaskError(f"{where}, row {number}: '{column}' is a {type(value).__name__}; it must be text.")
    yield number, value


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


READERS: dict[str, Callable[[Path, str, FileFacts, bool], Rows]] = {
    ".jsonl": json_rows,
    ".ndjson": json_rows,
    ".json": json_rows,
    ".csv": csv_rows,
    ".tsv": tsv_rows,
    ".parquet": parquet_rows,
}

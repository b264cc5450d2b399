"""Tables on disk: TSV, CSV, JSON lines, JSON and Parquet, compressed or not, as rows with named columns."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

FORMATS = ("tsv", "csv", "jsonl", "json", "parquet", "conll")
_SUFFIXES = {
    **{f".{name}": name for name in FORMATS},
    ".tab": "tsv",
    ".ndjson": "jsonl",
    ".pq": "parquet",
    **dict.fromkeys((".conllu", ".iob", ".iob2", ".bio"), "conll"),
}
_COMPRESSED = (".gz", ".zst")
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True)
class Table:
    """Column names, and each row with the number that finds it in its file: a line, or in Parquet a row, from 1."""

    columns: tuple[str, ...]
    rows: list[tuple[int, Mapping[str, Any]]]


def guess_format(path: Path) -> str:
    """The format that a file's name says (`.gz` and `.zst` aside), else the one that its first lines look like."""
    bare = path
    while bare.suffix.lower() in _COMPRESSED:
        bare = bare.with_suffix("")
    known = _SUFFIXES.get(bare.suffix.lower())
    if known is not None:
        return known
    head = lines(read_text(path)[:20_000])[:200]
    first = next(line for line in head if line.strip())
    if first.startswith("-DOCSTART-") or any(not line.strip() for line in head):
        return "conll"
    if first.lstrip().startswith("{"):
        return "jsonl"
    if "\t" in first or "," in first:
        return "tsv" if "\t" in first else "csv"
    raise UnmaskError(f"The format of {path} is not clear from its name; say --format {', '.join(FORMATS)}.")


def read_text(path: Path) -> str:
    """A file's text: decompressed; UTF-8, or UTF-16 with a byte order mark; newlines as they stand.

    Raises UnmaskError for a missing, empty or damaged file, and for bytes that are not text.
    """
    try:
        data = path.read_bytes()
        if path.suffix.lower() == ".gz":
            data = gzip.decompress(data)
        elif path.suffix.lower() == ".zst":
            data = _zstandard(data)
    except FileNotFoundError:
        raise UnmaskError(f"There is no file {path}.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UnmaskError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnmaskError(f"{path}:{line} is not UTF-8 text; save the file as UTF-8.") from None
    if not text.strip():
        raise UnmaskError(f"{path} is empty.")
    return text


def lines(text: str) -> list[str]:
    """Lines without their ends (LF or CRLF); other separators that Unicode knows stay within a line."""
    found = text.replace("\r\n", "\n").split("\n")
    return found[:-1] if not found[-1] else found


def read_table(path: Path, format: str, *, header: bool = True) -> Table:
    """The rows of a file with named columns.

    header  the first line of a TSV or CSV names the columns; else they are called 1, 2, …

    TSV is read without quoting, as GLUE and most NLP data sets write it: a `"` is a character like any other.
    Nested JSON objects become dotted columns (`labels.binary`). Raises UnmaskError that names file and row for a
    row with another number of fields, or one that is not valid.
    """
    if format == "parquet":
        return _parquet(path)
    text = read_text(path)
    if format in ("jsonl", "json"):
        return _records(path, _json_lines(path, text) if format == "jsonl" else _json_list(path, text))
    return _delimited(path, _tsv(text) if format == "tsv" else _csv(path, text), header)


def _tsv(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines(text), 1):
        if line.strip():
            yield number, line.split("\t")


def _csv(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    first = text.split("\n", 1)[0]
    delimiter = ";" if "," not in first and ";" in first else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    begin = 1
    try:
        for values in reader:
            if values:
                yield begin, values
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UnmaskError(f"{path}:{begin} is not valid CSV: {error}.") from None


def _delimited(path: Path, rows: Iterator[tuple[int, list[str]]], header: bool) -> Table:
    first = next(rows)
    names = first[1] if header else [str(i) for i in range(1, len(first[1]) + 1)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UnmaskError(f"{path} has two columns called '{twice}'; rename one.")
    found: list[tuple[int, Mapping[str, Any]]] = [] if header else [(first[0], dict(zip(names, first[1], strict=True)))]
    for number, values in rows:
        if len(values) != len(names):
            raise UnmaskError(f"{path}:{number} has {len(values)} fields, but the first line has {len(names)}.")
        found.append((number, dict(zip(names, values, strict=True))))
    if not found:
        raise UnmaskError(f"{path} has column names but no rows.")
    return Table(tuple(names), found)


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines(text), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UnmaskError(f"{path}:{number} is not valid JSON: {error}.") from None


def _json_list(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnmaskError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(values, list):
        raise UnmaskError(f"{path} must hold a JSON list of objects; for one object a line, use .jsonl.")
    yield from enumerate(values, 1)


def _parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise UnmaskError("Reading Parquet needs pyarrow; run: pip install 'unmask[data]'.") from None
    try:
        rows = parquet.read_table(path).to_pylist()
    except FileNotFoundError:
        raise UnmaskError(f"There is no file {path}.") from None
    except (OSError, pa.ArrowException) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise UnmaskError(f"{path} cannot be read as Parquet: {reason}.") from None
    return _records(path, enumerate(rows, 1))


def _records(path: Path, values: Iterator[tuple[int, Any]] | enumerate[Any]) -> Table:
    rows: list[tuple[int, Mapping[str, Any]]] = []
    columns: dict[str, None] = {}
    for number, value in values:
        if not isinstance(value, dict):
            raise UnmaskError(f"{path}:{number} must be a JSON object, not a {type(value).__name__}.")
        flat = dict(_flat(value))
        columns.update(dict.fromkeys(flat))
        rows.append((number, flat))
    if not rows:
        raise UnmaskError(f"{path} has no rows.")
    return Table(tuple(columns), rows)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def _zstandard(data: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise UnmaskError("Reading .zst files needs zstandard; run: pip install 'unmask[data]'.") from None
    try:
        with zstandard.ZstdDecompressor().stream_reader(data) as reader:
            return reader.read()
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from None

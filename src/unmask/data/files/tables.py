"""Tables as rows with named columns: TSV, CSV, JSON lines, JSON and Parquet files, compressed or not, and the hub."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from unmask.config import flatten
from unmask.data.files.lines import LONGEST_LINE, FileFacts, NotText, bare, lines
from unmask.errors import UnmaskError, kind_of, needs, plural, unknown

MOST_COLUMNS = 10_000  # of a TSV or CSV; more are an error or an attack on memory
LONGEST_JSON = 1 << 28  # characters of a JSON array, which is read as a whole

HUB = "hub:"  # begins the name of a data set of the hub, and is its format
FORMATS = ("tsv", "csv", "jsonl", "json", "parquet", "conll")
_SUFFIXES = {
    **{f".{name}": name for name in FORMATS},
    ".tab": "tsv",
    ".ndjson": "jsonl",
    ".pq": "parquet",
    **dict.fromkeys((".conllu", ".iob", ".iob2", ".bio"), "conll"),
}

_QUOTED = re.compile(r'"[^"]*"')

Rows = Iterator[tuple[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class Table:
    """All rows of a file with their numbers, and the columns that occur in any of them."""

    columns: tuple[str, ...]
    rows: list[tuple[int, Mapping[str, Any]]]


def on_hub(path: Path | str) -> bool:
    """Whether this is the name of a data set of the Hugging Face hub, `hub:owner/name[/configuration][:split]`."""
    return str(path).startswith(HUB)


def format_by_name(path: Path) -> str | None:
    """The format for the suffix of a file's name, ignoring `.gz` and `.zst`, or HUB; None for an unknown suffix."""
    if on_hub(path):
        return HUB
    return _SUFFIXES.get(bare(path).suffix.lower())


def guess_format(path: Path, *, otherwise: str | None = None, encoding: str | None = None) -> str:
    """The format of a file by its name, else by its first lines, else `otherwise`. For `encoding` see `lines`.

    Raises UnmaskError for an empty file, and if the format is unknown and `otherwise` is None.
    """
    known = format_by_name(path)
    if known is not None:
        return known
    head = [line for _, line in islice(lines(path, encoding=encoding, newline="\n"), 200)]
    first = next((line for line in head if line.strip()), None)
    if first is None:
        raise NotText(path, "it is empty")
    filled = [line for line in head if line.strip()]
    if first.lstrip().startswith("{"):
        return "jsonl"
    if first.startswith("-DOCSTART-") or (len(filled) < len(head) and _are_tagged(head)):
        return "conll"
    if "\t" in first:
        return "tsv"
    if "," in first and _have_commas(filled):
        return "csv"
    if otherwise is not None:
        return otherwise
    raise UnmaskError(
        f"{path} has no recognisable columns: give a table with columns such as text and label, as TSV, CSV "
        f"or JSON lines, or name its format with --format {', '.join(FORMATS)}; for a published data set in its own "
        "form, give its folder, and its --benchmark."
    )


def _are_tagged(head: Sequence[str]) -> bool:
    """Whether lines look like CoNLL: some are adjacent, and most lines, apart from comments, have the same number of
    columns, at least two."""
    if not any(one.strip() and other.strip() for one, other in pairwise(head)):
        return False
    words = [line.strip() for line in head if line.strip() and not line.startswith("#")]
    widths = Counter(len(line.split("\t") if "\t" in line else line.split()) for line in words)
    return bool(widths) and max(widths, key=widths.__getitem__) > 1 and max(widths.values()) > len(words) / 2


def _have_commas(head: Sequence[str]) -> bool:
    """Whether most lines have as many commas as the first, ignoring those within quotes."""
    counts = [_QUOTED.sub("", line).count(",") for line in head]
    return counts.count(counts[0]) > len(counts) / 2


def read_table(
    path: Path, format: str, *, header: bool = True, encoding: str | None = None, ragged: list[int] | None = None
) -> Table:
    """Read all rows of a file; for the arguments and errors see `rows`. Raises UnmaskError for a file without rows."""
    found = list(rows(path, format, header=header, encoding=encoding, ragged=ragged))
    if not found:
        raise UnmaskError(f"{path} has no rows.")
    return Table(tuple(dict.fromkeys(name for _, values in found for name in values)), found)


def column_of(columns: Iterable[str], wanted: Iterable[str]) -> str | None:
    """The first of the wanted names that is a column, ignoring case, in the spelling of the file; None if none is."""
    by_lower = {name.lower(): name for name in reversed(list(columns))}
    return next((by_lower[name.lower()] for name in wanted if name.lower() in by_lower), None)


def rows(
    path: Path,
    format: str,
    *,
    column: str | None = None,
    header: bool = True,
    facts: FileFacts | None = None,
    encoding: str | None = None,
    ragged: list[int] | None = None,
) -> Rows:
    """The number and the values by column of each row, read in bounded memory (up to LONGEST_JSON characters for a JSON
    array).

    format    tsv, csv, jsonl, json, parquet, or HUB for `hub_rows`
    column    the only column to return, which every row must have; None: all columns
    header    whether the first line of a TSV or CSV has the names of the columns; else they are called 1, 2, …
    facts     as for `lines`; if given, unusual quoting in CSV is accepted, else it is an error
    encoding  as for `lines`; not for Parquet
    ragged    is extended with the numbers of the rows of a TSV or CSV that have more or fewer fields than the first
              line, and that are left out; None: such rows are an error

    The number of a row is the number of its first line; in Parquet and JSON arrays rows are counted from 1. TSV is read
    without quoting, as in GLUE and most NLP data sets: a `"` is an ordinary character. Nested objects become dotted
    columns (`labels.binary`). Raises UnmaskError, which names the file, and the row if there is one, for an unknown
    column, a row with a different number of fields, or a row that is not valid.
    """
    if format == HUB:
        return hub_rows(str(path), column)
    if format == "parquet":
        return _records(path, _parquet(path, column), column)
    if format in ("json", "jsonl"):
        longest = LONGEST_JSON if format == "json" else LONGEST_LINE
        return _records(path, _json(path, lines(path, facts, encoding=encoding, longest=longest)), column)
    if format == "tsv":
        return _delimited(path, _tsv(path, facts, encoding), _TSV_HINT, header, column, ragged)
    return _delimited(path, _csv(path, facts, encoding), _CSV_HINT, header, column, ragged)


def json_values(path: Path, format: str = "json", encoding: str | None = None) -> Iterator[tuple[int, Any]]:
    """The number and value of each item of a JSON array, of each line of JSON lines, or of the only value of a file.

    Unlike in `rows`, a value may have any type, and an object may span many lines (`json`, which is read as a whole).
    For `encoding` see `lines`. Raises UnmaskError, which names the file and the line, for JSON that is not valid.
    """
    if format == "json":
        text = _joined(path, "", lines(path, encoding=encoding, longest=LONGEST_JSON))
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            message = getattr(error, "msg", str(error))
            if message != "Extra data":  # more than one value: JSON lines under another name
                raise UnmaskError(f"{path}:{getattr(error, 'lineno', 1)} is not valid JSON: {message}.") from None
        else:
            yield from enumerate(value, 1) if isinstance(value, list) else [(1, value)]
            return
    yield from _json(path, lines(path, encoding=encoding))


def hub_rows(name: str, column: str | None = None) -> Rows:
    """The number and values of each row of `hub:owner/name[/configuration][:split]`, streamed; the default split is
    train. Pictures and recordings stay bytes, and numbers of classes become their names. Raises UnmaskError without the
    `datasets` library or a network, and for an unknown column."""
    where, _, split = name.removeprefix(HUB).partition(":")
    owner, _, rest = where.partition("/")
    dataset, _, configuration = rest.partition("/")
    if not owner or not dataset:
        raise UnmaskError(f"'{name}' is not a hub data set: write hub:owner/name or hub:owner/name:split.")
    try:
        import datasets
    except ImportError:
        raise needs(f"Reading {name} needs datasets", "data") from None
    try:
        found = datasets.load_dataset(
            f"{owner}/{dataset}", configuration or None, split=split or "train", streaming=True
        )
        found, classes = _undecoded(found)
        named = ({**row, **{k: names(row[k]) for k, names in classes.items() if k in row}} for row in found)
        yield from _records(name, enumerate(named, 1), column)
    except UnmaskError:
        raise
    except Exception as error:  # the library and its transports raise many kinds
        raise UnmaskError(f"{name} cannot be read from the hub: {_first_line(error)}.") from None


def _undecoded(found: Any) -> tuple[Any, dict[str, Callable[[int | None], str | None]]]:
    """A data set of the hub whose pictures and recordings are not decoded, and for each column of classes the function
    from a number to a name; -1 is no class."""
    classes: dict[str, Callable[[int | None], str | None]] = {}
    for name, feature in (getattr(found, "features", None) or {}).items():
        if hasattr(feature, "int2str"):
            of: Callable[[int], str] = feature.int2str
            classes[name] = lambda i, of=of: None if i is None or i < 0 else of(i)  # type: ignore[misc]
        elif hasattr(feature, "decode"):
            found = found.cast_column(name, type(feature)(decode=False))
    return found, classes


# ------------------------------------------------------------------------------------------------ TSV, CSV


_TSV_HINT = "TSV is read without quoting, so a field cannot contain a tab or a line end: save such a table as CSV."
_CSV_HINT = "quote fields that hold the separator."


def _tsv(path: Path, facts: FileFacts | None, encoding: str | None) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines(path, facts, encoding=encoding, newline="\n"):
        if line.strip():
            yield number, line.removesuffix("\n").removesuffix("\r").split("\t")


def _csv(path: Path, facts: FileFacts | None, encoding: str | None) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    source = (line for _, line in lines(path, facts, encoding=encoding))
    first = next(source, "")
    delimiter = ";" if "," not in first and ";" in first else ","
    reader = csv.reader(chain([first], source), delimiter=delimiter, strict=facts is None)
    begin = 1
    try:
        for values in reader:
            if values:
                yield begin, values
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UnmaskError(f"{path}:{begin} is not valid CSV: {error}.") from None


def _delimited(
    path: Path,
    records: Iterator[tuple[int, list[str]]],
    hint: str,
    header: bool,
    column: str | None,
    ragged: list[int] | None,
) -> Rows:
    first = next(records, None)
    if first is None:
        raise NotText(path, "it is empty")
    if len(first[1]) > MOST_COLUMNS:
        raise UnmaskError(f"{path} has {len(first[1]):,} columns, but the limit is {MOST_COLUMNS:,}.")
    names = [name.strip() for name in first[1]] if header else [str(i) for i in range(1, len(first[1]) + 1)]
    if any("\r" in name for name in names):
        raise UnmaskError(f"The lines of {path} end with CR only; save it with the line ends LF or CRLF.")
    if column is not None and column not in names:
        raise unknown("column", column, names, path)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None and column is None:
        raise UnmaskError(f"{path} has two columns called '{twice}'; rename one.")
    places = {name: names.index(name) for name in (names if column is None else [column])}
    for number, values in chain([] if header else [first], records):
        if len(values) != len(names) and ragged is not None:
            ragged.append(number)
            continue
        if len(values) != len(names):
            raise UnmaskError(
                f"{path}:{number} has {plural(len(values), 'field')}, but the first line has {len(names)}; {hint}"
            )
        yield number, {name: values[place] for name, place in places.items()}


# ------------------------------------------------------------------------------------------------ JSON, Parquet


def _json(path: Path, numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Any]]:
    """The line number and value of each line, or the number and value of each item if the first line opens an array."""
    for number, line in numbered:
        if not line.strip():
            continue
        if line.lstrip()[0] == "[":
            yield from enumerate(_parsed(path, number, _joined(path, line, numbered)), 1)
            return
        yield number, _parsed(path, number, line)


def _joined(path: Path, start: str, numbered: Iterator[tuple[int, str]]) -> str:
    held, size = [start], len(start)
    for _, line in numbered:
        held.append(line)
        size += len(line)
        if size > LONGEST_JSON:
            raise UnmaskError(f"{path} is too large for a JSON array; write it as JSON lines, one object a line.")
    return "".join(held)


def _parsed(path: Path, number: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnmaskError(f"{path}:{number} is not valid JSON, one object a line: {error}.") from None


def _parquet(path: Path, column: str | None) -> Iterator[tuple[int, Any]]:
    with parquet_file(path) as file:
        names = file.schema_arrow.names
        if column is not None and column not in names:
            raise unknown("column", column, names, path)
        batches = file.iter_batches(batch_size=1024, columns=None if column is None else [column])
        yield from enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), 1)


@contextlib.contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file as a `pyarrow.parquet.ParquetFile`. Errors of reading inside the block become UnmaskError,
    and so does a missing `pyarrow`."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise needs(f"Reading {path} needs pyarrow", "data") from None
    try:
        if path.stat().st_size == 0:
            raise NotText(path, "it is empty")
        with path.open("rb") as source, parquet.ParquetFile(source) as file:
            yield file
    except FileNotFoundError:
        raise UnmaskError(f"There is no file {path}.") from None
    except (
        arrow.ArrowException,
        OSError,
        ValueError,
        ArithmeticError,
        LookupError,
    ) as error:  # also from dates and time zones
        raise UnmaskError(f"{path} is damaged or not Parquet: {_first_line(error)}.") from None


def _records(source: Path | str, values: Iterable[tuple[int, Any]], column: str | None) -> Rows:
    for number, value in values:
        if not isinstance(value, Mapping):
            raise UnmaskError(f"{source}:{number} must be a JSON object, not {kind_of(value)}.")
        row = flatten(value)
        if column is not None and column not in row:
            raise unknown("column", column, row, f"{source}:{number}")
        yield number, row


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")

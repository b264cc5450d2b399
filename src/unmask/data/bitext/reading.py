"""Reads sentences and their translations from two files, a table or the hub, and reports pairs left out.

A pair is left out only if it has an empty side or another number of fields; the `Report` has the number of each case
and its first lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from unmask.data.bitext import numbers
from unmask.data.bitext.alignment import UNRELATED, correlation, first_suspicious
from unmask.data.bitext.columns import NESTED, are_header, known
from unmask.data.bitext.forms import FORMS, TURNS, form_of
from unmask.data.bitext.pairs import Bitext, Report
from unmask.data.files.lines import lines
from unmask.data.files.tables import Rows, column_of, guess_format, hub_rows, rows
from unmask.data.labelled.columns import LABELS, TEXTS
from unmask.data.text.vocabulary import clean
from unmask.errors import UnmaskError, kind_of, plural, unknown

TABLES = ("tsv", "csv", "jsonl", "json", "parquet")
FORMATS = (*TABLES, *FORMS)

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufeff]")  # without the tab, which is whitespace


class _Line(NamedTuple):
    """A line of the input before it is checked; None for a missing value of a table."""

    number: int
    source: str | None
    target: str | None
    others: tuple[str, ...] = ()


def read(
    source: Path | str,
    target: Path | str | None = None,
    *,
    columns: tuple[str, str] | None = None,
    format: str | None = None,
    encoding: str | None = None,
    turns: int = TURNS,
) -> Bitext:
    """Read pairs from two aligned files with a sentence on each line, from a TSV, CSV, JSON or Parquet file or
    `hub:owner/name`, or from a file of another form: dialogues, trees, commands (`forms.FORMS`).

    source    the file of sources: sentences, or vectors on lines or in a .npy file (`numbers.vector`, `numbers.lines`)
    target    the file of translations; None: `source` is a table with both. Text files may be .gz or .zst
    columns   the columns of sources and targets in a table. Numbers count columns from 1 and mean that there is no
              header line; "en" also finds "translation.en". None: the columns of
              `columns.known`, or the only two; a TSV or CSV of two columns has a header if `columns.are_header`
    format    tsv, csv, jsonl, json, parquet or a name of `forms.FORMS`; None: by the file's name and first lines
    encoding  encoding of both files, as for `data.files.lines.lines`
    turns     previous turns of a dialogue that are read

    A source may be a list of sentences, which are joined, and a target a list of texts that are all right: the first
    one is learned, and all are references of a score. Pairs with an empty side, and rows of a TSV or CSV with another
    number of fields than the first line, are left out and counted. Repeated pairs, pairs with equal sides, U+FFFD, and
    NUL and other control characters, which become spaces, are kept and counted. Raises UnmaskError for different
    numbers of lines (naming both, and the first line that is probably misaligned, see `alignment.first_suspicious`),
    text that is not UTF-8 (naming file and line), unknown columns, and if no pair is left.
    """
    for path, of_texts in ((source, target is None), (target, True)):
        if path is not None and of_texts and numbers.SUFFIX in Path(path).suffixes:
            raise UnmaskError(f"{path} has vectors, which can only be sources; give the file of texts second.")
    if target is not None:
        if columns is not None or format is not None:
            raise UnmaskError(
                "Columns and formats belong to a table; two aligned files have one sentence on each line."
            )
        return _aligned(Path(source), Path(target), encoding)
    if str(source).startswith("hub:"):
        return _of_table(str(source), hub_rows(str(source)), columns, [])
    path = Path(source)
    if not path.is_file():
        raise UnmaskError(f"There is no file {path}.")
    if format is not None and format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if form := form_of(path, format, encoding):
        if columns is not None:
            raise UnmaskError(f"{path} is not a table; leave the columns out.")
        if turns < 1:
            raise UnmaskError(f"At least one previous turn must be read, not {turns}: raise --turns.")
        return _judged(str(path), (_Line(*pair) for pair in form.pairs(path, encoding, turns)), {})
    format = format or guess_format(path, otherwise="plain text", encoding=encoding)
    if format not in TABLES:
        raise UnmaskError(f"{path} looks like {format}, which has no pairs; give the second file too.")
    delimited = format in ("tsv", "csv")
    header = delimited and _has_header(path, format, columns, encoding)
    if delimited and not header and columns is None:
        columns = ("1", "2")
    ragged: list[int] = []
    table = rows(path, format, header=header, encoding=encoding, ragged=ragged)
    if format != "csv":  # in CSV a row may have several lines, so missing numbers mean nothing
        table = _with_blanks(table, ragged)
    return _of_table(str(path), table, columns, ragged)


# ------------------------------------------------------------------------------------------------ two files


def _aligned(source: Path, target: Path, encoding: str | None) -> Bitext:
    array = source.suffix == numbers.SUFFIX and source.is_file()
    left = numbers.lines(source) if array else _texts(source, encoding)
    right = _texts(target, encoding)
    if len(left) != len(right) and array:
        raise UnmaskError(f"{source} has {plural(len(left), 'row')} but {target} {plural(len(right), 'line')}.")
    if len(left) != len(right):
        line = first_suspicious([len(text) for text in left], [len(text) for text in right])
        raise UnmaskError(
            f"{source} has {plural(len(left), 'line')} but {target} has {len(right):,}; by their lengths, "
            f"they are misaligned from line {line:,}: look there for a line that is missing or broken in "
            "two."
        )
    found = (_Line(i, *pair) for i, pair in enumerate(zip(left, right, strict=True), 1))
    bitext = _judged(f"{source}, {target}", found, {})
    if numbers.are_vectors(bitext.sources):  # their lengths are not informative
        return bitext
    r = correlation(*([len(text) for text in side] for side in (bitext.sources, bitext.targets)))
    if r is None or r >= UNRELATED:
        return bitext
    remark = f"The lengths of sources and targets are hardly correlated ({r:.2f}): check that the files are aligned."
    return replace(bitext, report=replace(bitext.report, remarks=(remark,)))


def _texts(path: Path, encoding: str | None) -> list[str]:
    read = lines(path, encoding=encoding, newline="\n")
    return [line.removesuffix("\n").removesuffix("\r") for _, line in read]


# ------------------------------------------------------------------------------------------------ one table


def _has_header(path: Path, format: str, columns: tuple[str, str] | None, encoding: str | None) -> bool:
    """Whether the first line of a TSV or CSV has column names: if the caller uses names, or if names are known.

    Raises UnmaskError if there are three or more columns and none is known: one may be a row number.
    """
    if columns is not None and all(name.isdigit() for name in columns):
        return False
    first = next(rows(path, format, header=False, encoding=encoding), None)
    if first is None:
        raise UnmaskError(f"{path} has no rows.")
    names = [str(value).strip() for value in first[1].values()]
    if columns is not None:
        if not {*columns, *(f"{NESTED}{column}" for column in columns)} & set(names):
            raise UnmaskError(
                f"{path} has no columns {' and '.join(columns)}: its first line is {_listed(names)}. If that is a pair "
                "already, the file has no header: give numbers, as in --columns 1,2."
            )
        return True
    label, text = column_of(names, LABELS), column_of(names, TEXTS)
    if label and text and known(names) is None:
        raise UnmaskError(
            f"{path} has labelled rows, not pairs of texts: its columns are {_listed(names)}. Use unmask finetune, or "
            "name two columns with --columns."
        )
    if len(names) > 2 and known(names) is None:
        raise UnmaskError(
            f"{_unknown(str(path), names)}; if the first line is a pair already, give numbers, as in --columns 1,2."
        )
    return are_header(names)


def _unknown(name: str, names: Sequence[str]) -> str:
    return (
        f"{name} has no columns with usual names of sources and targets; give two with --columns, from: "
        f"{_listed(names)}"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(one if len(one) <= 40 else f"{one[:40]}…" for one in names[:30])


def _with_blanks(table: Rows, ragged: Sequence[int]) -> Rows:
    """The rows, with a row without values for each blank line between them: a number that is neither that of a row nor
    among the `ragged` ones."""
    before: int | None = None
    torn = 0
    for number, values in table:
        others = set(ragged[torn:])
        yield from ((n, {}) for n in range(number if before is None else before + 1, number) if n not in others)
        yield number, values
        before, torn = number, len(ragged)


def _of_table(name: str, table: Rows, columns: tuple[str, str] | None, ragged: list[int]) -> Bitext:
    first = next(table, None)
    if first is None:
        raise UnmaskError(f"{name} has no rows.")
    picked = _columns(name, tuple(first[1]), columns)
    found = (
        _Line(number, _source(name, number, values, picked[0]), *_targets(name, number, values, picked[1]))
        for number, values in chain([first], table)
    )
    remark = f"Sources are the column {picked[0]}, targets {picked[1]}."
    if picked[0].isdigit():
        remark += " There is no header line."
    bitext = _judged(name, found, {"with more or fewer fields than the first line": ragged})
    if len(ragged) > len(bitext):
        raise UnmaskError(f"Most rows of {name} have more or fewer fields than its first line; give its format.")
    return replace(bitext, report=replace(bitext.report, remarks=(remark,)))


def _columns(name: str, names: Sequence[str], wanted: tuple[str, str] | None) -> tuple[str, str]:
    if wanted is None:
        found = known(names) or (tuple(names) if len(names) == 2 else None)
        if found is None:
            raise UnmaskError(f"{_unknown(name, names)}.")
        return found[0], found[1]
    source, target = (column if column in names else f"{NESTED}{column}" for column in wanted)
    for column, asked in ((source, wanted[0]), (target, wanted[1])):
        if column not in names:
            raise unknown("column", asked, names, name)
    if source == target:
        raise UnmaskError(f"Sources and targets of {name} cannot both be the column {source}.")
    return source, target


def _source(name: str, number: int, values: Mapping[str, Any], column: str) -> str | None:
    """The text of a cell; a list of numbers becomes a line of numbers, and a list of sentences a text."""
    value = values.get(column)
    if isinstance(value, list) and value and all(type(x) in (int, float) for x in value):
        return " ".join(map(repr, value))
    return " ".join(value) if _are_texts(value) else _cell(name, number, values, column)


def _targets(name: str, number: int, values: Mapping[str, Any], column: str) -> tuple[str | None, tuple[str, ...]]:
    """The text of a cell; of a list of texts the first one, and the others, which are references as well."""
    value = values.get(column)
    if _are_texts(value):
        first, *others = value
        return first, tuple(others)
    return _cell(name, number, values, column), ()


def _are_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _cell(name: str, number: int, values: Mapping[str, Any], column: str) -> str | None:
    value = values.get(column)
    if value is not None and not isinstance(value, str):
        raise UnmaskError(f"{name}:{number}: the column {column} must be text, not {kind_of(value)}.")
    return value


# ------------------------------------------------------------------------------------------------ what is kept


def _judged(name: str, found: Iterable[_Line], left: Mapping[str, list[int]]) -> Bitext:
    """The valid pairs, and the report. `left` has rows that were left out before; reading `found` extends it."""
    sources: list[str] = []
    targets: list[str] = []
    further: list[tuple[str, ...]] = []
    kept: list[int] = []
    empty: dict[str, list[int]] = {f"{which} empty": [] for which in ("with the source", "with the target", "both")}
    noted: dict[str, list[int]] = {}
    seen: set[tuple[str, str]] = set()
    read = 0
    for number, *texts, others in found:
        read += 1
        source, target = map(_cleaned, texts)
        if not (source and target):
            which = "both" if not (source or target) else "with the target" if source else "with the source"
            empty[f"{which} empty"].append(number)
            continue
        for what in _peculiar(texts, source, target, (source, target) in seen):
            noted.setdefault(what, []).append(number)
        seen.add((source, target))
        sources.append(source)
        targets.append(target)
        further.append(tuple(filter(None, map(_cleaned, others))))
        kept.append(number)
    read += sum(map(len, left.values()))
    report = Report(name, read, _settled({**left, **empty}), _settled(noted))
    if not kept:
        raise UnmaskError(f"{name} has no pair of sentences. {' '.join(report.notes)}".rstrip())
    return Bitext(sources, targets, report, kept, further if any(further) else [])


def _cleaned(text: str | None) -> str:
    return clean(_CONTROL.sub(" ", text or "")).strip()


def _peculiar(raw: Sequence[str | None], source: str, target: str, before: bool) -> Iterator[str]:
    """The peculiarities of a pair, which is kept."""
    if before:
        yield "seen before"
    if source == target:
        yield "with equal sides"
    if any(text and _CONTROL.search(text) for text in raw):
        yield "with control characters, which became spaces"
    if "\ufffd" in source or "\ufffd" in target:
        yield "with U+FFFD, a sign of text that was decoded wrongly"


def _settled(places: Mapping[str, list[int]]) -> dict[str, tuple[int, ...]]:
    return {what: tuple(at) for what, at in places.items() if at}

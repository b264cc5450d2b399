"""Bitext: reads sentences and their translations from two files, a table or the hub, and reports pairs left out.

A pair is left out only if it has an empty side or another number of fields, or if it exceeds limits of the caller; the
`Report` has the number of each case and its first lines. Limits on lengths: Koehn et al., "Moses", ACL 2007 (its
clean-corpus-n).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unmask.data.bitext import numbers
from unmask.data.bitext.alignment import UNRELATED, correlation, first_suspicious
from unmask.data.bitext.columns import NESTED, are_header, known
from unmask.data.files.lines import lines
from unmask.data.files.tables import Rows, guess_format, hub_rows, rows
from unmask.data.labelled.dataset import MOST_OVERLAP
from unmask.data.labelled.rows import listed
from unmask.data.text.vocabulary import clean
from unmask.errors import UnmaskError, kind_of, plural, unknown

FORMATS = ("tsv", "csv", "jsonl", "json", "parquet")

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufeff]")  # without the tab, which is whitespace


class _Line(NamedTuple):
    """A line of the input before it is checked; None for a missing value of a table."""

    number: int
    source: str | None
    target: str | None


@dataclass(frozen=True)
class Report:
    """The statistics of reading.

    name      the files, for messages
    read      number of pairs in the files
    left_out  reason -> numbers of the lines (rows, in a table) that are not in the Bitext
    noted     peculiarity -> numbers of the lines that are in the Bitext
    remarks   sentences on the whole, such as the columns that were used
    """

    name: str
    read: int
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    noted: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The report in sentences, with counts and the first lines of each case."""
        return (
            *self.remarks,
            *(f"Pairs {what}: {_counted(at)}." for what, at in self.noted.items() if at),
            *(f"Pairs left out, {why}: {_counted(at)}." for why, at in self.left_out.items() if at),
        )


@dataclass(frozen=True)
class Bitext:
    """Pairs: number i is sources[i] and targets[i], from line lines[i]. `report` has the lines that were left out."""

    sources: list[str]
    targets: list[str]
    report: Report
    lines: list[int]

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.sources, self.targets, strict=True)

    def take(self, indices: Iterable[int]) -> Bitext:
        """The pairs with these indices, in this order."""
        at = [int(i) for i in indices]
        sources, targets = [self.sources[i] for i in at], [self.targets[i] for i in at]
        return Bitext(sources, targets, self.report, [self.lines[i] for i in at])

    @property
    def description(self) -> str:
        """The number of pairs, their files and the notes, without the last full stop."""
        sentences = (f"{self.report.name}: {plural(len(self), 'pair')}", *self.report.notes)
        return ". ".join(sentence.removesuffix(".") for sentence in sentences)


def read(
    source: Path | str,
    target: Path | str | None = None,
    *,
    columns: tuple[str, str] | None = None,
    format: str | None = None,
    encoding: str | None = None,
) -> Bitext:
    """Read pairs from two aligned files with a sentence on each line, or from a TSV, CSV, JSON or Parquet file or
    `hub:owner/name`.

    source    the file of sources: sentences, or vectors on lines or in a .npy file (`numbers.vector`, `numbers.lines`)
    target    the file of translations; None: `source` is a table with both. Text files may be .gz or .zst
    columns   the columns of sources and targets in a table. Numbers count columns from 1 and mean that there is no
              header line; "en" also finds "translation.en". None: the columns of `columns.known`, or the only two; a
              TSV or CSV of two columns has a header if `columns.are_header`
    format    tsv, csv, jsonl, json or parquet; None: by the file's name and first lines
    encoding  encoding of both files, as for `data.files.lines.lines`

    Pairs with an empty side, and rows of a TSV or CSV with another number of fields than the first line, are left out
    and counted. Repeated pairs, pairs with equal sides, U+FFFD, and NUL and other control characters, which become
    spaces, are kept and counted. Raises UnmaskError for different numbers of lines (naming both, and the first line
    that is probably misaligned, see `alignment.first_suspicious`), text that is not UTF-8 (naming file and line),
    unknown columns, and if no pair is left.
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
    format = format or guess_format(path, otherwise="plain text", encoding=encoding)
    if format not in FORMATS:
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
    if columns is not None:
        return not all(name.isdigit() for name in columns)
    first = next(rows(path, format, header=False, encoding=encoding), None)
    if first is None:
        raise UnmaskError(f"{path} has no rows.")
    names = [str(value).strip() for value in first[1].values()]
    if len(names) > 2 and known(names) is None:
        raise UnmaskError(
            f"{_unknown(str(path), names)}; if the first line is a pair already, give numbers, as in --columns 1,2."
        )
    return are_header(names)


def _unknown(name: str, names: Sequence[str]) -> str:
    shown = ", ".join(one if len(one) <= 40 else f"{one[:40]}…" for one in names[:30])
    return f"{name} has no columns with usual names of sources and targets; give two with --columns, from: {shown}"


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
        _Line(number, _source(name, number, values, picked[0]), _cell(name, number, values, picked[1]))
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
            raise unknown(f"column in {name}", asked, names)
    if source == target:
        raise UnmaskError(f"Sources and targets of {name} cannot both be the column {source}.")
    return source, target


def _source(name: str, number: int, values: Mapping[str, Any], column: str) -> str | None:
    """The text of a cell; a list of numbers becomes a line of numbers."""
    value = values.get(column)
    if isinstance(value, list) and value and all(type(x) in (int, float) for x in value):
        return " ".join(map(repr, value))
    return _cell(name, number, values, column)


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
    kept: list[int] = []
    empty: dict[str, list[int]] = {f"{which} empty": [] for which in ("with the source", "with the target", "both")}
    noted: dict[str, list[int]] = {}
    seen: set[tuple[str, str]] = set()
    read = 0
    for number, *texts in found:
        read += 1
        source, target = (clean(_CONTROL.sub(" ", text or "")).strip() for text in texts)
        if not (source and target):
            which = "both" if not (source or target) else "with the target" if source else "with the source"
            empty[f"{which} empty"].append(number)
            continue
        for what in _peculiar(texts, source, target, (source, target) in seen):
            noted.setdefault(what, []).append(number)
        seen.add((source, target))
        sources.append(source)
        targets.append(target)
        kept.append(number)
    read += sum(map(len, left.values()))
    report = Report(name, read, _settled({**left, **empty}), _settled(noted))
    if not kept:
        raise UnmaskError(f"{name} has no pair of sentences. {' '.join(report.notes)}".rstrip())
    return Bitext(sources, targets, report, kept)


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


def fitting(
    bitext: Bitext,
    source_sizes: Sequence[int],
    target_sizes: Sequence[int],
    *,
    longest: int | None = None,
    ratio: float | None = None,
    unit: str = "tokens",
) -> tuple[Bitext, np.ndarray]:
    """The pairs within limits, and their indices [kept] in the given bitext; the report counts the others.

    source_sizes, target_sizes  [pairs] lengths in any unit, such as tokens or words
    longest                     largest length of a side; None: no limit
    ratio                       largest ratio of the longer side to the shorter one (Moses has 9); None: no limit

    Raises UnmaskError if no pair is left.
    """
    source, target = np.asarray(source_sizes, np.int64), np.asarray(target_sizes, np.int64)
    if source.shape != (len(bitext),) or target.shape != (len(bitext),):
        raise UnmaskError(
            f"{bitext.report.name} has {len(bitext):,} pairs; give the sizes of both sides for each pair."
        )
    faults: dict[str, np.ndarray] = {}
    long, short = np.maximum(source, target), np.minimum(source, target)
    if longest is not None:
        faults[f"longer than {longest:,} {unit}"] = long > longest
    if ratio is not None:
        uneven = long > ratio * np.maximum(short, 1)
        faults[f"one side more than {ratio:g} times as long as the other"] = uneven & ~np.any([*faults.values()], 0)
    kept = np.flatnonzero(~np.any([np.zeros(len(bitext), bool), *faults.values()], 0))
    left_out = {why: tuple(bitext.lines[i] for i in np.flatnonzero(bad)) for why, bad in faults.items()}
    report = replace(bitext.report, left_out={**bitext.report.left_out, **left_out})
    if not len(kept):
        raise UnmaskError(f"No pair of {report.name} is within the limits. {' '.join(report.notes)}")
    return replace(bitext.take(kept), report=report), kept


# ------------------------------------------------------------------------------------------------ train and dev


def check_apart(train: Bitext, dev: Bitext) -> tuple[str, ...]:
    """Sentences on pairs and sources of `dev` that are also in `train`, ignoring case and whitespace; else empty.

    Raises UnmaskError if more than 10 % of the pairs are: the score would not measure generalisation.
    """
    pairs = {(_key(source), _key(target)) for source, target in train}
    sources = {source for source, _ in pairs}
    common = [line for line, pair in zip(dev.lines, dev, strict=True) if (_key(pair[0]), _key(pair[1])) in pairs]
    known = [line for line, source in zip(dev.lines, dev.sources, strict=True) if _key(source) in sources]
    if len(common) > MOST_OVERLAP * len(dev):
        raise UnmaskError(
            f"{dev.report.name} shares {len(common):,} of its {plural(len(dev), 'pair')} with {train.report.name} (the "
            f"first is line {common[0]:,}), so its score would not measure generalisation; remove them, or set "
            "--allow-overlap yes."
        )
    cases = {"Pairs": common, "Sources": known}
    return tuple(f"{what} of {dev.report.name} also in training: {_counted(at)}." for what, at in cases.items() if at)


def hold_out(bitext: Bitext, count: int, seed: int = 0) -> tuple[Bitext, Bitext]:
    """(train, dev): about `count` pairs are drawn for dev. All pairs of a source go to the same side, because a source
    may have several translations. Raises UnmaskError if no pairs are left for training."""
    _, group = np.unique([_key(source) for source in bitext.sources], return_inverse=True)
    order = np.random.default_rng(seed).permutation(int(group.max()) + 1)
    sizes = np.bincount(group)[order]
    chosen = np.isin(group, order[np.cumsum(sizes) - sizes < count])
    if chosen.all() or count < 1:
        raise UnmaskError(
            f"{bitext.report.name} has {plural(len(bitext), 'pair')}, too few to hold some out; give others with --dev."
        )
    return bitext.take(np.flatnonzero(~chosen)), bitext.take(np.flatnonzero(chosen))


def _key(text: str) -> str:
    return " ".join(text.split()).casefold()


def _settled(places: Mapping[str, list[int]]) -> dict[str, tuple[int, ...]]:
    return {what: tuple(at) for what, at in places.items() if at}


def _counted(lines: Sequence[int]) -> str:
    """ "2,004 (lines 3, 9, 14, …)"."""
    return f"{len(lines):,} ({'lines' if len(lines) > 1 else 'line'} {listed([f'{n:,}' for n in lines])})"

"""Labelled recordings: a folder with a subfolder for each class, a folder whose files have the label in their name, or
a table of files.

Shapes: N samples of a recording.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.tables import column_of, format_by_name, guess_format, read_table
from unmask.data.files.tables import rows as rows_of
from unmask.data.labelled.dataset import Dataset, in_turns
from unmask.data.labelled.rows import Row, listed
from unmask.data.recordings.decoding import SUFFIXES, Source, decode, digest_of, header
from unmask.errors import UnmaskError, plural

RECORDINGS = ("recording", "audio", "path", "file", "file_name", "filename", "wav", "clip", "audio_filepath")
LABELS = ("label", "class", "category", "target", "word", "command", "digit", "emotion", "language")
SPEAKERS = ("speaker", "speaker_id", "client_id")
TRANSCRIPTS = ("text", "transcript", "transcription", "sentence")
BEGINS, ENDS = ("begin", "start"), ("end", "stop")
"""Usual names of columns, in lower case."""

BYTES, PATH = ".bytes", ".path"  # parts of a column in data sets of the Hugging Face hub
SHOWN = 3  # names in a note


@dataclass(frozen=True, slots=True)
class Recording(Row):
    """A recording, or a part of one. Its `label` is a class; its `text` is a transcript, which no model reads.

    source  the path of a file, or its bytes
    begin   of the part, in seconds
    end     of the part, in seconds; None: the end of the recording
    group   what must not be in two splits at once, such as the speaker; empty if it is not known
    """

    source: Source = field(default=b"", compare=False)
    begin: float = 0.0
    end: float | None = None
    group: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Empty: a model reads no text of a recording."""
        return ()

    @property
    def key(self) -> tuple[str, ...]:
        """A hash of the bytes of the file, and the part: copies of a file under other names are the same row."""
        return (digest_of(self.source), str(self.begin), str(self.end))

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """All recordings of the row."""
        return (self,)

    def samples(self, rate: int, most: int | None = None) -> np.ndarray:
        """[N] float32 in [-1, 1], of `rate` a second, the first `most` of them. Raises UnmaskError, which names the
        row, if the recording cannot be decoded."""
        end = self.end
        if most is not None:
            end = min(math.inf if end is None else end, self.begin + (most + 1) / rate)
        return decode(self.source, rate, self.begin, end, name=self._name)[:most]

    def count(self, rate: int) -> int:
        """N, by the header of the file. Raises UnmaskError, which names the row, for a file that is no recording."""
        first, last = header(self.source, name=self._name).bounds(rate, self.begin, self.end)
        return last - first

    @property
    def _name(self) -> str:
        """The name in messages: that of a file is its path."""
        return self.place if isinstance(self.source, bytes) else ""


@dataclass(frozen=True, slots=True)
class RecordingPair(Recording):
    """Two recordings, which are compared: `source` and `other`, as in `Recording`."""

    other: Source = field(default=b"", compare=False)

    @property
    def recordings(self) -> tuple[Recording, ...]:
        return self, Recording(place=self.place, source=self.other)


@dataclass(frozen=True)
class Wanted:
    """The columns that are read; None: the first with a usual name. In place of the columns `label` and `group`, a
    regular expression with one group in brackets finds the value in the name of the file: "_([a-z]+)_" is "theo" in
    3_theo_7.wav.

    labels  usual names of the column of labels
    needs   what every row must have: "label", "text" (a transcript), or "" for neither
    """

    recording: str | None = None
    label: str | None = None
    text: str | None = None
    group: str | None = None
    labels: tuple[str, ...] = LABELS
    needs: str = "label"


def labelled(path: Path, wanted: Wanted | None = None, *, encoding: str | None = None) -> Dataset:
    """The recordings of a folder or of a table.

    In a folder the label is the name of the subfolder, or what the expression `wanted.label` finds in the name.
    A table has paths relative to its folder, or bytes, and maybe columns begin and end, in seconds.

    Raises UnmaskError, which names the row and the column, if a value is missing, empty or of another type.
    """
    wanted = wanted or Wanted()
    return of_folder(path, wanted) if path.is_dir() else of_table(path, wanted, encoding=encoding)


def holds_recordings(path: Path) -> bool:
    """Whether the data are recordings: a folder in which at least half of the files are, a file of sound, or a table
    whose first row names one."""
    if path.is_dir():
        sounds = [one.suffix.lower() in SUFFIXES for one in path.rglob("*") if one.is_file() and not _hidden(one, path)]
        return sum(sounds) * 2 >= max(1, len(sounds))
    if path.suffix.lower() in SUFFIXES:
        return True
    format = format_by_name(path)
    if format in (None, "conll"):
        return False
    try:
        cells = next(rows_of(path, format))[1]
    except (UnmaskError, StopIteration):  # the reader of texts says what is wrong
        return False
    named = [cells[name] for name in cells if name.removesuffix(PATH).lower() in RECORDINGS]
    return any(Path(str(one)).suffix.lower() in SUFFIXES for one in named)


def of_folder(folder: Path, wanted: Wanted) -> Dataset:
    """The recordings of a folder and its subfolders, the first of each class, then the second ones, and so on.

    Raises UnmaskError if there are no recordings, for transcripts, and for recordings outside of a subfolder where the
    subfolders are the classes.
    """
    if wanted.needs == "text":
        raise UnmaskError(f"{folder} is a folder, which has no transcripts: give a table with columns path and text.")
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not _hidden(path, folder))
    found = [path for path in paths if path.suffix.lower() in SUFFIXES]
    if not found:
        raise UnmaskError(f"{folder} has no recordings: files such as .wav or .flac, in it or in its subfolders.")
    if wanted.label is None and (loose := [path for path in found if path.parent == folder]):
        raise UnmaskError(
            f"{folder} must have a subfolder of recordings for each class, but {loose[0].name} is in none of them "
            f"({plural(len(loose), 'such recording')}); or give an expression for the names with --label."
        )
    label = None if wanted.label is None else Pattern(wanted.label, "--label")
    group = None if wanted.group is None else Pattern(wanted.group, "--group")
    rows = []
    for path in found:
        name = path.relative_to(folder).as_posix()
        rows.append(
            Recording(
                label=_printable(name.partition("/")[0], folder) if label is None else label(name, str(path)),
                place=str(path),
                source=path,
                group="" if group is None else group(name, str(path)),
            )
        )
    others = len(paths) - len(found)
    are = "is no recording" if others == 1 else "are no recordings"
    notes = (f"Skipped {plural(others, 'file')} that {are}",) if others else ()
    columns = {"recording": "files", "label": "folders" if label is None else "names"}
    return Dataset(folder, tuple(in_turns(rows)), columns, notes)


def of_table(path: Path, wanted: Wanted, *, encoding: str | None = None) -> Dataset:
    """The recordings of a table; see `labelled`."""
    table = read_table(path, guess_format(path, encoding=encoding), encoding=encoding)
    names = [*table.columns, *(one.removesuffix(BYTES) for one in table.columns if one.endswith(BYTES))]
    recording = _column(names, wanted.recording, RECORDINGS, "recordings", path)
    label, text, group = wanted.label, wanted.text, wanted.group
    if wanted.needs == "label" and not _is_pattern(label):
        label = _column(table.columns, label, wanted.labels, "labels", path)
    if wanted.needs == "text":
        text = _column(table.columns, text, TRANSCRIPTS, "transcripts", path)
    if group is not None and not _is_pattern(group):
        group = _column(table.columns, group, (), "groups", path)
    begin, end = column_of(table.columns, BEGINS), column_of(table.columns, ENDS)
    finds = {
        "label": _finder(table.columns, label if wanted.needs == "label" else None, "--label"),
        "text": _finder(table.columns, text if wanted.needs == "text" else None, "--text"),
        "group": _finder(table.columns, group, "--group"),
    }
    rows = []
    for number, cells in table.rows:
        place = f"{path}:{number}"
        source, name = _source(cells, recording, path.parent, place)
        values = {role: find(cells, name, place) for role, find in finds.items()}
        first, last = _seconds(cells, begin, place) or 0.0, _seconds(cells, end, place)
        if last is not None and last <= first:
            raise UnmaskError(f"{place}: the end, {last:g} s, must be after the begin, {first:g} s.")
        rows.append(Recording(place=place, source=source, begin=first, end=last, **values))
    roles = {"recording": recording, "label": label, "text": text, "group": group, "begin": begin, "end": end}
    used = {
        role: name for role, name in roles.items() if name and (role not in ("label", "text") or role == wanted.needs)
    }
    return Dataset(path, tuple(rows), used)


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


def _is_pattern(name: str | None) -> bool:
    return name is not None and "(" in name


def _finder(columns: Sequence[str], name: str | None, option: str) -> Callable[[Mapping[str, Any], str, str], str]:
    """(cells, name of the file, place) -> the value of a column, or what a pattern finds; empty for no column."""
    if name is None:
        return lambda cells, file, place: ""
    if name not in columns:
        pattern = Pattern(name, option)
        return lambda cells, file, place: pattern(file, place)

    def value(cells: Mapping[str, Any], file: str, place: str) -> str:
        found = cells.get(name)
        if found is None or not str(found).strip():
            raise UnmaskError(f"{place}: the column '{name}' is empty; every recording needs a value.")
        return str(found).strip()

    return value


def _column(names: Sequence[str], asked: str | None, usual: Sequence[str], what: str, path: Path) -> str:
    found = column_of(names, (asked,) if asked is not None else usual)
    if found is None and asked is not None:
        raise UnmaskError(f"{path} has no column '{asked}'; it has {', '.join(names)}.")
    if found is None:
        raise UnmaskError(f"{path} has no column of {what} with a usual name ({', '.join(usual)}); give its name.")
    return found


def _source(cells: Mapping[str, Any], column: str, folder: Path, place: str) -> tuple[Path | bytes, str]:
    """The recording of a row: bytes, or a path relative to the folder of the table; and its name, if it has one."""
    name = cells.get(column + PATH)
    value = cells.get(column) or cells.get(column + BYTES) or name
    if isinstance(value, bytes) and value:
        return value, str(name or "")
    if isinstance(value, str) and value.strip():
        return folder / value.strip(), value.strip()
    raise UnmaskError(f"{place}: there is no recording; give the path of a file, or its bytes.")


def _seconds(cells: Mapping[str, Any], column: str | None, place: str) -> float | None:
    value = None if column is None else cells.get(column)
    if value is None or not str(value).strip():
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UnmaskError(f"{place}: the column '{column}' must be a number of seconds from 0, not '{value}'.")
    return seconds


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _printable(name: str, folder: Path) -> str:
    if not name.isprintable():
        raise UnmaskError(f"{folder} has a subfolder whose name cannot be printed ({name!a}); rename it.")
    return name


def check_readable(reasons: Sequence[str], count: int) -> None:
    """Raises UnmaskError for labelled recordings that cannot be read, if there are any.

    reasons  of each of them
    count    number of all recordings
    """
    if reasons and count == 1:
        raise UnmaskError(reasons[0])
    if reasons:
        more = f" And {len(reasons) - SHOWN:,} more." if len(reasons) > SHOWN else ""
        raise UnmaskError(
            f"{len(reasons):,} of {plural(count, 'recording')} cannot be read: {' '.join(reasons[:SHOWN])}{more} "
            "Remove them from the rows."
        )


def doubts(sets: Mapping[str, Dataset]) -> Iterator[str]:
    """Sentences on classes that a set lacks although "train" has them, and on groups that are in two sets."""
    classes = {row.label for row in sets["train"]}
    groups = {
        name: {row.group for row in rows if isinstance(row, Recording) and row.group} for name, rows in sets.items()
    }
    for name, rows in sets.items():
        if lacking := sorted(classes - {row.label for row in rows}):
            yield f"{name} has no recording of {plural(len(lacking), 'class', 'classes')}: {listed(lacking, SHOWN)}."
        if name != "train" and (common := sorted(groups[name] & groups["train"])):
            of = f"{len(common):,} of the {plural(len(groups[name]), 'group')} of {name}"
            yield f"The training rows also hold {of} ({listed(common, SHOWN)})."


def hold_out_groups(dataset: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """All rows of groups that are drawn at random until they have `count` rows, and the other rows, both in the order
    of the file. Raises UnmaskError if there are fewer than two groups."""
    groups = [row.group for row in dataset if isinstance(row, Recording)]
    names = sorted(set(groups))
    if len(names) < 2:
        raise UnmaskError(
            f"{dataset.path} has {plural(len(names), 'group')}: too few to hold one out; give --dev FILE, or leave "
            "--group out."
        )
    drawn, rows = set[str](), 0
    for i in rng.permutation(len(names)).tolist()[:-1]:
        if rows >= count:
            break
        drawn.add(names[i])
        rows += groups.count(names[i])
    return (
        dataset.take(i for i, group in enumerate(groups) if group in drawn),
        dataset.take(i for i, group in enumerate(groups) if group not in drawn),
    )

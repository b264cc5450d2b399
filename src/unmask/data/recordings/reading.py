"""Labelled recordings: a folder with a subfolder for each class, a folder whose files have the label in their name, or
a table of files.

Shapes: N samples of a recording.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.cells import SAID, Pattern, column_in, is_pattern, span_in, value_in
from unmask.data.files.corpora import RECORDINGS as CORPUS
from unmask.data.files.corpora import format_of
from unmask.data.files.items import BYTES, PATH, class_of, visible
from unmask.data.files.tables import guess_format, read_table
from unmask.data.labelled.dataset import Dataset, in_turns
from unmask.data.labelled.rows import Row
from unmask.data.recordings.corpus import RecordingCorpus
from unmask.data.recordings.decoding import SUFFIXES, Header, Source, decode, digest_of, header
from unmask.data.recordings.items import RECORDINGS, holds_recordings, items_of
from unmask.errors import UnmaskError, plural

SPEAKERS = ("speaker", "speaker_id", "client_id")
TRANSCRIPTS = ("text", "transcript", "transcription", "sentence")
"""Usual names of columns."""


@dataclass(frozen=True, slots=True)
class Recording(Row):
    """A recording, or a part of one. Its `label` is a class; its `text` is a transcript, which no model reads.

    source  the path of a file, or its bytes
    begin   of the part, in seconds
    end     of the part, in seconds; None: the end of the recording
    """

    source: Source = field(default=b"", compare=False)
    begin: float = 0.0
    end: float | None = None

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

    def part(self, first: int, count: int, rate: int) -> Recording:
        """The part of `count` samples from sample `first` on, at a rate."""
        begin = round(self.begin * rate) + first
        return replace(self, begin=begin / rate, end=(begin + count) / rate)

    def count(self, rate: int) -> int:
        """N, by the header of the file. Raises UnmaskError, which names the row, for a file that is no recording."""
        first, last = self.header.bounds(rate, self.begin, self.end)
        return last - first

    @property
    def header(self) -> Header:
        """That of the file. Raises UnmaskError, which names the row, for one that is no recording."""
        return header(self.source, name=self._name)

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
    labels: tuple[str, ...] = RECORDINGS.labels
    needs: str = "label"


def labelled(path: Path, wanted: Wanted | None = None, *, encoding: str | None = None) -> Dataset:
    """The recordings of a folder or of a table.

    In a folder the label is the name of the subfolder, or what the expression `wanted.label` finds in the name.
    A table has paths relative to its folder, or bytes, and maybe columns begin and end, in seconds.

    Raises UnmaskError, which names the row and the column, if a value is missing, empty or of another type.
    """
    wanted = wanted or Wanted()
    if path.is_dir():
        return of_folder(path, wanted) if format_of(path) is None else of_corpus(path, wanted)
    return of_table(path, wanted, encoding=encoding)


def are_recordings(path: Path) -> bool:
    """Whether labelled rows are recordings: a corpus of them, a folder in which at least half of the files are, or a
    table whose first row names a file of sound, or has its bytes."""
    if path.is_dir():
        return format_of(path) == CORPUS or holds_recordings(path)
    try:
        first = next(iter(items_of(path)), None)
    except UnmaskError:  # the reader of texts says what is wrong
        return False
    source = None if first is None else first.source
    return isinstance(source, bytes) or (isinstance(source, Path) and source.suffix.lower() in SUFFIXES)


def of_folder(folder: Path, wanted: Wanted) -> Dataset:
    """The recordings of a folder and its subfolders, the first of each class, then the second ones, and so on.

    Raises UnmaskError if there are no recordings, for transcripts, and for recordings outside of a subfolder where the
    subfolders are the classes.
    """
    if wanted.needs == "text":
        raise UnmaskError(f"{folder} is a folder, which has no transcripts: give a table with columns path and text.")
    found, others = RECORDINGS.files_in(folder)
    if not found:
        raise UnmaskError(f"{folder} has no recordings: files such as {RECORDINGS.usual}, in it or in its subfolders.")
    if wanted.label is None and (loose := [path for path in found if path.parent == folder]):
        raise UnmaskError(
            f"{folder} must have a subfolder of recordings for each class, but {visible(loose[0].name)} is in none of "
            f"them ({plural(len(loose), 'such recording')}); or give an expression for the names with --label."
        )
    find = {name: Pattern(given, f"--{name}") for name in ("label", "group") if (given := getattr(wanted, name))}
    rows = []
    for path in found:
        name, place = path.relative_to(folder).as_posix(), visible(str(path))
        values: dict[str, Any] = {role: pattern(name, place) for role, pattern in find.items()}
        rows.append(Recording(**{"label": class_of(path, folder), **values}, place=place, source=path))
    notes = RECORDINGS.left_out(folder, others, () if wanted.label else {row.label for row in rows})
    columns = {"recording": "files", "label": "names" if wanted.label else "folders"}
    return Dataset(folder, tuple(in_turns(rows)), columns, notes)


def of_corpus(folder: Path, wanted: Wanted) -> Dataset:
    """The recordings of a corpus that was built from recordings with labels, the first of each class, then the second
    ones, and so on. Their rows hold handles, and no samples.

    Raises UnmaskError for a damaged corpus, for one without labels, and for transcripts.
    """
    corpus = RecordingCorpus(folder)
    if wanted.needs == "text" or not corpus.labelled:
        what = "transcripts" if wanted.needs == "text" else "labels"
        raise UnmaskError(f"{folder} is a corpus without {what}: give the recordings that it was built from.")
    group = None if wanted.group is None else Pattern(wanted.group, "--group")
    rows = []
    for number, stored in enumerate(corpus):
        name, place = corpus.name(number), visible(f"{folder}:{corpus.name(number)}")
        own = "" if group is None else group(name, place)
        rows.append(Recording(label=corpus.label(number), place=place, source=stored, group=own))
    return Dataset(
        folder, tuple(in_turns(rows)), {"recording": "corpus", "label": "classes"}, tuple(corpus.manifest["notes"])
    )


def of_table(path: Path, wanted: Wanted, *, encoding: str | None = None) -> Dataset:
    """The recordings of a table; see `labelled`."""
    table = read_table(path, guess_format(path, encoding=encoding), encoding=encoding)
    nested = [name.removesuffix(BYTES) for name in table.columns if name.endswith(BYTES)]
    recording = RECORDINGS.column([*table.columns, *nested], wanted.recording, path)
    usual = {"label": wanted.labels, "text": TRANSCRIPTS}
    asked = {role: getattr(wanted, role) for role in ("label", "text", "group")}
    read = [role for role in asked if role == wanted.needs or (role == "group" and asked[role])]
    roles = {
        role: column_in(table.columns, asked[role], usual.get(role, ()), SAID[role], path, option=f"--{role}")
        for role in read
        if not is_pattern(asked[role])
    }
    find = {role: Pattern(asked[role], f"--{role}") for role in read if role not in roles}
    rows = []
    for number, cells in table.rows:
        place = f"{path}:{number}"
        source = RECORDINGS.source_in(cells, recording, path.parent, place)
        begin, end = span_in(cells, place)
        name = str(cells.get(recording + PATH) or ("" if isinstance(source, bytes) else cells[recording]))
        values: dict[str, Any] = {role: value_in(cells, column, place) for role, column in roles.items()}
        values |= {role: pattern(name, place) for role, pattern in find.items()}
        rows.append(Recording(**values, place=place, source=source, begin=begin, end=end))
    return Dataset(path, tuple(rows), {"recording": recording, **roles, **dict.fromkeys(find, "names")})


def named_recordings(folder: Path) -> tuple[Sequence[Source], list[str]]:
    """The recordings of a folder and its subfolders, or of a corpus, and their names. Raises UnmaskError if there are
    none."""
    if not folder.is_dir():
        raise UnmaskError(f"There is no folder of recordings {folder}.")
    if format_of(folder) is not None:
        corpus = RecordingCorpus(folder)
        return list(corpus), [corpus.name(number) for number in range(len(corpus))]
    found, _ = RECORDINGS.files_in(folder)
    if not found:
        raise UnmaskError(f"{folder} has no recordings: files such as {RECORDINGS.usual}, in it or in folders in it.")
    return found, [str(path.relative_to(folder)) for path in found]

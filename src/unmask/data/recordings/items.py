"""Items of recordings: those of a folder, a table or a manifest, one after another, with their names and labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.data.files.cells import span_in
from unmask.data.files.items import FILES, Item, Items, Medium, visible
from unmask.data.files.lines import lines
from unmask.data.files.tables import on_hub
from unmask.data.recordings.decoding import SUFFIXES, Source
from unmask.errors import UnmaskError


@dataclass(frozen=True, slots=True)
class RecordingItem(Item):
    """A recording, or its part from `begin` to `end` seconds; None: its end."""

    begin: float = 0.0
    end: float | None = None


@dataclass(frozen=True)
class RecordingMedium(Medium):
    """Files of recordings. Rows of a table may have the begin and the end of a part, in seconds."""

    def item(self, source: Source, name: str, place: str, label: str, cells: Mapping[str, Any]) -> RecordingItem:
        """Raises UnmaskError for a begin or an end that is not a number of seconds."""
        return RecordingItem(source, name, place, label, *span_in(cells, place))


RECORDINGS = RecordingMedium(
    "recording",
    SUFFIXES,
    ".wav or .flac",
    columns=("recording", "audio", "wav", "speech", "sound", "audio_path", "wav_path", *FILES),
    labels=("label", "class", "category", "target", "language", "locale", "speaker"),
)


def items_of(
    path: Path, *, recording: str | None = None, label: str | None = None, encoding: str | None = None
) -> Items[Any]:
    """The recordings of a folder, of a table with files or bytes, or of a manifest: of Kaldi (`wav.scp`: name and path
    in a line) or of fairseq (a folder in the first line, then path and number of samples).

    In a folder, the label is the name of the subfolder, if all recordings are in subfolders. A table needs no labels.

    recording, label  columns of a table; None: the first with a usual name

    Raises UnmaskError, now or while reading, for data without recordings, and for a value of a table that is none.
    """
    if path.is_dir():
        return RECORDINGS.of_folder(path)
    if not (path.is_file() or on_hub(path)):
        raise UnmaskError(f"There is no file or folder {path}.")
    if is_manifest(path):
        return Items(path, _OfManifest(path, encoding))
    return RECORDINGS.of_table(path, recording, label, encoding)


def holds_recordings(path: Path, *, recording: str | None = None, column: str = "text") -> bool:
    """Whether the data are recordings: a folder in which at least half of the files are, a manifest, or a table with a
    column of recordings, even beside one of texts, which is named `column`: their transcripts."""
    if path.is_dir():
        return RECORDINGS.fills(path)
    return (
        path.suffix.lower() in SUFFIXES
        or is_manifest(path)
        or RECORDINGS.in_table(path, recording, column, beside=True)
    )


def is_manifest(path: Path) -> bool:
    """Whether a file is a manifest of Kaldi, by its suffix, or of fairseq, by its first line."""
    if path.suffix.lower() == ".scp":
        return path.is_file()
    if path.suffix.lower() not in (".tsv", ".txt", ".manifest") or not path.is_file():
        return False
    try:
        first = next((line for _, line in lines(path)), "").rstrip("\r\n")
    except UnmaskError:  # the reader of tables says what is wrong
        return False
    return "\t" not in first and "/" in first and os.path.isdir(first)  # a `Path` raises errors for a long line


@dataclass(frozen=True)
class _OfManifest:
    path: Path
    encoding: str | None

    def __iter__(self) -> Iterator[RecordingItem]:
        numbered = lines(self.path, encoding=self.encoding)
        kaldi = self.path.suffix.lower() == ".scp"
        root = self.path.parent if kaldi else Path(next(numbered)[1].strip())
        for number, line in numbered:
            if not line.strip():
                continue
            place, text = f"{self.path}:{number}", line.rstrip("\r\n")
            name, _, given = text.partition(" " if " " in text else "\t") if kaldi else (text.split("\t")[0],) * 3
            given = given.strip()
            if not given or given.endswith("|"):
                raise UnmaskError(f"{place}: give a name and the path of a file; commands in a manifest are not run.")
            yield RecordingItem(root / given, visible(name), place)

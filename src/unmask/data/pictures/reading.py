"""Labelled pictures: a folder with a subfolder for each class, or a table with paths.

`data.files.tables` reads the table, which has a column of paths, or of the bytes of pictures (Parquet).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.tables import guess_format, read_table
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.pictures.decoding import SUFFIXES, decode
from unmask.errors import UnmaskError, plural

PICTURE_COLUMNS = ("picture", "image", "img", "path", "file", "file_name", "filename", "pixels")
LABEL_COLUMNS = ("label", "class", "category", "target", "fine_label", "coarse_label")
BYTES, PATH = ".bytes", ".path"  # parts of a column in data sets of the Hugging Face hub
SHOWN = 3  # number of names in a note


@dataclass(frozen=True, slots=True)
class Picture(Row):
    """A picture with its label: the path of a file, or its bytes."""

    source: Path | bytes = field(default=b"", compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """Empty: a picture has no text."""
        return ()

    @property
    def key(self) -> tuple[str, ...]:
        """A hash of the bytes of the file: copies of a file under other names are the same row."""
        content = self.source if isinstance(self.source, bytes) else _content(self.source)
        return (hashlib.blake2b(content, digest_size=16).hexdigest(),)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All pictures of the row."""
        return (self,)

    def pixels(self, channels: int = 3) -> np.ndarray:
        """[H, W, C] uint8. Raises UnmaskError, which names the row, if the picture cannot be decoded."""
        try:
            return decode(self.source, channels)
        except UnmaskError as error:
            if isinstance(self.source, Path) or not self.place:
                raise
            raise UnmaskError(f"{self.place}: {error}") from None


@dataclass(frozen=True, slots=True)
class PicturePair(Picture):
    """Two pictures, which are compared: `source` and `other`, each the path of a file, or its bytes."""

    other: Path | bytes = field(default=b"", compare=False)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return self, Picture(place=self.place, source=self.other)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None


def files_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """The pictures of a folder and its subfolders, and the other files, both sorted by name, without hidden files."""
    found: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            (found if path.suffix.lower() in SUFFIXES else others).append(path)
    return found, others


def pictures_in(folder: Path) -> list[Path]:
    """The pictures of a folder and its subfolders, sorted by name. Raises UnmaskError if there are none."""
    if not folder.is_dir():
        raise UnmaskError(f"There is no folder of pictures {folder}.")
    found, _ = files_in(folder)
    if not found:
        raise UnmaskError(f"{folder} has no pictures: files such as .jpg or .png, in it or in folders in it.")
    return found


def by_class(folder: Path) -> Dataset:
    """The pictures of a folder, with the names of its subfolders as labels; deeper folders belong to the class of the
    subfolder. The order is the first picture of each class, then the second ones, and so on.

    Raises UnmaskError if there are no pictures, or pictures outside of a subfolder.
    """
    found, others = files_in(folder)
    loose = [path for path in found if path.parent == folder]
    if loose:
        raise UnmaskError(
            f"{folder} must have a subfolder of pictures for each class, but {loose[0].name} is in none of "
            f"them ({plural(len(loose), 'such picture')})."
        )
    if not found:
        raise UnmaskError(
            f"{folder} has no pictures: it must have a subfolder for each class, with files such as .jpg or .png."
        )
    counts, turns = Counter[str](), []
    for path in found:
        label = path.relative_to(folder).parts[0]
        turns.append((counts[label], Picture(label=label, place=str(path), source=path)))
        counts[label] += 1
    rows = tuple(row for _, row in sorted(turns, key=lambda turn: turn[0]))  # the first rows cover all classes
    known = counts.keys()
    folders = [one.name for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]
    empty = [name for name in folders if name not in known]
    notes = []
    if others:
        notes.append(f"Skipped {plural(len(others), 'file')} that {_are(others)} no pictures: {_named(others)}")
    if empty:
        notes.append(f"Folders without a picture: {', '.join(empty[:SHOWN])}{'...' if len(empty) > SHOWN else ''}")
    return Dataset(folder, rows, {"picture": "files", "label": "folders"}, tuple(notes))


def _are(others: list[Path]) -> str:
    return "is" if len(others) == 1 else "are"


def _named(paths: Iterable[Path]) -> str:
    kinds = Counter(path.suffix.lower() or path.name for path in paths)
    return ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common(SHOWN))


def of_table(
    path: Path, *, picture: str | None = None, label: str | None = None, encoding: str | None = None
) -> Dataset:
    """The pictures of a table with paths, relative to its folder, or with bytes.

    picture, label  names of the columns; None: the first column with a usual name

    Raises UnmaskError, which names the row and the column, if a value is missing, empty or of another type.
    """
    table = read_table(path, guess_format(path, encoding=encoding), encoding=encoding)
    nested = {name.removesuffix(BYTES) for name in table.columns if name.endswith(BYTES)}
    pictures = _column([*table.columns, *nested], picture, PICTURE_COLUMNS, "pictures", path)
    labels = _column(table.columns, label, LABEL_COLUMNS, "labels", path)
    rows = []
    for number, cells in table.rows:
        place, name = f"{path}:{number}", cells.get(labels)
        if name is None or not str(name).strip():
            raise UnmaskError(f"{place}: the column '{labels}' is empty; every picture needs a label.")
        given = cells.get(pictures) or cells.get(pictures + BYTES) or cells.get(pictures + PATH)
        source = _source(given, path.parent, place)
        rows.append(Picture(label=str(name).strip(), place=place, source=source))
    return Dataset(path, tuple(rows), {"picture": pictures, "label": labels})


def _column(names: Iterable[str], asked: str | None, usual: Iterable[str], what: str, path: Path) -> str:
    names = list(names)
    if asked is not None and asked not in names:
        raise UnmaskError(f"{path} has no column '{asked}'; it has {', '.join(names)}.")
    found = asked or next((name for name in usual if name in names), None)
    if found is None:
        raise UnmaskError(f"{path} has no column of {what} with a usual name ({', '.join(usual)}); give its name.")
    return found


def _source(value: Any, folder: Path, place: str) -> Path | bytes:
    """The content of a cell: bytes, or a path."""
    if isinstance(value, bytes) and value:
        return value
    if isinstance(value, str) and value.strip():
        return folder / value
    raise UnmaskError(f"{place}: there is no picture; give the path of a file, or its bytes.")

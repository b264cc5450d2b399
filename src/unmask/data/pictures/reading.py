"""Labelled pictures: a folder with a folder for each class, or a table that names the files.

A table is one of `data.files.tables`, with a column of paths, or of the bytes of pictures (Parquet).
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
BYTES, PATH = ".bytes", ".path"  # parts of a column, as the datasets of the Hugging Face hub have it
SHOWN = 3  # files that a note names


@dataclass(frozen=True, slots=True)
class Picture(Row):
    """A picture with its label: the path of a file, or its bytes."""

    source: Path | bytes = field(default=b"", compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """None: it is no text."""
        return ()

    @property
    def key(self) -> tuple[str, ...]:
        """The bytes of the file: the same picture under another name is the same row."""
        content = self.source if isinstance(self.source, bytes) else _content(self.source)
        return (hashlib.blake2b(content, digest_size=16).hexdigest(),)

    def pixels(self, channels: int = 3) -> np.ndarray:
        """[H, W, C] uint8. Raises UnmaskError, which names the row, for what cannot be decoded."""
        try:
            return decode(self.source, channels)
        except UnmaskError as error:
            if isinstance(self.source, Path) or not self.place:
                raise
            raise UnmaskError(f"{self.place}: {error}") from None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None


def files_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """The pictures of a folder and of the folders in it, and the files that are none, by their names; hidden ones are
    passed over."""
    found: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            (found if path.suffix.lower() in SUFFIXES else others).append(path)
    return found, others


def by_class(folder: Path) -> Dataset:
    """The pictures of a folder, each with the name of the folder in it as its label; deeper folders belong to the class
    that they are in. One of each class comes first, then the second ones, and so on.

    Raises UnmaskError where there are no pictures, or pictures that lie in no class.
    """
    found, others = files_in(folder)
    loose = [path for path in found if path.parent == folder]
    if loose:
        raise UnmaskError(
            f"{folder} must hold a folder of pictures for each class, and {loose[0].name} lies in none of "
            f"them ({plural(len(loose), 'such picture')})."
        )
    if not found:
        raise UnmaskError(
            f"{folder} has no pictures: it must hold a folder for each class, with files such as .jpg or .png in it."
        )
    counts, turns = Counter[str](), []
    for path in found:
        label = path.relative_to(folder).parts[0]
        turns.append((counts[label], Picture(label=label, place=str(path), source=path)))
        counts[label] += 1
    rows = tuple(row for _, row in sorted(turns, key=lambda turn: turn[0]))  # the first ones are of all classes
    known = counts.keys()
    folders = [one.name for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]
    empty = [name for name in folders if name not in known]
    notes = []
    if others:
        notes.append(f"{plural(len(others), 'file')} passed over that {_are(others)} no pictures: {_named(others)}")
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
    """The pictures that a table names, relative to its folder, or holds as bytes.

    picture, label  names of the columns; without them, the usual ones are looked for

    Raises UnmaskError that names the row and the column for what is missing, empty or of another type.
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
        raise UnmaskError(f"{path} has no column of {what} with a usual name ({', '.join(usual)}): name it.")
    return found


def _source(value: Any, folder: Path, place: str) -> Path | bytes:
    """What a cell holds: bytes, or a path."""
    if isinstance(value, bytes) and value:
        return value
    if isinstance(value, str) and value.strip():
        return folder / value
    raise UnmaskError(f"{place}: there is no picture; give the path of a file, or its bytes.")

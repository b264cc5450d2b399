"""Items: the pictures of a folder, a table or an IDX file, one after another, with their names and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.data.files.tables import format_by_name, guess_format, rows
from unmask.data.pictures.decoding import SUFFIXES, Source
from unmask.data.pictures.idx import IdxPictures, is_idx
from unmask.errors import UnmaskError, plural

PICTURE_COLUMNS = ("picture", "image", "img", "path", "file", "file_name", "filename", "pixels")
LABEL_COLUMNS = ("label", "class", "category", "target", "fine_label", "coarse_label")
BYTES, PATH = ".bytes", ".path"  # parts of a column in data sets of the Hugging Face hub
SHOWN = 3  # number of names in a note
SPLITS = frozenset({"train", "dev", "val", "valid", "validation", "test"})
"""Names of folders that are more likely parts of the data than classes, if there are no others."""


@dataclass(frozen=True, slots=True)
class Item:
    """One picture: its source, its name within the data, its place for messages, and its label, "" without one."""

    source: Source
    name: str
    place: str
    label: str = ""


@dataclass(frozen=True)
class Items:
    """The items of some data.

    found    reads them, from the first at every call
    count    their number, if it is known before they are read
    notes    sentences on what is left out
    decoded  whether they need no decoding
    """

    path: Path
    found: Iterable[Item]
    count: int | None = None
    notes: tuple[str, ...] = ()
    decoded: bool = False

    def __iter__(self) -> Iterator[Item]:
        return iter(self.found)


def items_of(path: Path, *, picture: str | None = None, label: str | None = None, encoding: str | None = None) -> Items:
    """The pictures of a folder, of a table with files or bytes, or of an IDX file.

    In a folder, the label is the name of the subfolder, if all pictures are in subfolders. A table needs no labels.

    picture, label  columns of a table; None: the first with a usual name

    Raises UnmaskError, now or while reading, for data without pictures, and for a value of a table that is none.
    """
    if path.is_dir():
        return _of_folder(path)
    if not path.is_file():
        raise UnmaskError(f"There is no file or folder {path}.")
    if is_idx(path):
        idx = IdxPictures(path)
        labels = [""] * len(idx) if idx.labels is None else list(map(str, idx.labels.tolist()))
        return Items(path, _OfIdx(idx, labels), len(idx), decoded=True)
    return Items(path, _OfTable(path, picture, label, encoding))


def holds_pictures(path: Path, *, picture: str | None = None, column: str = "text") -> bool:
    """Whether the data are pictures: a folder in which at least half of the files are, an IDX file, or a table with a
    column of pictures and no column of texts, which is named `column`."""
    if path.is_dir():
        found, others = files_in(path)
        return bool(found) and len(found) >= len(others)
    if is_idx(path) or path.suffix.lower() in SUFFIXES:
        return True
    if format_by_name(path) in (None, "conll") or not path.is_file():
        return False
    try:
        names = next(rows(path, format_by_name(path) or ""))[1].keys()
    except (UnmaskError, StopIteration):  # the reader of texts says what is wrong
        return False
    return column not in names and any(one in names for one in _nested(picture, PICTURE_COLUMNS))


def _nested(asked: str | None, usual: Iterable[str]) -> Iterator[str]:
    for name in usual if asked is None else (asked,):
        yield from (name, name + BYTES, name + PATH)


# ------------------------------------------------------------------------------------------------ folders


def files_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """The pictures of a folder and its subfolders, and the other files, both sorted by name, without hidden files."""
    found: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            (found if path.suffix.lower() in SUFFIXES else others).append(path)
    return found, others


def left_out(folder: Path, others: list[Path], labels: Iterable[str]) -> tuple[str, ...]:
    """Sentences on the files of a folder that are no pictures, and on its subfolders that are not among the labels."""
    known = set(labels)
    folders = [one.name for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]
    empty = [visible(name) for name in folders if name not in known]
    notes = []
    if others:
        are = "is" if len(others) == 1 else "are"
        notes.append(f"Skipped {plural(len(others), 'file')} that {are} no pictures: {_suffixes(others)}")
    if empty and known:
        notes.append(f"Folders without a picture: {', '.join(empty[:SHOWN])}{'...' if len(empty) > SHOWN else ''}")
    return tuple(notes)


def class_of(path: Path, folder: Path) -> str:
    """The name of the subfolder of a picture; deeper folders belong to it. Raises UnmaskError for a name that cannot be
    printed, because it could not be saved as a label either."""
    name = path.relative_to(folder).parts[0]
    if not name.isprintable():
        raise UnmaskError(f"The folder {visible(str(folder / name))} has a name that cannot be printed; rename it.")
    return name


def visible(name: str) -> str:
    """A name with the characters that cannot be printed, such as those of undecodable names, as Python escapes."""
    return name if name.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def _of_folder(folder: Path) -> Items:
    found, others = files_in(folder)
    if not found:
        raise UnmaskError(f"{folder} has no pictures: files such as .jpg or .png, in it or in its subfolders.")
    loose = [path for path in found if path.parent == folder]
    labels = [class_of(path, folder) if not loose else "" for path in found]
    notes = left_out(folder, others, labels if not loose else ())
    if (names := set(labels)) <= SPLITS:
        shown = " and ".join(sorted(names))
        notes += (f"{shown} are taken as classes: for a corpus of one part, give {folder / min(names)} or another",)
    if loose and len(loose) < len(found):
        first = visible(loose[0].name)
        notes += (f"There are no labels: {len(loose):,} of {len(found):,} pictures are in no subfolder ({first})",)
    return Items(folder, _OfFolder(folder, found, labels), len(found), notes)


def _suffixes(paths: Iterable[Path]) -> str:
    kinds = Counter(visible(path.suffix.lower() or path.name) for path in paths)
    return ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common(SHOWN))


@dataclass(frozen=True)
class _OfFolder:
    folder: Path
    paths: list[Path]
    labels: list[str]

    def __iter__(self) -> Iterator[Item]:
        for path, label in zip(self.paths, self.labels, strict=True):
            yield Item(path, str(path.relative_to(self.folder)), visible(str(path)), label)


# ------------------------------------------------------------------------------------------------ tables and IDX


@dataclass(frozen=True)
class _OfTable:
    path: Path
    picture: str | None
    label: str | None
    encoding: str | None

    def __iter__(self) -> Iterator[Item]:
        format = guess_format(self.path, encoding=self.encoding)
        pictures = labels = None
        for number, cells in rows(self.path, format, encoding=self.encoding):
            if pictures is None:  # columns are those of the first row
                names = {name.removesuffix(BYTES).removesuffix(PATH): None for name in cells} | dict.fromkeys(cells)
                pictures = picture_column(names, self.picture, self.path)
                asked = self.label is not None or any(name in names for name in LABEL_COLUMNS)
                labels = label_column(cells, self.label, self.path) if asked else None
            place = f"{self.path}:{number}"
            source = source_in(cells, pictures, self.path.parent, place)
            name = str(cells.get(pictures)) if isinstance(source, Path) else f"{self.path.name}:{number}"
            yield Item(source, name, place, "" if labels is None else label_in(cells, labels, place))


def picture_column(names: Iterable[str], asked: str | None, path: Path) -> str:
    """The column of pictures. Raises UnmaskError if there is none with a usual name, or with the one asked for."""
    return _column(names, asked, PICTURE_COLUMNS, "pictures", path)


def label_column(names: Iterable[str], asked: str | None, path: Path) -> str:
    """The column of labels. Raises UnmaskError if there is none with a usual name, or with the one asked for."""
    return _column(names, asked, LABEL_COLUMNS, "labels", path)


def label_in(cells: Any, column: str, place: str) -> str:
    """The label of a row. Raises UnmaskError if it is empty."""
    value = cells.get(column)
    if value is None or not str(value).strip():
        raise UnmaskError(f"{place}: the column '{column}' is empty; every picture needs a label.")
    return str(value).strip()


def source_in(cells: Any, column: str, folder: Path, place: str) -> Path | bytes:
    """The picture of a row: bytes, or a path relative to the folder of the table. Raises UnmaskError without one."""
    value = cells.get(column) or cells.get(column + BYTES) or cells.get(column + PATH)
    if isinstance(value, bytes) and value:
        return value
    if isinstance(value, str) and value.strip():
        return folder / value
    raise UnmaskError(f"{place}: there is no picture; give the path of a file, or its bytes.")


def _column(names: Iterable[str], asked: str | None, usual: Iterable[str], what: str, path: Path) -> str:
    names = list(names)
    if asked is not None and asked not in names:
        raise UnmaskError(f"{path} has no column '{asked}'; it has {', '.join(names)}.")
    found = asked or next((name for name in usual if name in names), None)
    if found is None:
        raise UnmaskError(f"{path} has no column of {what} with a usual name ({', '.join(usual)}); give its name.")
    return found


@dataclass(frozen=True)
class _OfIdx:
    pictures: IdxPictures
    labels: list[str]

    def __iter__(self) -> Iterator[Item]:
        for number, label in enumerate(self.labels):
            yield Item(self.pictures[number], str(number), f"{self.pictures.path}:{number}", label)

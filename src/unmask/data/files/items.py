"""Items: the pictures or recordings of a folder or a table, one after another, with their names and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from unmask.data.files.tables import format_by_name, guess_format, on_hub, rows
from unmask.errors import UnmaskError, plural

BYTES, PATH = ".bytes", ".path"  # parts of a column in data sets of the Hugging Face hub
FILES = ("path", "file", "file_name", "filename")
"""Names of columns that have paths of any kind."""
SHOWN = 3  # number of names in a note
SPLITS = frozenset({"train", "dev", "val", "valid", "validation", "test"})
"""Names of folders that are more likely parts of the data than classes, if there are no others."""

One = TypeVar("One", bound="Item")


@dataclass(frozen=True, slots=True)
class Item:
    """One picture or recording: its source, its name within the data, its place for messages, and its label, ""
    without one."""

    source: Any
    name: str
    place: str
    label: str = ""

    @property
    def size(self) -> int:
        """Bytes of the files that are decoded for it; 0 if there is none, which decoding reports."""
        if isinstance(self.source, bytes):
            return len(self.source)
        try:
            return self.source.stat().st_size if isinstance(self.source, Path) else 0
        except OSError:
            return 0


@dataclass(frozen=True)
class Items(Generic[One]):
    """The items of some data.

    found    reads them, from the first at every call
    count    their number, if it is known before they are read
    notes    sentences on what is left out
    decoded  whether they need no decoding
    """

    path: Path
    found: Iterable[One]
    count: int | None = None
    notes: tuple[str, ...] = ()
    decoded: bool = False

    def __iter__(self) -> Iterator[One]:
        return iter(self.found)


@dataclass(frozen=True)
class Medium:
    """Files of a kind: how they are recognised, and what messages call them.

    noun      one of them: "picture"
    suffixes  of their names
    usual     suffixes that messages name: ".jpg or .png"
    columns   usual names of the column of a table that has paths or bytes; those in FILES are recognised by the suffix
              of the first path
    labels    usual names of the column of labels
    """

    noun: str
    suffixes: frozenset[str]
    usual: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]

    def item(self, source: Path | bytes, name: str, place: str, label: str, cells: Mapping[str, Any]) -> Item:
        """An item; `cells` is its row, empty in a folder."""
        return Item(source, name, place, label)

    def is_one(self, path: Path) -> bool:
        """Whether a file is an item, by its name, and no table of some."""
        return path.suffix.lower() in self.suffixes

    # -- folders

    def files_in(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """The files of a folder and its subfolders that are of this kind, and the other ones, both sorted by name,
        without hidden files."""
        found: list[Path] = []
        others: list[Path] = []
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
                (found if path.suffix.lower() in self.suffixes else others).append(path)
        return found, others

    def fills(self, folder: Path) -> bool:
        """Whether at least half of the files of a folder are of this kind."""
        found, others = self.files_in(folder)
        return bool(found) and len(found) >= len(others)

    def left_out(self, folder: Path, others: list[Path], labels: Iterable[str]) -> tuple[str, ...]:
        """Sentences on the other files of a folder, and on its subfolders that are not among the labels."""
        known = set(labels)
        folders = [one.name for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]
        empty = [visible(name) for name in folders if name not in known]
        notes = []
        if others:
            are = "is" if len(others) == 1 else "are"
            notes.append(f"Skipped {plural(len(others), 'file')} that {are} no {self.noun}s: {_suffixes(others)}")
        if empty and known:
            shown = f"{', '.join(empty[:SHOWN])}{'...' if len(empty) > SHOWN else ''}"
            notes.append(f"Folders without a {self.noun}: {shown}")
        return tuple(notes)

    def of_folder(self, folder: Path) -> Items[Any]:
        """The items of a folder; the label is the name of the subfolder, if all files are in subfolders. Raises
        UnmaskError for a folder without files of this kind."""
        found, others = self.files_in(folder)
        if not found:
            raise UnmaskError(f"{folder} has no {self.noun}s: files such as {self.usual}, in it or in its subfolders.")
        loose = [path for path in found if path.parent == folder]
        labels = [class_of(path, folder) if not loose else "" for path in found]
        notes = self.left_out(folder, others, labels if not loose else ())
        if (names := set(labels)) <= SPLITS:
            shown = " and ".join(sorted(names))
            notes += (f"{shown} are taken as classes: for a corpus of one part, give {folder / min(names)} or another",)
        if loose and len(loose) < len(found):
            few = f"{len(loose):,} of {len(found):,} {self.noun}s"
            notes += (f"There are no labels: {few} are in no subfolder ({visible(loose[0].name)})",)
        return Items(folder, _OfFolder(self, folder, found, labels), len(found), notes)

    # -- tables

    def of_table(self, path: Path, column: str | None, label: str | None, encoding: str | None) -> Items[Any]:
        """The items of a table with paths or bytes, and labels if it has a column of them; None: the first column with
        a usual name. Raises UnmaskError for a file of this kind, and, while reading, for a value that is none."""
        if self.is_one(path):
            raise UnmaskError(f"{path} is one {self.noun}: give its folder, or a table that names several.")
        return Items(path, _OfTable(self, path, column, label, encoding))

    def in_table(self, path: Path, asked: str | None, texts: str, *, beside: bool = False) -> bool:
        """Whether a file is a table with a column of this kind: the column `asked`, or one with a usual name. A column
        in FILES, and any column `beside` a column `texts`, has to have paths with the suffixes of this kind, or
        bytes; without `beside`, a table with a column `texts` has texts. True for a file of this kind, which `of_table`
        refuses."""
        if self.is_one(path) and path.is_file():
            return True
        if format_by_name(path) in (None, "conll") or not (path.is_file() or on_hub(path)):
            return False
        try:
            cells = next(rows(path, format_by_name(path) or ""))[1]
        except (UnmaskError, StopIteration):  # the reader of texts says what is wrong
            return False
        names = dict.fromkeys(name.removesuffix(BYTES).removesuffix(PATH) for name in cells) | dict.fromkeys(cells)
        usual = self.columns if asked is None else (asked,)
        found = next((name for name in usual if name in names), None)
        if found is None or (texts in cells and not beside):
            return False
        if found == asked or (found not in FILES and texts not in cells):
            return True
        values = [cells.get(found + part) for part in ("", BYTES, PATH)]
        return any(isinstance(one, bytes) or Path(str(one)).suffix.lower() in self.suffixes for one in values)

    def column(self, names: Iterable[str], asked: str | None, path: Path) -> str:
        """The column of paths or bytes. Raises UnmaskError if there is none with a usual name, or the one asked for."""
        return _column(names, asked, self.columns, self.noun, path)

    def label_column(self, names: Iterable[str], asked: str | None, path: Path) -> str:
        """The column of labels. Raises UnmaskError if there is none with a usual name, or with the one asked for."""
        return _column(names, asked, self.labels, "label", path)

    def label_in(self, cells: Mapping[str, Any], column: str, place: str) -> str:
        """The label of a row. Raises UnmaskError if it is empty."""
        value = cells.get(column)
        if value is None or not str(value).strip():
            raise UnmaskError(f"{place}: the column '{column}' is empty; every {self.noun} needs a label.")
        return str(value).strip()

    def source_in(self, cells: Mapping[str, Any], column: str, folder: Path, place: str) -> Path | bytes:
        """Bytes, or a path relative to the folder of the table. Raises UnmaskError for a row without one."""
        value = cells.get(column) or cells.get(column + BYTES) or cells.get(column + PATH)
        if isinstance(value, bytes) and value:
            return value
        if isinstance(value, str) and value.strip():
            return folder / value
        raise UnmaskError(f"{place}: there is no {self.noun}; give the path of a file, or its bytes.")


def class_of(path: Path, folder: Path) -> str:
    """The name of the subfolder of a file; deeper folders belong to it. Raises UnmaskError for a name that cannot be
    printed, because it could not be saved as a label either."""
    name = path.relative_to(folder).parts[0]
    if not name.isprintable():
        raise UnmaskError(f"The folder {visible(str(folder / name))} has a name that cannot be printed; rename it.")
    return name


def visible(name: str) -> str:
    """A name with the characters that cannot be printed, such as those of undecodable names, as Python escapes."""
    return name if name.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def shares(counts: Mapping[str, int], most: int = 10) -> str:
    """The most frequent of some names with their counts, in one line."""
    found = sorted(counts.items(), key=lambda one: -one[1])
    rest = len(found) - most
    return ", ".join(f"{visible(name)} ({n:,})" for name, n in found[:most]) + (
        f", and {rest:,} more" if rest > 0 else ""
    )


def _suffixes(paths: Iterable[Path]) -> str:
    kinds = Counter(visible(path.suffix.lower() or path.name) for path in paths)
    return ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common(SHOWN))


def _column(names: Iterable[str], asked: str | None, usual: Iterable[str], role: str, path: Path) -> str:
    names = list(names)
    if asked is not None and asked not in names:
        raise UnmaskError(f"{path} has no column '{asked}'; it has {', '.join(names)}.")
    found = asked or next((name for name in usual if name in names), None)
    if found is None:
        raise UnmaskError(
            f"{path} has no column of {role}s with a usual name ({', '.join(usual)}): name the column by --{role}."
        )
    return found


@dataclass(frozen=True)
class _OfFolder:
    medium: Medium
    folder: Path
    paths: list[Path]
    labels: list[str]

    def __iter__(self) -> Iterator[Item]:
        for path, label in zip(self.paths, self.labels, strict=True):
            yield self.medium.item(path, str(path.relative_to(self.folder)), visible(str(path)), label, {})


@dataclass(frozen=True)
class _OfTable:
    medium: Medium
    path: Path
    column: str | None
    label: str | None
    encoding: str | None

    def __iter__(self) -> Iterator[Item]:
        medium, format = self.medium, guess_format(self.path, encoding=self.encoding)
        column = labels = None
        for number, cells in rows(self.path, format, encoding=self.encoding):
            if column is None:  # columns are those of the first row
                names = {name.removesuffix(BYTES).removesuffix(PATH): None for name in cells} | dict.fromkeys(cells)
                column = medium.column(names, self.column, self.path)
                asked = self.label is not None or any(name in names for name in medium.labels)
                labels = medium.label_column(cells, self.label, self.path) if asked else None
            place = f"{self.path}:{number}"
            source = medium.source_in(cells, column, self.path.parent, place)
            name = str(cells.get(column)) if isinstance(source, Path) else f"{self.path.name}:{number}"
            given = "" if labels is None else medium.label_in(cells, labels, place)
            yield medium.item(source, name, place, given, cells)

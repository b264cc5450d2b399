"""Items of pictures: those of a folder, a table or an IDX file, one after another, with their names and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.data.files.items import Item, Items, Medium
from unmask.data.files.tables import on_hub
from unmask.data.pictures.decoding import SUFFIXES
from unmask.data.pictures.idx import IdxPictures, is_idx
from unmask.errors import UnmaskError

PICTURES = Medium(
    "picture",
    SUFFIXES,
    ".jpg or .png",
    columns=("picture", "image", "img", "path", "file", "file_name", "filename", "pixels"),
    labels=("label", "class", "category", "target", "fine_label", "coarse_label"),
)


def items_of(
    path: Path, *, picture: str | None = None, label: str | None = None, encoding: str | None = None
) -> Items[Any]:
    """The pictures of a folder, of a table with files or bytes, or of an IDX file.

    In a folder, the label is the name of the subfolder, if all pictures are in subfolders. A table needs no labels.

    picture, label  columns of a table; None: the first with a usual name

    Raises UnmaskError, now or while reading, for data without pictures, and for a value of a table that is none.
    """
    if path.is_dir():
        return PICTURES.of_folder(path)
    if not (path.is_file() or on_hub(path)):
        raise UnmaskError(f"There is no file or folder {path}.")
    if is_idx(path):
        idx = IdxPictures(path)
        labels = [""] * len(idx) if idx.labels is None else list(map(str, idx.labels.tolist()))
        return Items(path, _OfIdx(idx, labels), len(idx), decoded=True)
    return PICTURES.of_table(path, picture, label, encoding)


def holds_pictures(path: Path, *, picture: str | None = None, column: str = "text") -> bool:
    """Whether the data are pictures: a folder in which at least half of the files are, an IDX file, or a table with a
    column of pictures and no column of texts, which is named `column`."""
    if path.is_dir():
        return PICTURES.fills(path)
    if is_idx(path) or path.suffix.lower() in SUFFIXES:
        return True
    return PICTURES.in_table(path, picture, column)


@dataclass(frozen=True)
class _OfIdx:
    pictures: IdxPictures
    labels: list[str]

    def __iter__(self) -> Iterator[Item]:
        for number, label in enumerate(self.labels):
            yield Item(self.pictures[number], str(number), f"{self.pictures.path}:{number}", label)

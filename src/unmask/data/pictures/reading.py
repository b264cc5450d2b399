"""Labelled pictures: a folder with a subfolder for each class, a table of paths or bytes, a corpus, or an IDX file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unmask.data.files.copies import copies_note, copies_of
from unmask.data.files.corpora import format_of
from unmask.data.files.damage import damaged
from unmask.data.files.items import BYTES, SHOWN, class_of, visible
from unmask.data.files.tables import guess_format, read_table
from unmask.data.labelled.dataset import Dataset, in_turns
from unmask.data.labelled.rows import Row
from unmask.data.pictures.corpus import PictureCorpus
from unmask.data.pictures.decoding import Source, decode, digest_of
from unmask.data.pictures.idx import IdxPictures, is_idx
from unmask.data.pictures.items import PICTURES
from unmask.errors import UnmaskError, plural


@dataclass(frozen=True, slots=True)
class Picture(Row):
    """A picture with its label: the path of a file, its bytes, or the handle of a picture of a corpus."""

    source: Source = field(default=b"", compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """Empty: a picture has no text."""
        return ()

    @property
    def key(self) -> tuple[str, ...]:
        """A hash of the bytes of the file: copies of a file under other names, and in a corpus, are the same row."""
        return (digest_of(self.source),)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All pictures of the row."""
        return (self,)

    def pixels(self, channels: int = 3) -> np.ndarray:
        """[H, W, C] uint8. Raises UnmaskError, which names the row, if the picture cannot be decoded."""
        try:
            return decode(self.source, channels)
        except UnmaskError as error:
            if not isinstance(self.source, bytes) or not self.place:
                raise
            raise UnmaskError(f"{self.place}: {error}") from None


@dataclass(frozen=True, slots=True)
class PicturePair(Picture):
    """Two pictures, which are compared: `source` and `other`, as in `Picture`."""

    other: Source = field(default=b"", compare=False)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return self, Picture(place=self.place, source=self.other)


def pixels_of(rows: Sequence[Row], channels: int = 3) -> Iterator[np.ndarray]:
    """The pixels [H, W, C] of each row. Raises UnmaskError, after the last row, if some cannot be decoded: it counts
    them, names the first, and says how to leave them out."""
    broken = []
    for row in rows:
        assert isinstance(row, Picture)
        try:
            yield row.pixels(channels)
        except UnmaskError as error:
            broken.append(str(error))
    check_readable(broken, len(rows))


def check_readable(reasons: Sequence[str], count: int) -> None:
    """Raises UnmaskError for labelled pictures that cannot be decoded, if there are any.

    reasons  of each of them
    count    number of all pictures
    """
    if reasons and count == 1:
        raise UnmaskError(reasons[0])
    if reasons:
        raise UnmaskError(
            f"{damaged(reasons, count, 'picture')} Remove them, or build a corpus, which leaves them out: "
            "unmask corpus build DATA --out FOLDER."
        )


def labelled(
    path: Path, *, picture: str | None = None, label: str | None = None, encoding: str | None = None
) -> Dataset:
    """The labelled pictures of a corpus, of a folder with a subfolder for each class, of a table, or of an IDX file.

    picture, label  names of the columns of a table; None: the first column with a usual name
    """
    if path.is_dir():
        return by_class(path) if format_of(path) is None else of_corpus(path)
    return of_idx(path) if is_idx(path) else of_table(path, picture=picture, label=label, encoding=encoding)


def by_class(folder: Path) -> Dataset:
    """The pictures of a folder, with the names of its subfolders as labels; deeper folders belong to the class of the
    subfolder. The order is the first picture of each class, then the second ones, and so on.

    Raises UnmaskError if there are no pictures, or pictures outside of a subfolder.
    """
    found, others = PICTURES.files_in(folder)
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
    rows = [Picture(label=class_of(path, folder), place=visible(str(path)), source=path) for path in found]
    notes = PICTURES.left_out(folder, others, {row.label for row in rows})
    return Dataset(folder, tuple(in_turns(rows)), {"picture": "files", "label": "folders"}, notes)


def of_corpus(folder: Path) -> Dataset:
    """The pictures of a corpus that was built from pictures with labels, in the order of `by_class`. Their rows hold
    handles, and no pixels.

    Raises UnmaskError for a damaged corpus, and for one without labels.
    """
    corpus = PictureCorpus(folder)
    if not corpus.labelled:
        raise UnmaskError(
            f"{folder} has pictures without labels: build it from a folder with a subfolder for each class, or from a "
            "table with labels."
        )
    rows = [
        Picture(label=corpus.label(i), place=visible(f"{folder}:{corpus.name(i)}"), source=stored)
        for i, stored in enumerate(corpus)
    ]
    return Dataset(
        folder, tuple(in_turns(rows)), {"picture": "corpus", "label": "classes"}, tuple(corpus.manifest["notes"])
    )


def of_idx(path: Path) -> Dataset:
    """The pictures of an IDX file with the labels of the file beside it, in their order. Raises UnmaskError if one of
    the two is damaged, and without labels."""
    found = IdxPictures(path)
    if found.labels is None:
        raise UnmaskError(f"{path} has no file of labels beside it, such as train-labels-idx1-ubyte.gz.")
    rows = [
        Picture(label=str(label), place=f"{path}:{i}", source=found[i]) for i, label in enumerate(found.labels.tolist())
    ]
    return Dataset(path, tuple(rows), {"picture": "idx3", "label": "idx1"})


def doubts(sets: Mapping[str, Dataset]) -> Iterator[str]:
    """Sentences on classes that a set lacks although "train" has them, and on copies of a picture within a set."""
    classes = {row.label for row in sets["train"]}
    for name, rows in sets.items():
        if lacking := sorted(classes - {row.label for row in rows}):
            shown = ", ".join(lacking[:SHOWN]) + (", ..." if len(lacking) > SHOWN else "")
            yield f"{name} has no picture of {plural(len(lacking), 'class', 'classes')}: {shown}."
        places, labels = [row.place for row in rows], [row.label for row in rows]
        for note in copies_note(copies_of(row.key for row in rows), places.__getitem__, labels.__getitem__, "picture"):
            yield f"{name}: {note}."


def of_table(
    path: Path, *, picture: str | None = None, label: str | None = None, encoding: str | None = None
) -> Dataset:
    """The pictures of a table with paths, relative to its folder, or with bytes.

    picture, label  names of the columns; None: the first column with a usual name

    Raises UnmaskError, which names the row and the column, if a value is missing, empty or of another type.
    """
    table = read_table(path, guess_format(path, encoding=encoding), encoding=encoding)
    nested = {name.removesuffix(BYTES) for name in table.columns if name.endswith(BYTES)}
    pictures = PICTURES.column([*table.columns, *nested], picture, path)
    labels = PICTURES.label_column(table.columns, label, path)
    rows = []
    for number, cells in table.rows:
        place = f"{path}:{number}"
        source = PICTURES.source_in(cells, pictures, path.parent, place)
        rows.append(Picture(label=PICTURES.label_in(cells, labels, place), place=place, source=source))
    return Dataset(path, tuple(rows), {"picture": pictures, "label": labels})

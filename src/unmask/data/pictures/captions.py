"""Captions: the processor of a model that writes a text on a picture, and pictures with their captions from a table."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.bitext.pairs import Bitext, Report
from unmask.data.files.tables import column_of, guess_format, read_table
from unmask.data.pictures.compositions import TABLE, URI
from unmask.data.pictures.decoding import decode, header
from unmask.data.pictures.items import PICTURES
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.text.splitter import Encoding, Side
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.types import Batch, Example, Kind, Unread

COLUMNS = ("caption", "text", "sentence", "description")
NO_TOKENS = "This model reads pictures, and a picture has no tokens to show."


class UnreadPicture(Unread):
    """A picture that is decoded when its batch is made.

    source  its path, or the bytes of its file
    """

    def __init__(self, source: Path | bytes, processor: ImageProcessor) -> None:
        """Raises UnmaskError for a file that is no picture, by its first bytes."""
        self.source, self.processor = source, processor
        header(source)

    def __len__(self) -> int:
        return self.processor.length

    def together(self, sources: Sequence[Any]) -> Batch:
        return self.processor.collate([one.example() for one in sources])

    def example(self) -> Example:
        """The places that the model reads. Raises UnmaskError for a damaged picture."""
        return self.processor.example(decode(self.source, self.processor.channels))

    def read(self) -> np.ndarray:
        """The picture as the model reads it, [S, S, C] uint8. Raises UnmaskError for a damaged picture."""
        example = self.example()
        assert example.signal is not None
        return self.processor.picture(example.signal[1])


class Captions(Tokenizer):
    """The processor of a model that writes a text on a picture: a source is the path of a file, or a data URI with a
    PNG file in base64. `target` is the tokenizer of the texts.

    images  the processor of the pictures
    files   whether a source may be a path
    """

    reads_texts = False

    def __init__(self, side: Side, images: ImageProcessor, *, files: bool = True) -> None:
        super().__init__(side)
        self.images, self.files = images, files
        self._target = Tokenizer(side)

    def of_requests(self) -> Captions:
        """One that reads no files of this machine."""
        return Captions(self.side, self.images, files=False)

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[Any]:
        """The picture of each source, `UnreadPicture`; an empty array for an empty one. Raises UnmaskError for a source
        that is no picture."""
        return [self._item(text.strip()) if text.strip() else np.empty(0, np.int32) for text in texts]

    def _item(self, source: str) -> UnreadPicture:
        if source.startswith(URI):
            try:
                return UnreadPicture(base64.b64decode(source.removeprefix(URI), validate=True), self.images)
            except binascii.Error:
                raise UnmaskError("The picture of a data URI must be in base64.") from None
        if not self.files:
            raise UnmaskError(f"Give a picture as a data URI, which begins with {URI}, not as the name of a file.")
        return UnreadPicture(Path(source), self.images)

    def closed(self, ids: Any, most: int) -> Any:
        """The picture, unchanged: no token follows it."""
        return ids

    def shortened(self, ids: Any, most: int) -> Any:
        """The picture, unchanged: all of it is read."""
        return ids

    def places(self, ids: Any) -> list[str]:
        """The summaries of a picture, and the row and column of each patch, from 1."""
        first = self.images.summaries
        grid = range(1, 1 + math.isqrt(self.images.length - len(first)))
        return [*(Kind(kind).name for kind in first), *(f"{row},{column}" for row in grid for column in grid)]

    def lacking(self, ids: Any) -> int:
        """The number of unknown tokens of a caption; 0 for a picture."""
        return 0 if isinstance(ids, Unread) else super().lacking(ids)

    def pieces(self, ids: Iterable[int] | np.ndarray) -> list[str]:
        """The piece of each id of a caption. Raises UnmaskError for a picture, which has no pieces."""
        if isinstance(ids, Unread):
            raise UnmaskError(NO_TOKENS)
        return super().pieces(ids)

    def encode(self, text: str, *, special: bool = True) -> Encoding:
        """Raises UnmaskError: a source has no pieces."""
        raise UnmaskError(NO_TOKENS)

    def shown(self, source: str) -> str:
        """The path; a data URI without its content."""
        return f"a picture of {len(source) * 3 // 4:,} bytes" if source.startswith(URI) else source


def holds_captions(path: Path) -> bool:
    """Whether the data are pictures with captions: a folder with captions.tsv, or a table with a column of pictures and
    one of captions."""
    table = path / TABLE if path.is_dir() else path
    return table.is_file() and PICTURES.in_table(table, None, "source") and not PICTURES.is_one(table)


def captioned(path: Path, *, columns: tuple[str, str] | None = None, encoding: str | None = None) -> Bitext:
    """The pictures, as paths, and captions of a table, or of captions.tsv in a folder. Paths are relative to the table.

    columns  of the pictures and of the captions; None: the first with a usual name

    Raises UnmaskError for a folder without captions.tsv, a table without these columns, and a row without a picture or
    a caption.
    """
    if path.is_dir() and not (path / TABLE).is_file():
        raise UnmaskError(f"{path} is a folder without {TABLE}, the table of its pictures and captions.")
    path = path / TABLE if path.is_dir() else path
    table = read_table(path, guess_format(path, encoding=encoding), encoding=encoding)
    picture, caption = columns or (None, None)
    picture = PICTURES.column(table.columns, picture, path)
    found = column_of(table.columns, COLUMNS if caption is None else [caption])
    if found is None:
        raise UnmaskError(f"{path} has no column of captions, such as {COLUMNS[0]}: name both with --columns.")
    sources, targets = [], []
    for number, cells in table.rows:
        place = f"{path}:{number}"
        source = PICTURES.source_in(cells, picture, path.parent, place)
        sources.append(URI + base64.b64encode(source).decode() if isinstance(source, bytes) else str(source))
        targets.append(" ".join(str(cells.get(found) or "").split()))
        if not targets[-1]:
            raise UnmaskError(f"{place}: the column {found} is empty; every picture needs a caption.")
    remark = f"Pictures are the column {picture}, captions {found}."
    report = Report(str(path), len(sources), remarks=(remark,))
    return Bitext(sources, targets, report, [number for number, _ in table.rows])

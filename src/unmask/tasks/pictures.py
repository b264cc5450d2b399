"""PictureTask: what tasks on labelled pictures share: how rows and requests are read, and the processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.pictures.decoding import SUFFIXES
from unmask.data.pictures.examples import PictureExamples
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture, labelled
from unmask.data.processor import Processor
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.model import ModelConfig
from unmask.tasks.encoded import Encoded
from unmask.tasks.file_forms import FileForm
from unmask.tasks.forms import Form
from unmask.tasks.rows import Rows, column
from unmask.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class PictureRows(Rows):
    """Pictures with a label: a folder with a subfolder for each class, or a table of files.

    picture   column of a table that holds the names of files, or their bytes
    label     column of a table that holds the label
    stratify  hold out the same share of each class, instead of random rows
    """

    picture: str | None = column()
    label: str | None = column()
    stratify: bool = True

    LEARNING: ClassVar[tuple[str, ...]] = (*Rows.LEARNING, "stratify")


class PictureTask(Task):
    """A task whose rows are pictures with a label."""

    row_class: ClassVar[type[Row]] = Picture
    rows_class: ClassVar[type[Rows]] = PictureRows
    folders = True
    items: ClassVar[str] = "pictures"
    rate_shares: ClassVar[tuple[float, float] | None] = (0.1, 0.1)
    rows_are = "pictures with a label"
    form: ClassVar[Form] = FileForm("picture", Picture, ending=".png")
    tokens_at_once: ClassVar[int | None] = (
        2_048  # pictures have one length: a larger batch has no padding (docs/log.md)
    )

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        return labelled(path, picture=rows.picture, label=rows.label, encoding=rows.encoding)

    @classmethod
    def processor_of(cls, loaded: Loaded[Any], owner: object) -> Processor[Any]:
        return loaded.require_processor(owner)

    @classmethod
    def new_processor(cls, config: Any) -> Processor[Any]:
        channels = (0.5,) * config.channels
        return ImageProcessor(size=config.size, mean=channels, std=channels).for_model(config)

    def check_encoded(self, encoded: Encoded) -> None:
        """Raises UnmaskError for pictures that cannot be decoded."""
        assert isinstance(encoded.examples, PictureExamples)
        encoded.examples.check()

    @classmethod
    def check_model(cls, config: ModelConfig, owner: object) -> None:
        """Raises UnmaskError for a model that does not read pictures."""
        if cls.items not in config.offers:
            raise UnmaskError(
                f"{owner} is a model that reads no pictures; take a ViT, a DeiT, a Swin, a CCT, a ResNet or a VGG."
            )

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        if path.suffix.lower() in SUFFIXES:
            return [Picture(place=str(path), source=path)]
        return None

    @classmethod
    def query(cls, row: Row) -> str:
        return row.place

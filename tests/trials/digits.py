"""Digits, a modality in one file: a processor of pictures, the names of a ViT in a folder, and a task with its rows."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from contracts_vit import Vit, encode

from unmask.config import Config, read_json
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.processor import Processor, Region
from unmask.huggingface.processors import OwnFiles
from unmask.huggingface.table import Table
from unmask.tasks import Classification, Encoded
from unmask.tasks.forms import ItemForm
from unmask.types import Example, Kind

FILE = "preprocessor_config.json"


@dataclass(frozen=True, kw_only=True)
class Pictures(Config, Processor[np.ndarray]):
    """Grey pictures [H, W] with values from 0 to `largest`, as patches of `patch` pixels a side."""

    patch: int = 2
    largest: float = 16.0
    pad = Kind.PADDING

    def example(self, item: np.ndarray) -> Example:
        return encode(item[None] / self.largest - 0.5, self.patch)

    def describe(self, item: np.ndarray, place: int) -> Region | None:
        down, right = (int(n) * self.patch for n in divmod(place - 1, item.shape[1] // self.patch))
        return Region("pixels", (right, down), (right + self.patch, down + self.patch)) if place else None

    def save(self, folder: Path, /) -> list[str]:
        (folder / FILE).write_text(json.dumps(self.to_dict()))
        return [FILE]

    @classmethod
    def load(cls, folder: Path, /) -> "Pictures":
        return cls.from_dict(read_json(folder / FILE))


FIELDS, NAMES = {name: name for name in Vit().to_dict()}, (("embedding", "embedding"), ("stack", "stack"))
TABLE = Table("digits", Vit, "", FIELDS, {}, NAMES, (), {}, {}, processor=OwnFiles(Pictures, (FILE,)))


@dataclass(frozen=True, slots=True)
class Picture(Row):
    pixels: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)), compare=False)


class Digits(Classification):
    task_name, name, rows_are, written, prompting = "digits", "digit", "pictures with a label", None, None
    row_class = Picture
    form = ItemForm("pixels", lambda value, place: Picture(place, pixels=np.reshape(value, (8, 8)).astype(float)))

    @classmethod
    def read_rows(cls, path: Path, rows: Any = None, *, scoring: bool = False) -> Dataset:
        with np.load(path, allow_pickle=False) as file:
            pixels, labels = file["pixels"], file["labels"].astype(str).tolist()
        found = tuple(Picture(f"{path}:{i}", label=label, pixels=pixels[i]) for i, label in enumerate(labels))
        return Dataset(path, found, {"picture": "pixels", "label": "labels"})

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> tuple[Row, ...]:
        return cls.read_rows(path).rows

    @classmethod
    def processor_of(cls, loaded: Any, owner: object) -> Processor[Any]:
        return loaded.require_processor(owner)

    def encode(self, rows: Any, processor: Any, length: int) -> Encoded:
        targets = [{self.name: (np.zeros(1, np.int64), self.value(row))} for row in rows]
        examples = [replace(processor.example(row.pixels), targets=targets[i]) for i, row in enumerate(rows)]
        return Encoded(examples, np.arange(len(rows)), rows, length)

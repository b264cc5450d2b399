"""PictureCorpus: decoded pictures in memory-mapped shards, with their names and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.data.files import corpora
from unmask.data.files.items import shares
from unmask.data.files.media import Chosen, Format, MediaCorpus
from unmask.data.files.shards import BYTE, MediaShard
from unmask.data.pictures.decoding import Source, of_channels
from unmask.data.pictures.folder import Pictures
from unmask.data.pictures.items import PICTURES
from unmask.data.pictures.processor import FILE, ImageProcessor
from unmask.errors import UnmaskError


class Shard(MediaShard):
    """A shard of pictures, each [H, W, C] uint8 with C = 1 if it is grey, else 3; the shapes are H, W, C."""

    noun, values, dtype, columns = "picture", "pixels", BYTE, 3

    @staticmethod
    def sizes(shapes: np.ndarray) -> np.ndarray:
        return shapes.prod(1)

    def sound(self) -> bool:
        return super().sound() and bool(np.isin(self.shapes[:, 2], (1, 3)).all())

    def read(self, number: int) -> np.ndarray:
        """[H, W, C] uint8: a view of the map."""
        return super().read(number).reshape(self.shapes[number])


@dataclass(frozen=True, slots=True)
class Stored:
    """A picture of a shard: a handle, without its pixels."""

    shard: Shard
    number: int

    @property
    def digest(self) -> str:
        """The hash of the file that the picture came from."""
        return self.shard.digests[self.number].tobytes().hex()

    def pixels(self, channels: int | None = None) -> np.ndarray:
        """[H, W, C] uint8: a view of the map, unless the picture has another number of channels."""
        return of_channels(self.shard.read(self.number), channels)


class PictureCorpus(MediaCorpus[Stored]):
    """An open corpus of pictures."""

    format = Format(corpora.PICTURES, 1, Shard)

    def handle(self, shard: Shard, number: int) -> Stored:
        return Stored(shard, number)

    @property
    def processor(self) -> ImageProcessor:
        """The processor of the folder that the corpus was built from, if it had one; else the default one."""
        return ImageProcessor.load(self.folder) if (self.folder / FILE).is_file() else ImageProcessor()

    def split(self, name: str) -> Pictures:
        """The split "train" or "heldout": see `MediaCorpus.units`."""
        return Pictures(Chosen(self, self.units(name)))

    def described(self) -> list[str]:
        return [f"  sizes      {shares(self.manifest['sizes'])}"]


def named_pictures(folder: Path) -> tuple[Sequence[Source], list[str]]:
    """The pictures of a folder and its subfolders, or of a corpus, and their names. Raises UnmaskError if there are
    none."""
    if not folder.is_dir():
        raise UnmaskError(f"There is no folder of pictures {folder}.")
    if corpora.format_of(folder) is not None:
        corpus = PictureCorpus(folder)
        return list(corpus), [corpus.name(number) for number in range(len(corpus))]
    found, _ = PICTURES.files_in(folder)
    if not found:
        raise UnmaskError(f"{folder} has no pictures: files such as .jpg or .png, in it or in folders in it.")
    return found, [str(path.relative_to(folder)) for path in found]

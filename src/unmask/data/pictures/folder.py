"""PictureFolder: the pictures of a folder, without labels, as a source for pre-training; damaged ones are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unmask.data.files.damage import Failures, first_sound
from unmask.data.files.folder import MediaFolder
from unmask.data.pictures.decoding import Source, decode, header
from unmask.data.pictures.items import PICTURES
from unmask.data.pictures.processor import FILE, ImageProcessor


@dataclass(frozen=True)
class Pictures:
    """Some pictures as a source. Unit i is the pixels of picture i, [H, W, C] uint8, decoded when it is read.

    failures  the pictures of the folder that could not be decoded so far; None: the first of them is an error
    """

    sources: Sequence[Source]
    channels: int = 3
    failures: Failures | None = None

    @property
    def cost(self) -> np.ndarray:
        """[U] int64: 1 for each picture."""
        return np.ones(len(self.sources), np.int64)

    def read(self, unit: int) -> np.ndarray:
        """Decode a picture, or the next one that can be decoded: see `first_sound`."""
        return first_sound(self._decode, unit, len(self.sources), self.failures)

    def _decode(self, unit: int) -> np.ndarray:
        return decode(self.sources[unit], self.channels)

    def of_channels(self, channels: int) -> Pictures:
        """A copy with another number of channels, and the same failures."""
        return replace(self, channels=channels)


class PictureFolder(MediaFolder[tuple[str, int, int]]):
    """The pictures of a folder and its subfolders: see `MediaFolder`. One that is too large is damaged, too."""

    def __init__(self, folder: Path | str) -> None:
        super().__init__(folder, PICTURES, header)

    @property
    def processor(self) -> ImageProcessor:
        """The processor of the folder's preprocessor_config.json; without this file, the default one."""
        return ImageProcessor.load(self.folder) if (self.folder / FILE).is_file() else ImageProcessor()

    def split(self, name: str) -> Pictures:
        """The split "train" or "heldout"."""
        return Pictures([self.paths[i] for i in self.parts[name]], failures=self.failures)

"""PictureFolder: the pictures in a folder, without labels, as a source to pre-train on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from unmask.data.pictures.decoding import decode
from unmask.data.pictures.processor import FILE, ImageProcessor
from unmask.data.pictures.reading import files_in
from unmask.errors import UnmaskError

HELD_OUT = 50  # one picture in so many is held out of training
LEAST = 2  # pictures of a folder: one to learn from, one to score


@dataclass(frozen=True)
class Pictures:
    """Some pictures of a folder. Unit i is the pixels of picture i, [H, W, C] uint8, decoded when it is read."""

    paths: Sequence[Path]
    channels: int = 3

    @property
    def cost(self) -> np.ndarray:
        """[U] int64: each picture is one."""
        return np.ones(len(self.paths), np.int64)

    def read(self, unit: int) -> np.ndarray:
        """Raises UnmaskError for a file that cannot be decoded."""
        return decode(self.paths[unit], self.channels)

    def of_channels(self, channels: int) -> Pictures:
        """The same with so many numbers of a pixel."""
        return Pictures(self.paths, channels)


class PictureFolder:
    """The pictures of a folder and of the folders in it. Which are held out depends on their names alone: one in 50.

    Raises UnmaskError for a folder that does not exist, and for one with fewer than two pictures.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise UnmaskError(f"There is no folder of pictures {folder}.")
        self.paths, _ = files_in(self.folder)
        if len(self.paths) < LEAST:
            raise UnmaskError(
                f"{folder} has {len(self.paths) or 'no'} pictures, and at least {LEAST} are needed: files such as .jpg "
                "or .png, in it or in folders in it."
            )
        self._heldout = [path for path in self.paths if self._digest(path) % HELD_OUT == 0] or [
            min(self.paths, key=self._digest)
        ]

    @property
    def processor(self) -> ImageProcessor:
        """That of the folder's preprocessor_config.json; where there is none, the usual one."""
        return ImageProcessor.load(self.folder) if (self.folder / FILE).is_file() else ImageProcessor()

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the names and the sizes of the files."""
        lines = [f"{path.relative_to(self.folder)}\t{path.stat().st_size}\n" for path in self.paths]
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def split(self, name: str) -> Pictures:
        """The part "train" or "heldout"."""
        heldout = set(self._heldout)
        return Pictures(self._heldout if name == "heldout" else [path for path in self.paths if path not in heldout])

    def _digest(self, path: Path) -> int:
        name = str(path.relative_to(self.folder)).encode("utf-8", "surrogateescape")
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")

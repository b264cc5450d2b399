"""PictureFolder: the pictures of a folder, without labels, as a source for pre-training."""

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

HELD_OUT = 50  # one picture in 50 is held out of training
LEAST = 2  # smallest number of pictures: one for training, one for evaluation


@dataclass(frozen=True)
class Pictures:
    """Some pictures of a folder. Unit i is the pixels of picture i, [H, W, C] uint8, decoded when it is read."""

    paths: Sequence[Path]
    channels: int = 3

    @property
    def cost(self) -> np.ndarray:
        """[U] int64: 1 for each picture."""
        return np.ones(len(self.paths), np.int64)

    def read(self, unit: int) -> np.ndarray:
        """Decode a picture. Raises UnmaskError if that fails."""
        return decode(self.paths[unit], self.channels)

    def of_channels(self, channels: int) -> Pictures:
        """A copy with another number of channels."""
        return Pictures(self.paths, channels)


class PictureFolder:
    """The pictures of a folder and its subfolders. One in 50 is held out, by the hash of its name.

    Raises UnmaskError for a folder that does not exist, and for one with fewer than two pictures.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise UnmaskError(f"There is no folder of pictures {folder}.")
        self.paths, _ = files_in(self.folder)
        if len(self.paths) < LEAST:
            raise UnmaskError(
                f"{folder} has {len(self.paths) or 'no'} pictures, but at least {LEAST} are needed: files such as .jpg "
                "or .png, in it or in its subfolders."
            )
        self._heldout = [path for path in self.paths if self._digest(path) % HELD_OUT == 0] or [
            min(self.paths, key=self._digest)
        ]

    @property
    def processor(self) -> ImageProcessor:
        """The processor of the folder's preprocessor_config.json; without this file, the default one."""
        return ImageProcessor.load(self.folder) if (self.folder / FILE).is_file() else ImageProcessor()

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the names and the sizes of the files."""
        lines = [f"{path.relative_to(self.folder)}\t{path.stat().st_size}\n" for path in self.paths]
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def split(self, name: str) -> Pictures:
        """The split "train" or "heldout"."""
        heldout = set(self._heldout)
        return Pictures(self._heldout if name == "heldout" else [path for path in self.paths if path not in heldout])

    def _digest(self, path: Path) -> int:
        name = str(path.relative_to(self.folder)).encode("utf-8", "surrogateescape")
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")

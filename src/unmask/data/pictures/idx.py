"""IDX: the format of MNIST, a file of pictures and a file of their classes (LeCun et al. 1998)."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from unmask.data.files.lines import bare, opened
from unmask.data.pictures.decoding import MOST_PIXELS, of_channels
from unmask.errors import UnmaskError

BYTE = 0x08  # the code of unsigned bytes, the only type of the elements that is read


def is_idx(path: Path) -> bool:
    """Whether the name of a file is that of IDX pictures, such as train-images-idx3-ubyte.gz or x.idx3."""
    name = bare(path).name
    return "idx3" in name or "idx4" in name


def read_idx(path: Path, dimensions: int | None = None) -> np.ndarray:
    """The array of an IDX file of bytes, which may be compressed: two zeros, the type, the number of dimensions, each
    dimension as a big-endian uint32, then the elements.

    dimensions  that the array must have; None: any number

    Raises UnmaskError for another type or number of dimensions, and for a file that is shorter or longer than it says.
    """
    with opened(path) as file:
        head = file.read(4)
        if len(head) < 4 or head[:3] != bytes((0, 0, BYTE)):
            raise UnmaskError(f"{path} is not an IDX file of bytes: it begins with {head.hex(' ') or 'nothing'}.")
        count = head[3]
        sizes = file.read(4 * count)
        if len(sizes) < 4 * count:
            raise UnmaskError(f"{path} is cut short: its {count} dimensions are not complete.")
        shape = struct.unpack(f">{count}I", sizes)
        if dimensions is not None and count != dimensions:
            raise UnmaskError(f"{path} has {count} dimensions, but {dimensions} are needed.")
        wanted = math.prod(shape)
        # Not `read(wanted)`: a damaged header may ask for more memory than there is.
        content = bytearray()
        while chunk := file.read(min(1 << 20, wanted + 1 - len(content))):
            content += chunk
    if len(content) != wanted:
        found = "more" if len(content) > wanted else f"{len(content):,}"
        raise UnmaskError(f"{path} should have {wanted:,} bytes after its header, but it has {found}: it is damaged.")
    return np.frombuffer(content, np.uint8).reshape(shape)


class IdxPictures:
    """The pictures of an IDX file [N, H, W], or [N, H, W, C] with 1 or 3 channels, and the classes [N] of the file of
    labels beside it, if there is one. Raises UnmaskError for a damaged file, and where the two do not match."""

    def __init__(self, path: Path) -> None:
        self.path = path
        pixels = read_idx(path)
        pixels = pixels[..., None] if pixels.ndim == 3 else pixels
        if pixels.ndim != 4 or pixels.shape[3] not in (1, 3) or not pixels.size:
            raise UnmaskError(f"{path} must have pictures of the shape [N, H, W] or [N, H, W, 3], not {pixels.shape}.")
        if pixels.shape[1] * pixels.shape[2] > MOST_PIXELS:
            raise UnmaskError(f"{path} has pictures of more than {MOST_PIXELS:,} pixels.")
        self.pixels_NHWC = pixels
        self.labels: np.ndarray | None = None
        if beside := self._beside():
            self.labels = read_idx(beside, 1)
            if len(self.labels) != len(self):
                raise UnmaskError(f"{beside} has {len(self.labels):,} labels for the {len(self):,} pictures of {path}.")

    def __len__(self) -> int:
        return len(self.pixels_NHWC)

    def __getitem__(self, number: int) -> IdxPicture:
        return IdxPicture(self, number)

    def _beside(self) -> Path | None:
        """The file of labels: "images" becomes "labels", idx3 and idx4 become idx1."""
        name = bare(self.path).name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
        usual = (self.path.with_name(name + suffix) for suffix in ("", ".gz", ".zst"))
        return next((one for one in usual if one.is_file() and one != self.path), None)

    def __reduce__(self) -> tuple[Callable[[Path], IdxPictures], tuple[Path]]:
        return IdxPictures, (self.path,)


@dataclass(frozen=True)
class IdxPicture:
    """A picture of an IDX file: a handle."""

    pictures: IdxPictures
    number: int

    @cached_property
    def digest(self) -> str:
        """A hash of the shape and the pixels."""
        pixels_HWC = self.pictures.pixels_NHWC[self.number]
        shape = struct.pack("<3I", *pixels_HWC.shape)
        return hashlib.blake2b(shape + pixels_HWC.tobytes(), digest_size=16).hexdigest()

    def pixels(self, channels: int | None = None) -> np.ndarray:
        """[H, W, C] uint8, with its own channels if `channels` is None."""
        return of_channels(self.pictures.pixels_NHWC[self.number], channels)

"""Decoding: files of pictures (JPEG, PNG, GIF, WebP, BMP, TIFF) into pixels.

Shapes: H height and W width in pixels; C channels, 3 or 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unmask.errors import UnmaskError, needs

MOST_PIXELS = 1 << 26
"""Largest number of pixels that is decoded, 67 million: a small file may need terabytes when decoded."""
BILINEAR = 2  # a number of Pillow, as in `resize`
SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
"""Suffixes of files of pictures."""


def pillow() -> Any:
    """The module `PIL.Image`. Raises UnmaskError if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise needs("Pictures need Pillow", "images") from None
    return Image


class Decoded(Protocol):
    """A picture that is decoded already, such as one of a corpus: a handle, without its pixels."""

    @property
    def digest(self) -> str:
        """A hash of its content: of its file, where it came from one."""

    def pixels(self, channels: int | None) -> np.ndarray:
        """[H, W, C] uint8, with its own channels if `channels` is None."""


Source = str | Path | bytes | Decoded
"""A picture: the path of its file, the bytes of its file, or a handle."""


def decode(source: Source, channels: int | None = 3, *, name: str = "") -> np.ndarray:
    """The pixels of a picture, [H, W, 3] uint8, or [H, W, 1] if `channels` is 1, or if it is None and the picture is
    grey. The picture is rotated according to its EXIF data, transparent parts become white, only the first frame is
    read, and 16 bits are scaled to 8.

    name  the picture in messages; empty: its path

    Raises UnmaskError if the picture cannot be decoded, and, before decoding, if it has more than MOST_PIXELS.
    """
    if not isinstance(source, str | Path | bytes):
        return source.pixels(channels)
    with _opened(Path(source) if isinstance(source, str) else source, name) as file:
        pixels_HWC = _pixels(file)
    return of_channels(pixels_HWC, channels)


def digest_of(source: Source) -> str:
    """A hash of the content of a picture (BLAKE2b, 16 bytes). Raises UnmaskError for a file that cannot be read."""
    if isinstance(source, bytes):
        return hashlib.blake2b(source, digest_size=16).hexdigest()
    if not isinstance(source, str | Path):
        return source.digest
    try:
        with open(source, "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise UnmaskError(f"{source} cannot be read: {error.strerror or error}.") from None


def header(source: Path | bytes, *, name: str = "") -> tuple[str, int, int]:
    """The colour mode of Pillow, the width and the height, from the first bytes of a file. Errors are those of `decode`
    that the first bytes show."""
    with _opened(source, name) as file:
        return (file.mode, *file.size)


@contextlib.contextmanager
def _opened(source: Path | bytes, name: str) -> Iterator[Any]:
    """A file whose header is read. Errors of decoding inside the block become UnmaskError."""
    Image = pillow()
    name = name or (str(source) if isinstance(source, Path) else "The picture")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about sizes and damaged metadata
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as file:
                width, height = file.size
                if width * height > MOST_PIXELS:
                    raise UnmaskError(
                        f"{name} has {width:,} x {height:,} pixels, but the limit is {MOST_PIXELS:,}: make it smaller."
                    )
                yield file
    except (UnmaskError, MemoryError):
        raise
    except FileNotFoundError:
        raise UnmaskError(f"There is no picture {name}.") from None
    except PermissionError:
        raise UnmaskError(f"{name} cannot be read: permission denied.") from None
    except Exception as error:  # decoders raise many kinds of errors for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        if "cannot identify image file" in reason:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
            reason = "it is not a picture in a known format" if size else "it is empty"
        raise UnmaskError(f"{name} cannot be decoded: {reason.rstrip('.')}.") from None


def _pixels(file: Any) -> np.ndarray:
    """[H, W, 1] uint8 of a grey picture, [H, W, 3] of another."""
    from PIL import ImageOps

    Image = pillow()
    picture = ImageOps.exif_transpose(file)
    if picture.mode.startswith("I") or picture.mode == "F":  # 16 bits and more
        values = np.asarray(picture, np.float64)
        largest = 65_535 if picture.mode.startswith("I") and values.max(initial=0) > 255 else 255
        picture = Image.fromarray(np.clip(np.rint(values * (255 / largest)), 0, 255).astype(np.uint8))
    grey = picture.mode in ("1", "L", "LA", "La")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, picture)
    found = np.asarray(picture.convert("L" if grey else "RGB"))
    return found[..., None] if grey else found


def of_channels(pixels_HWC: np.ndarray, channels: int | None) -> np.ndarray:
    """The picture with 3 channels, equal ones if it is grey, or with 1: its luma (ITU-R BT.601, as Pillow rounds it).
    None: as it is."""
    if channels in (None, pixels_HWC.shape[2]):
        return pixels_HWC
    if channels == 3:
        return np.repeat(pixels_HWC, 3, axis=2)
    return np.asarray(pillow().fromarray(np.ascontiguousarray(pixels_HWC)).convert("L"))[..., None]


def shrink(pixels_HWC: np.ndarray, side: int) -> np.ndarray:
    """The picture resized (bilinear) so that its shorter side has `side` pixels; a smaller one as it is."""
    height, width = pixels_HWC.shape[:2]
    shorter = min(height, width)
    if shorter <= side:
        return pixels_HWC
    return resize(pixels_HWC, round(height * side / shorter), round(width * side / shorter), BILINEAR)


def encode(pixels_HWC: np.ndarray) -> bytes:
    """A PNG file with a picture [H, W, C] uint8, the inverse of `decode`."""
    file = io.BytesIO()
    pillow().fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[2] == 1 else pixels_HWC).save(file, format="PNG")
    return file.getvalue()


def resize(pixels_HWC: np.ndarray, height: int, width: int, resample: int) -> np.ndarray:
    """Resize a picture to [height, width, C] uint8. `resample` is Pillow's number: 0 nearest, 1 Lanczos, 2 bilinear,
    3 bicubic, 4 box, 5 Hamming."""
    if pixels_HWC.shape[:2] == (height, width):
        return pixels_HWC
    Image = pillow()
    grey = pixels_HWC.shape[2] == 1
    picture = Image.fromarray(pixels_HWC[..., 0] if grey else pixels_HWC)
    found = np.asarray(picture.resize((width, height), resample=Image.Resampling(resample)))
    return found[..., None] if grey else found

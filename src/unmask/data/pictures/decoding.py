"""Decoding: files of pictures (JPEG, PNG, GIF, WebP, BMP, TIFF) into pixels.

Shapes: H height and W width in pixels; C channels, 3 or 1.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from unmask.errors import UnmaskError, needs

MOST_PIXELS = 1 << 26
"""Largest number of pixels that is decoded, 67 million: a small file may need terabytes when decoded."""
SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
"""Suffixes of files of pictures."""


def pillow() -> Any:
    """The module `PIL.Image`. Raises UnmaskError if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise needs("Pictures need Pillow", "images") from None
    return Image


def decode(source: Path | bytes, channels: int = 3) -> np.ndarray:
    """The pixels of a picture, [H, W, 3] uint8, or [H, W, 1] if `channels` is 1. It is rotated according to its EXIF
    data, transparent parts become white, only the first frame is read, and 16 bits are scaled to 8.

    Raises UnmaskError if the picture cannot be decoded, and, before decoding, if it has more than MOST_PIXELS.
    """
    Image = pillow()
    name = str(source) if isinstance(source, Path) else "The picture"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about sizes and damaged metadata
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as file:
                width, height = file.size
                if width * height > MOST_PIXELS:
                    raise UnmaskError(
                        f"{name} has {width:,} x {height:,} pixels, but the limit is {MOST_PIXELS:,}: make it smaller."
                    )
                return _pixels(file, channels)
    except (UnmaskError, MemoryError):
        raise
    except FileNotFoundError:
        raise UnmaskError(f"There is no picture {name}.") from None
    except PermissionError:
        raise UnmaskError(f"{name} cannot be read: permission denied.") from None
    except Exception as error:  # decoders raise many kinds of errors for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        if "cannot identify image file" in reason:
            reason = "it is not a picture in a known format"
        raise UnmaskError(f"{name} cannot be decoded: {reason.rstrip('.')}.") from None


def _pixels(file: Any, channels: int) -> np.ndarray:
    from PIL import ImageOps

    Image = pillow()
    picture = ImageOps.exif_transpose(file)
    if picture.mode.startswith("I") or picture.mode == "F":  # 16 bits and more
        values = np.asarray(picture, np.float64)
        largest = 65_535 if picture.mode.startswith("I") and values.max(initial=0) > 255 else 255
        picture = Image.fromarray(np.clip(np.rint(values * (255 / largest)), 0, 255).astype(np.uint8))
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, picture)
    found = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
    return found[..., None] if channels == 1 else found


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

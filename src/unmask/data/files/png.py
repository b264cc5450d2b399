"""PNG files without a library, for pictures that are drawn here (PNG specification, third edition, sections 5 and 11).

Shapes: H height and W width in pixels, C channels, 3 or 1.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

GREY, RGB, PALETTE = 0, 2, 3  # colour types


def png(pixels_HWC: np.ndarray) -> bytes:
    """A picture [H, W, C] uint8 as a file, which is exact. Up to 16 colours take half a byte a pixel before they are
    compressed."""
    H, W, C = pixels_HWC.shape
    colours_KC, numbers = np.unique(pixels_HWC.reshape(-1, C), axis=0, return_inverse=True)
    if len(colours_KC) > 16 or not len(colours_KC):
        kind, bits, lines_HX, palette = RGB if C == 3 else GREY, 8, pixels_HWC.reshape(H, W * C), b""
    else:
        kind, bits = PALETTE, 4
        pairs = np.pad(numbers.reshape(H, W).astype(np.uint8), ((0, 0), (0, W % 2))).reshape(H, -1, 2)
        lines_HX = pairs[..., 0] << 4 | pairs[..., 1]
        palette = _chunk(b"PLTE", np.broadcast_to(colours_KC, (len(colours_KC), 3)).tobytes())
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, bits, kind, 0, 0, 0))
    lines = zlib.compress(np.pad(lines_HX, ((0, 0), (1, 0))).tobytes(), 9)  # each begins with the filter 0: none
    return b"\x89PNG\r\n\x1a\n" + header + palette + _chunk(b"IDAT", lines) + _chunk(b"IEND", b"")


def size_of(file: bytes) -> tuple[int, int]:
    """(H, W) of a PNG; (0, 0) for another file."""
    if not file.startswith(b"\x89PNG\r\n\x1a\n") or len(file) < 24:
        return 0, 0
    W, H = struct.unpack(">II", file[16:24])
    return H, W


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

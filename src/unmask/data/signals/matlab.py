"""Files of MATLAB, versions 4 to 7: their arrays of numbers. The reader of scipy ends the process on damaged files.

Source: MAT-File Format (The MathWorks), chapters 1 and 2. Values of other kinds, such as texts and structures, are
skipped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from unmask.data.signals.signal import MOST_BYTES

HEADER = 128  # bytes, of version 5 and later
MARKS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
"""Last bytes of the header, the version and the order of bytes -> that order."""
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Type of an element -> that of its numbers."""
MATRIX, COMPRESSED = 14, 15
CLASSES = range(6, 16)  # of matrices of numbers
OLD_NUMBERS = ("f8", "f4", "i4", "i2", "u2", "u1")  # of version 4, by the tens of its type
LONGEST_NAME = 64


def is_matlab(content: bytes) -> bool:
    """Whether the bytes of a file begin as MATLAB's do, of version 7 at most."""
    return content[124:128] in MARKS or _old_header(content, 0) is not None


def arrays_in(content: bytes) -> dict[str, np.ndarray]:
    """Name -> array of numbers. Raises ValueError, struct.error or zlib.error for a damaged file."""
    if content[124:128] in MARKS:
        return dict(_new(content[HEADER:], MARKS[content[124:128]]))
    return dict(_old(content))


def _new(content: bytes, order: str) -> Iterator[tuple[str, np.ndarray]]:
    """The matrices of version 5 and later."""
    for kind, data in _elements(content, order):
        if kind == COMPRESSED:
            unpacker = zlib.decompressobj()
            whole = unpacker.decompress(data, MOST_BYTES)
            if not unpacker.eof:
                raise ValueError("a compressed matrix is cut short, or too large")
            yield from _new(whole, order) if whole[:4] != struct.pack(f"{order}I", COMPRESSED) else ()
        elif kind == MATRIX:
            parts = list(_elements(data, order))
            if len(parts) < 4 or parts[0][1][:1] == b"" or len(parts[0][1]) < 8:
                continue
            flags = struct.unpack_from(f"{order}I", parts[0][1])[0]
            if flags & 255 in CLASSES and parts[3][0] in NUMBERS:
                shape = np.frombuffer(parts[1][1], f"{order}i4").tolist()
                numbers = np.frombuffer(parts[3][1], order + NUMBERS[parts[3][0]])
                yield parts[2][1].split(b"\0")[0].decode("latin-1"), numbers.reshape(shape, order="F")


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """The type and the data of each element; short ones have both in eight bytes."""
    place = 0
    while place + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, place)
        begin = place + 8
        if kind >> 16:
            kind, size, begin = kind & 65_535, kind >> 16, place + 4
            if size > 4:
                raise ValueError("an element is damaged")
        if begin + size > len(content):
            raise ValueError("it is cut short")
        yield kind, content[begin : begin + size]
        end = max(begin + size, place + 8)
        place = end if kind == COMPRESSED else -(-end // 8) * 8


def _old_header(content: bytes, place: int) -> tuple[str, str, int, int, int, int] | None:
    """Order of bytes, type of numbers, rows, columns, parts (2: complex) and length of the name of a matrix of version
    4; None if there is none."""
    for number, order in enumerate("<>"):
        if place + 20 > len(content):
            return None
        kind, rows, columns, complex_, length = struct.unpack_from(f"{order}5i", content, place)
        thousands, tens = kind // 1000, kind // 10 % 100
        sound = thousands == number and tens < len(OLD_NUMBERS) and kind % 10 < 3 and complex_ in (0, 1)
        if kind >= 0 and sound and rows >= 0 and columns >= 0 and 1 < length <= LONGEST_NAME:
            return order, OLD_NUMBERS[tens], rows, columns, complex_ + 1, length
    return None


def _old(content: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """The matrices of version 4."""
    place = 0
    while place < len(content):
        found = _old_header(content, place)
        if found is None:
            raise ValueError("a matrix is damaged")
        order, numbers, rows, columns, parts, length = found
        name = content[place + 20 : place + 20 + length].split(b"\0")[0].decode("latin-1")
        begin, size = place + 20 + length, rows * columns * int(numbers[1])
        if begin + size * parts > len(content):
            raise ValueError("it is cut short")
        if struct.unpack_from(f"{order}i", content, place)[0] % 10 == 0:
            values = np.frombuffer(content[begin : begin + size], order + numbers)
            yield name, values.reshape((rows, columns), order="F")
        place = begin + size * parts

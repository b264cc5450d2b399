"""Lines of a text file whatever its compression and encoding: bounded, cleaned, with a count of what was repaired."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from unmask.errors import UnmaskError

LONGEST_LINE = 1 << 24  # characters; a file without line ends is more often a mistake than a text
COMPRESSED = (".gz", ".zst")

_BYTE_ORDER_MARKS = (  # UTF-32 before UTF-16, whose mark it begins with
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_FOREIGN = (  # (offset, bytes there, what such a file is)
    (0, b"%PDF-", "a PDF"),
    (0, b"PK\3\4", "a zip archive or an office document"),
    (0, b"\x89PNG", "an image"),
    (0, b"\xff\xd8\xff", "an image"),
    (0, b"\x7fELF", "a program"),
    (0, b"\x1f\x8b", "gzip data without the ending .gz"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard data without the ending .zst"),
    (0, b"PAR1", "Parquet without the ending .parquet"),
    (257, b"ustar", "a tar archive"),
)
_UNDECODED = re.compile("[\udc80-\udcff]")


class NotText(UnmaskError):
    """A file that is empty or no text. `reason` says which; inside a folder it is passed over, as are files without
    any text beside others."""

    def __init__(self, path: Path, reason: str, advice: str = "") -> None:
        super().__init__(f"{path} cannot be read as text: {reason}.{advice and ' ' + advice}")
        self.path, self.reason = path, reason


class Blank(NotText):
    """A file without any text."""


@dataclass(slots=True)
class FileFacts:
    """What was found in one file.

    encoding    utf-8, utf-8-sig (with a byte order mark), utf-16, …
    characters  of all documents together
    documents   number of documents (parts of very long ones counted)
    replaced    bytes (UTF-8) or characters (UTF-16, UTF-32) that could not be decoded and became U+FFFD
    nul         NUL characters removed
    """

    encoding: str = "utf-8"
    characters: int = 0
    documents: int = 0
    replaced: int = 0
    nul: int = 0


def lines(
    path: Path,
    facts: FileFacts | None = None,
    *,
    doubt: bool = False,
    newline: str | None = None,
    longest: int | None = None,
) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of each line, with its end.

    facts    learns the encoding and the repairs; without it nothing is repaired: undecodable bytes are an error
    doubt    treats a file with NUL bytes and no byte order mark as not text
    newline  None: lines end with LF, CRLF or CR, and are given LF; "\n": they end with LF, a CR stays where it is
    longest  most characters of a line; None: LONGEST_LINE

    Raises NotText for a file of another kind, UnmaskError for a damaged file or a line that is too long.
    """
    longest = LONGEST_LINE if longest is None else longest
    with opened(path) as stream:
        encoding = _encoding(path, stream.peek(4096)[:4096], doubt)
        if facts is not None:
            facts.encoding = encoding
        narrow = encoding.startswith("utf-8")
        errors = "surrogateescape" if narrow else "strict" if facts is None else "replace"
        text = io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline=newline)
        number = 0
        try:
            while line := text.readline(longest + 1):
                number += 1
                if len(line) > longest:
                    raise UnmaskError(
                        f"{path}:{number} is longer than {longest:,} characters; break the text into lines."
                    )
                yield number, _sound(path, number, line) if facts is None else _repaired(line, facts)
        except UnicodeDecodeError:
            name = encoding.upper()
            raise UnmaskError(f"{path} is not {name} text after line {number}; save the file as UTF-8.") from None


def bare(path: Path) -> Path:
    """The path without the endings of compression."""
    while path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path


@contextlib.contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The decompressed bytes of a file. Errors inside the block that mean a damaged file become UnmaskError."""
    try:
        with open(path, "rb") as file:
            raw: Any = file
            if path.suffix.lower() == ".gz":
                raw = gzip.GzipFile(fileobj=file)
            elif path.suffix.lower() == ".zst":
                raw = _Zstandard(path, file)
            yield io.BufferedReader(raw, buffer_size=1 << 16)
    except FileNotFoundError:
        raise UnmaskError(f"There is no file {path}.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnmaskError(f"{path} is damaged or cut short: {error}.") from None
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None


class _Zstandard(io.RawIOBase):
    """Decompressed bytes of a Zstandard file, which may hold several frames; a frame cut short is an error."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError:
            raise UnmaskError(f"Reading {path} needs zstandard: run pip install 'unmask[data]'.") from None
        self._chunks = self._decompress(zstandard, path, file)
        self._rest = memoryview(b"")

    @staticmethod
    def _decompress(zstandard: Any, path: Path, file: BinaryIO) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        frame = None
        while chunk := file.read(1 << 11):  # 32,768 bytes may come out of one
            while chunk:
                frame = frame or decompressor.decompressobj()
                try:
                    yield frame.decompress(chunk)
                except zstandard.ZstdError as error:
                    raise UnmaskError(f"{path} is damaged: {error}.") from None
                chunk, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
        if frame is not None:
            raise EOFError("the last Zstandard frame does not end")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _encoding(path: Path, head: bytes, doubt: bool) -> str:
    """The encoding that the first bytes of a file speak for."""
    if not head:
        raise Blank(path, "it is empty")
    for offset, magic, what in _FOREIGN:
        if head[offset:].startswith(magic):
            raise NotText(path, f"it is {what}", "Convert it to plain text first.")
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    even, odd = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / max(len(head[1::2]), 1)
    if len(head) >= 16 and max(even, odd) > 0.4 and min(even, odd) < 0.05:  # mostly Latin letters in two bytes each
        return "utf-16-le" if odd > even else "utf-16-be"
    if doubt and 0 in head:
        raise NotText(path, "it holds NUL bytes, so it is probably not text")
    return "utf-8"


def _sound(path: Path, number: int, line: str) -> str:
    if not line.isascii() and _UNDECODED.search(line):
        raise UnmaskError(f"{path}:{number} is not UTF-8 text; save the file as UTF-8.")
    return line


def _repaired(line: str, facts: FileFacts) -> str:
    if "\0" in line:
        facts.nul += line.count("\0")
        line = line.replace("\0", "")
    if line.isascii():
        return line
    if facts.encoding.startswith("utf-8"):
        line, count = _UNDECODED.subn("\ufffd", line)
    else:
        count = line.count("\ufffd")
    facts.replaced += count
    return line.lstrip("\ufeff")  # byte order marks inside a file: files that were put end to end

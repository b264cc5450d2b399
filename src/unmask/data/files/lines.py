"""Lines of a text file of any compression and encoding, of bounded length, with a count of removed characters."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from unmask.data.files import encodings
from unmask.errors import UnmaskError, needs

LONGEST_LINE = 1 << 24  # characters; a file without line ends is usually an error
SAMPLE = 1 << 16  # characters from which an encoding is guessed
COMPRESSED = (".gz", ".zst")

_FOREIGN = (  # (offset, bytes at this offset, kind of such a file)
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


class NotText(UnmaskError):
    """A file is empty or not text; `reason` is a clause that says why. Inside a folder such files are skipped."""

    def __init__(self, path: Path, reason: str, advice: str = "") -> None:
        super().__init__(f"{path} cannot be read as text: {reason}.{advice and ' ' + advice}")
        self.path, self.reason = path, reason


class Blank(NotText):
    """A file has no text."""


@dataclass(slots=True)
class FileFacts:
    """Statistics of one file.

    encoding     utf-8, utf-8-sig (with a byte order mark), utf-16, …
    characters   number of characters of all documents
    documents    number of documents (or of parts of very long ones)
    nul          number of NUL characters removed
    blank_lines  whether blank lines end documents
    """

    encoding: str = "utf-8"
    characters: int = 0
    documents: int = 0
    nul: int = 0
    blank_lines: bool = False


def lines(
    path: Path,
    facts: FileFacts | None = None,
    *,
    encoding: str | None = None,
    newline: str | None = None,
    longest: int | None = None,
    escaped: bool = False,
) -> Iterator[tuple[int, str]]:
    """The number, from 1, and the text of each line, with its line end.

    facts     is updated with the encoding and the number of removed NUL characters; byte order marks inside the file
              are removed too. None: nothing is removed
    encoding  encoding of a file without a byte order mark; None: UTF-8, or UTF-16 if the first bytes look like it
    newline   None: lines end with LF, CRLF or CR, which become LF; "\n": lines end with LF, and CR is kept
    longest   largest number of characters of a line; None: LONGEST_LINE
    escaped   return a line with bytes that are not valid in the encoding with surrogate escapes (`encodings.is_sound`)

    Raises NotText for a file of another kind, and UnmaskError for a damaged file, a line that is too long, and a line
    with bytes that are not valid in the encoding, which are never replaced by other characters.
    """
    longest = LONGEST_LINE if longest is None else longest
    with opened(path) as stream:
        found = _encoding(path, stream.peek(4096)[:4096], encodings.checked(encoding))
        if facts is not None:
            facts.encoding = found
        text = io.TextIOWrapper(stream, encoding=found, errors=encodings.errors_of(found), newline=newline)
        number = 0
        try:
            while line := text.readline(longest + 1):
                number += 1
                if len(line) > longest:
                    raise UnmaskError(
                        f"{path}:{number} is longer than {longest:,} characters; break the text into lines."
                    )
                if not (escaped or encodings.is_sound(line)):
                    raise encodings.undecodable(f"{path}:{number}", line + text.read(SAMPLE), encoding)
                yield number, line if facts is None else _tidied(line, facts)
        except UnicodeError:
            raise UnmaskError(f"{path} is not {found} text after line {number}; save it as UTF-8.") from None


def bare(path: Path) -> Path:
    """The path without suffixes of compression."""
    while path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path


@contextlib.contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file as a stream of decompressed bytes. Errors of reading inside the block become UnmaskError."""
    try:
        with path.open("rb") as file:
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
    """The decompressed bytes of a Zstandard file, which may have several frames; an incomplete frame is an error."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError:
            raise needs(f"Reading {path} needs zstandard", "data") from None
        self._chunks = self._decompress(zstandard, path, file)
        self._rest = memoryview(b"")

    @staticmethod
    def _decompress(zstandard: Any, path: Path, file: BinaryIO) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        frame = None
        while chunk := file.read(1 << 11):  # one input byte may decompress to 32,768 bytes
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


def _encoding(path: Path, head: bytes, named: str | None) -> str:
    """The encoding of the byte order mark, else the given one, else the one that the first bytes suggest, else UTF-8.
    Raises NotText for an empty file and for other kinds of files."""
    if not head:
        raise Blank(path, "it is empty")
    for offset, magic, what in _FOREIGN:
        if head[offset:].startswith(magic):
            raise NotText(path, f"it is {what}", "Convert it to plain text first.")
    found = encodings.marked(head) or named or encodings.two_bytes_each(head) or "utf-8"
    if not found.startswith(("utf-16", "utf-32")) and head.count(0) > encodings.MOST_NUL * len(head):
        raise NotText(path, "it is full of NUL bytes, so it is probably not text")
    return found


def _tidied(line: str, facts: FileFacts) -> str:
    if "\0" in line:
        facts.nul += line.count("\0")
        line = line.replace("\0", "")
    return line.lstrip("\ufeff")  # byte order marks inside a file come from concatenated files

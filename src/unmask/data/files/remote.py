"""Files at addresses of fsspec, such as s3://bucket/folder or hf://datasets/owner/name, read and written in bounded
memory; what fails is tried again."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from unmask.data.files import corpora
from unmask.errors import UnmaskError, needs
from unmask.files import MANIFEST

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)  # seconds before each further try
BLOCK = 1 << 23  # bytes of one request; stores answer many small ones slowly

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")

Result = TypeVar("Result")


class Unreachable(UnmaskError):
    """A store failed in all tries. Its file is not damaged, so it must not be passed over."""


class Address:
    """A file or folder at an address. It has those methods of `Path` that reading and writing a corpus need."""

    def __init__(self, url: str, known: dict[str, Any] | None = None) -> None:
        """`known` is what a listing said of it. Raises UnmaskError for an unknown kind of address, and for one whose
        package is missing."""
        self._known, (self._scheme, self._rest) = known, url.split("://", 1)
        self._rest = self._rest.rstrip("/")
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise needs(f"Reading {url} needs fsspec", "scale") from None
        try:
            self.files, self.path = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UnmaskError(f"{url} cannot be opened: {_said(error)}.") from None

    def __str__(self) -> str:
        return f"{self._scheme}://{self._rest}"

    def __truediv__(self, name: str) -> Address:
        return self._at(f"{self._rest}/{name}" if self._rest else name)

    @property
    def name(self) -> str:
        return self._rest.rpartition("/")[2]

    @property
    def parent(self) -> Address:
        return self._at(self._rest.rpartition("/")[0])

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    def with_suffix(self, suffix: str) -> Address:
        return self.parent / Path(self.name).with_suffix(suffix).name

    def exists(self) -> bool:
        return self._known is not None or self._tried(lambda: self.files.exists(self.path))

    def is_dir(self) -> bool:
        return self._known["type"] == "directory" if self._known else self._tried(lambda: self.files.isdir(self.path))

    def is_file(self) -> bool:
        return self._known["type"] == "file" if self._known else self._tried(lambda: self.files.isfile(self.path))

    def is_symlink(self) -> bool:
        return False

    def stat(self) -> SimpleNamespace:
        """The size in bytes, as `st_size`. Raises UnmaskError if the store does not say it."""
        size = self._known["size"] if self._known else self._tried(lambda: self.files.size(self.path))
        if size is None:
            raise UnmaskError(f"{self} cannot be read: its server does not say its size. Download it first.")
        return SimpleNamespace(st_size=size)

    def iterdir(self) -> Iterator[Address]:
        for entry in self._tried(lambda: self.files.ls(self.path, detail=True)):
            name = entry["name"].rstrip("/").rpartition("/")[2]
            if entry["name"].rstrip("/") != self.path.rstrip("/"):  # some stores list the folder in itself
                yield self._at(f"{self._rest}/{name}", entry)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """A stream of the bytes, in requests of BLOCK bytes. Raises FileNotFoundError."""
        return io.BufferedReader(_Ranges(self), BLOCK)

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return file.read()

    def read_range(self, begin: int, end: int) -> bytes:
        """Bytes begin … end - 1. A shorter answer is an error that is tried again."""

        def read() -> bytes:
            content = self.files.cat_file(self.path, start=begin, end=end)
            if len(content) != end - begin:
                raise EOFError(f"{len(content):,} bytes came where {end - begin:,} were asked for")
            return content

        return self._tried(read)

    def put(self, path: Path) -> None:
        """Write a local file here. An incomplete one is an error that is tried again."""

        def write() -> None:
            self.files.makedirs(self.parent.path, exist_ok=True)
            self.files.put_file(str(path), self.path)
            self.files.invalidate_cache(self.parent.path)
            if (size := self.files.size(self.path)) != path.stat().st_size:
                raise EOFError(f"{size:,} of {path.stat().st_size:,} bytes arrived")

        self._tried(write, "written")

    def _at(self, rest: str, known: dict[str, Any] | None = None) -> Address:
        return Address(f"{self._scheme}://{rest}", known)

    def _tried(self, call: Callable[[], Result], done: str = "read") -> Result:
        """The result of a call, tried again with growing waits. Raises FileNotFoundError and PermissionError at once,
        and Unreachable in the end."""
        for wait in (*WAITS, None):
            try:
                return call()
            except FileNotFoundError:
                raise
            except PermissionError as error:
                raise Unreachable(f"{self} could not be {done}: {_said(error)}.") from None
            except Exception as error:  # each store has its own errors
                if wait is None:
                    tries = len(WAITS) + 1
                    raise Unreachable(f"{self} could not be {done} in {tries} tries: {_said(error)}.") from None
                time.sleep(wait)
        raise AssertionError


class _Ranges(io.RawIOBase):
    def __init__(self, address: Address) -> None:
        self.address, self.position, self.size = address, 0, address.stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        self.position = max(0, start + offset)
        return self.position

    def readall(self) -> bytes:
        blocks = []
        while block := self.read(BLOCK):
            blocks.append(block)
        return b"".join(blocks)

    def readinto(self, buffer: Any) -> int:
        end = min(self.position + len(buffer), self.size)
        if end <= self.position:
            return 0
        content = self.address.read_range(self.position, end)
        buffer[: len(content)] = content
        self.position = end
        return len(content)


def is_address(path: object) -> bool:
    """Whether this is a text that names an address, with its kind, such as s3://bucket/folder."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def place(path: str | Path | Address) -> Any:
    """A path, or the Address of one that is an address. Both are used as a `Path`."""
    if isinstance(path, Address):
        return path
    return Address(str(path)) if is_address(path) else Path(path)


def local(path: str | Path) -> Path:
    """An absolute path. Raises UnmaskError for an address, where only parts and their merge are written."""
    found = place(path)
    if isinstance(found, Address):
        raise UnmaskError(
            f"{path} is an address, where a corpus is written in parts: use `corpus vocabulary`, then `corpus build "
            "--part 1/1`, then `corpus merge`."
        )
    return found.absolute()


def absolute(path: str | Path | Address) -> Any:
    """The same, and absolute."""
    found = place(path)
    return found if isinstance(found, Address) else found.absolute()


@contextlib.contextmanager
def workspace(out: Any) -> Iterator[Path]:
    """As `corpora.workspace`. Files for an address are written to the temporary folder of this machine, and put there
    if the block succeeds, the manifest last; those of an interrupted call are overwritten."""
    if not isinstance(out, Address):
        with corpora.workspace(out) as folder:
            yield folder
        return
    if (out / MANIFEST).is_file():
        raise UnmaskError(f"{out} already holds a corpus; choose another address, or delete it to build it again.")
    with tempfile.TemporaryDirectory(prefix="unmask-") as name:
        yield Path(name)
        for path in sorted(Path(name).iterdir(), key=lambda path: (path.name == MANIFEST, path.name)):
            (out / path.name).put(path)


@contextlib.contextmanager
def fetched(folder: Any) -> Iterator[Path]:
    """The folder itself, or a temporary local copy of the files of one at an address."""
    if not isinstance(folder, Address):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="unmask-") as name:
        for file in folder.iterdir():
            if file.is_file():
                (Path(name) / file.name).write_bytes(file.read_bytes())
        yield Path(name)


def _said(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")

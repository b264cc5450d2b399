"""A corpus at an address of fsspec, whose files are read through a cache of bounded size on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from unmask.data.files.corpora import Checked
from unmask.data.files.remote import BLOCK, Address, is_address
from unmask.errors import UnmaskError
from unmask.files import MANIFEST, alone, atomic, atomic_folder, writing

_KEPT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Cache:
    """Copies of remote files in a folder, by their SHA-256. All processes of a machine share it.

    A file is compared with its checksum before it appears. When there is no room for another one, those that were not
    used for the longest time are removed; open files can still be read. One process fetches at a time.

    size  largest total size of the files, in bytes
    """

    folder: Path
    size: int

    def open(self, address: Address, fact: Mapping[str, Any]) -> io.BufferedReader:
        """Open a file by its size and checksum (`files.describe`), and fetch it from its address if it is not there.

        Raises UnmaskError for a file that is larger than the cache, and those of `fetch`.
        """
        path = self.folder / str(fact["sha256"])
        with contextlib.suppress(FileNotFoundError):
            return _used(path)
        with alone(self.folder / "files"):
            with contextlib.suppress(FileNotFoundError):  # another process fetched it meanwhile
                return _used(path)
            self._make_room(address, fact["bytes"])
            with atomic(path) as temporary:
                fetch(address, fact, temporary)
            return path.open("rb")

    def _make_room(self, address: Address, size: int) -> None:
        """Remove the files that were not used for the longest time, until `size` bytes fit."""
        if size > self.size:
            raise UnmaskError(
                f"{address} has {size / 1e9:.3g} GB, and the cache {self.size / 1e9:.3g}: give it more with "
                "--rows.cache-gb."
            )
        with writing(self.folder):
            found = [(path.stat(), path) for path in self.folder.iterdir() if _KEPT.fullmatch(path.name)]
            total = sum(facts.st_size for facts, _ in found)
            for facts, path in sorted(found, key=lambda one: one[0].st_mtime_ns):
                if total + size <= self.size:
                    break
                path.unlink(missing_ok=True)
                total -= facts.st_size


@dataclass(frozen=True)
class Cached:
    """The folder of a corpus at an address, read through a cache."""

    url: str
    cache: Cache
    near = False

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> NoReturn:
        """Raises UnmaskError: only corpora of texts are read shard by shard."""
        raise UnmaskError(
            f"{self.url} is an address, where only corpora of texts are read: copy the folder to this machine."
        )

    def home(self, shard: Callable[[str], bool]) -> Path:
        """A local folder with the manifest and all files for whose names `shard` is False.

        Raises UnmaskError if there is no corpus at the address, and those of `fetch`.
        """
        address = Address(self.url)
        try:
            content = (address / MANIFEST).read_bytes()
            files = json.loads(content)["files"]
            names = [name for name in files if not shard(name)]
        except FileNotFoundError:
            raise UnmaskError(f"{self.url} is not a corpus: it has no {MANIFEST}.") from None
        except (ValueError, KeyError, TypeError):
            raise UnmaskError(f"{address / MANIFEST} does not describe a corpus, or is damaged.") from None
        if any(Path(name).name != name for name in names):
            raise UnmaskError(f"{address / MANIFEST} is damaged: it names files of other folders.")
        folder = self.cache.folder / f"corpus-{hashlib.sha256(content).hexdigest()[:16]}" / address.name
        with alone(folder):
            if not folder.is_dir():
                with atomic_folder(folder) as new:
                    (new / MANIFEST).write_bytes(content)
                    for name in names:
                        fetch(address / name, files[name], new / name)
        return folder

    def array(self, name: str, files: Mapping[str, Any], dtype: np.dtype) -> CachedArray:
        """A file as an array; `files` has the size and the checksum of each file."""
        return CachedArray(self.cache, Address(self.url) / name, files[name], dtype)


class CachedArray:
    """A file of numbers that is fetched when a slice of it is read, and may leave the cache at any time."""

    def __init__(self, cache: Cache, address: Address, fact: Mapping[str, Any], dtype: np.dtype) -> None:
        self.cache, self.address, self.fact, self.dtype = cache, address, fact, dtype

    def __len__(self) -> int:
        return int(self.fact["bytes"]) // self.dtype.itemsize

    def __getitem__(self, part: slice) -> np.ndarray:
        begin, end, _ = part.indices(len(self))
        with self.cache.open(self.address, self.fact) as file:
            return np.fromfile(file, self.dtype, max(0, end - begin), offset=begin * self.dtype.itemsize)


def through_cache(folder: Path | str, cache: str | None, gigabytes: float) -> Any:
    """A folder as it is, or the `Cached` of an address, with a cache in a folder: by default, one that all runs of a
    machine share.

    Raises UnmaskError for a cache without room, and those of `Address`.
    """
    if not is_address(folder):
        return folder
    if gigabytes <= 0:
        raise UnmaskError(f"--rows.cache-gb must be above 0, not {gigabytes:g}.")
    kept = Path(tempfile.gettempdir()) / "unmask-cache" if cache is None else Path(cache).absolute()
    return Cached(str(folder), Cache(kept, int(gigabytes * 1e9)))


def fetch(address: Address, fact: Mapping[str, Any], path: Path) -> None:
    """Copy a file from an address; requests that fail are tried again (`Address.read_range`).

    Raises UnmaskError if it is missing, cannot be read, or differs from its checksum.
    """
    size, copy = int(fact["bytes"]), Checked(path)
    with copy.file:
        try:
            for begin in range(0, size, BLOCK):
                copy.write(np.frombuffer(address.read_range(begin, min(begin + BLOCK, size)), np.uint8))
        except FileNotFoundError:
            raise UnmaskError(f"{address} is missing although {MANIFEST} lists it: build the corpus again.") from None
        found = copy.close()
    if found["sha256"] != fact["sha256"]:
        raise UnmaskError(
            f"{address} does not match its checksum, and was not kept: it is damaged, or was changed. Restore it, or "
            "build the corpus again."
        )


def _used(path: Path) -> io.BufferedReader:
    """Open a file of the cache and note that it was used. Raises FileNotFoundError."""
    file = path.open("rb")
    with contextlib.suppress(OSError):  # removed meanwhile, or a cache that others filled
        os.utime(path)
    return file

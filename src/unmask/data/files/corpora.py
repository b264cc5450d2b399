"""Corpora on disk: folders that appear whole or not at all, arrays with checksums, and the manifest that seals them."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from unmask.config import read_json
from unmask.errors import UnmaskError
from unmask.files import MANIFEST, check_replaceable, write_text, writing

VERIFY_BELOW = 1 << 30  # bytes; the checksums of a smaller corpus are compared whenever it is opened
TEXTS, PICTURES, RECORDINGS, SIGNALS = "unmask-corpus", "unmask-pictures", "unmask-recordings", "unmask-signals"
NAMED = 20  # corpora that a message names
FRAMES = "unmask-frame-labels"
KINDS = {
    TEXTS: "texts",
    PICTURES: "pictures",
    RECORDINGS: "recordings",
    SIGNALS: "records",
    FRAMES: "labels of frames",
}
"""Format of a manifest -> what the corpus holds."""


@contextlib.contextmanager
def workspace(out: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `out`. It replaces `out` if the block succeeds and is removed if it fails.

    Temporary folders of builds that were killed on this host are removed first. Raises UnmaskError if `out` is not
    empty or cannot be written.
    """
    refuse_taken(out)
    remove_stale(out)
    partial = partial_of(out)
    try:
        with writing(out):
            partial.mkdir(parents=True)
        yield partial
        refuse_taken(out)
        with writing(out):
            if out.exists():
                out.rmdir()
            os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_taken(out: Path) -> None:
    """Raises UnmaskError if `out` is a file, a folder that is not empty, or a folder that cannot be replaced."""
    with writing(out):
        if not out.exists() or (out.is_dir() and not any(out.iterdir())):
            check_replaceable(out)
            return
    if (out / MANIFEST).is_file():
        raise UnmaskError(f"{out} already holds a corpus; choose another folder, or delete it to build it again.")
    raise UnmaskError(f"{out} already exists and is not empty; choose another folder.")


def remove_stale(out: Path) -> None:
    """Remove temporary folders of builds of `out` on this host whose process has ended."""
    prefix = _partial(out)
    for path in out.parent.glob(f"{glob.escape(prefix)}*"):
        process = path.name.removeprefix(prefix)
        # A folder with the number of this process is from an earlier one: numbers are reused, in containers soon.
        if process.isdecimal() and (int(process) == os.getpid() or not _alive(int(process))):
            shutil.rmtree(path, ignore_errors=True)


def partial_of(out: Path) -> Path:
    """The temporary folder of this process: a hidden sibling of `out`."""
    return out.parent / f"{_partial(out)}{os.getpid()}"


def _partial(out: Path) -> str:
    return f".{out.name}.partial-{platform.node()}-"


def _alive(process: int) -> bool:
    if os.name != "posix":
        return True  # on other systems, signal 0 is not harmless
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


class Checked:
    """An open file for writing, with its checksum so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.digest = hashlib.sha256()
        self.size = 0
        with writing(path):
            self.file: IO[bytes] = open(path, "wb", buffering=1 << 20)  # noqa: SIM115

    def write(self, array: np.ndarray) -> None:
        content = array.tobytes()
        self.digest.update(content)
        self.size += len(content)
        with writing(self.path):
            self.file.write(content)

    def close(self) -> dict[str, Any]:
        with writing(self.path), self.file:
            self.file.flush()
            os.fsync(self.file.fileno())
        return {"bytes": self.size, "sha256": self.digest.hexdigest()}


class Array(Protocol):
    """A one-dimensional array whose slices are read: memory-mapped, or in a cache."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> np.ndarray: ...


class Folder(Protocol):
    """The folder of a corpus: on this machine, or at an address (`cached.Cached`).

    near  whether all its files are on this machine
    """

    @property
    def near(self) -> bool: ...

    def home(self, shard: Callable[[str], bool]) -> Path:
        """A local folder with the manifest and all files for whose names `shard` is False."""

    def array(self, name: str, files: Mapping[str, Any], dtype: np.dtype) -> Array:
        """A file as an array; `files` has the size and the checksum of each file."""


@dataclass(frozen=True)
class Local:
    """A folder of this machine."""

    path: Path
    near = True

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    def home(self, shard: Callable[[str], bool]) -> Path:
        return self.path

    def array(self, name: str, files: Mapping[str, Any], dtype: np.dtype) -> Array:
        """A memory map, so that the file is not read here. Raises UnmaskError if it cannot be opened."""
        return mapped(self.path / name, dtype)


def folder_of(given: Path | str | Folder) -> Folder:
    """A path as a folder of this machine; any other folder is returned as it is."""
    return Local(Path(given)) if isinstance(given, str | Path) else given


def mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    """A read-only memory map of a file, as a plain array: slices of `np.memmap` take ten times as long."""
    try:
        return np.memmap(path, dtype, mode="r").view(np.ndarray)
    except (OSError, ValueError) as error:
        raise UnmaskError(f"{path} cannot be read: {error}. Build the corpus again.") from None


def seal(folder: Path, format: str, version: int, facts: Mapping[str, Any]) -> None:
    """Write the manifest, whose last field is the checksum of the others."""
    manifest = {"format": format, "version": version, **facts}
    write_text(folder / MANIFEST, json.dumps(manifest | {"checksum": checksum_of(manifest)}, indent=2) + "\n")


def read_manifest(folder: Path, format: str, version: int) -> dict[str, Any]:
    """The manifest of a corpus, without its checksum. Raises UnmaskError if it is damaged, or of another kind."""
    path = folder / MANIFEST
    if not folder.exists():
        beside = sorted(str(other.parent) for other in folder.parent.glob(f"*/{MANIFEST}"))
        known = f"; there are {', '.join(beside[:NAMED])}" if beside else ""
        raise UnmaskError(
            f"There is no corpus {folder}{known}. Build one: unmask corpus build --data FILE --out {folder}"
        )
    if not path.is_file():
        command = f"unmask corpus build --data {folder} --out corpora/{folder.name}"
        raise UnmaskError(f"{folder} is not a corpus: it has no {MANIFEST}. Build one: {command}")
    manifest = read_json(path)
    if manifest.get("format") in KINDS.keys() - {format}:
        raise UnmaskError(f"{folder} is a corpus of {KINDS[manifest['format']]}, not of {KINDS[format]}.")
    if manifest.get("format") != format:
        raise UnmaskError(f"{path} does not describe a corpus of unmask; make one with `unmask corpus build`.")
    if manifest.get("version") != version:
        raise UnmaskError(
            f"{path} has version {manifest.get('version')}, but this program reads {version}; build the corpus again."
        )
    if manifest.pop("checksum", None) != checksum_of(manifest):
        raise UnmaskError(f"{path} does not match its own checksum: it is damaged; build the corpus again.")
    return manifest


def format_of(folder: Path) -> str | None:
    """The format that the manifest of a folder names; None if the folder is not a corpus. Raises UnmaskError for a
    corpus whose manifest is damaged."""
    if not (folder / MANIFEST).is_file():
        return None
    try:
        found = read_json(folder / MANIFEST).get("format")
    except UnmaskError:
        if any(folder.glob("*-00000.*")):  # a shard; else the file is not ours
            raise
        return None
    return found if found in KINDS else None


def checksum_of(facts: Mapping[str, Any]) -> str:
    """SHA-256 of facts that JSON can hold."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

"""Atomic writes, so that a file is complete or absent, and a manifest of checksums that detects a damaged folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

MANIFEST = "manifest.json"
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")  # as `atomic` names them


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError, such as a full disk or a folder without write permission, into an UnmaskError."""
    try:
        yield
    except OSError as error:
        raise UnmaskError(f"{path} could not be written: {error.strerror or error}.") from error


def check_place(path: Path) -> None:
    """Raises UnmaskError if no file can be written at `path`. Call it before a long computation."""
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=next(folder for folder in path.parents if folder.exists())):
            pass


def check_replaceable(folder: Path) -> None:
    """Raises UnmaskError if the folder is a link or a mount, which another folder cannot replace."""
    if folder.is_symlink() or os.path.ismount(folder):
        raise UnmaskError(f"{folder} is a link or a mount, which cannot be replaced: name a folder within it.")


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder. It replaces `path` if the block succeeds and is removed if it fails.

    Temporary files of the same name that killed processes left behind are removed first. Raises UnmaskError if the
    disk is full or the folder cannot be written.
    """
    temporary: Path | None = None
    handle: int | None = None
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            sweep(path.parent, path.name)
            # Locked until it replaces `path`, so that `sweep` in another process does not remove it.
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
            temporary = Path(name)
            if not locked(handle, otherwise=False):
                os.close(handle)  # a platform without locks may not be able to rename an open file
                handle = None
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            os.replace(temporary, path)
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):  # missing permission may be the reason for the failure
                temporary.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder in the same place, which becomes `folder` if the block succeeds and is removed if it fails.

    Raises UnmaskError if the disk is full or nothing can be written there.
    """
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
            whole = Path(name) / "whole"
            whole.mkdir()
            yield whole
            whole.rename(folder)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time build a folder that several may need: the others wait. A file beside it is the lock.

    Raises UnmaskError if nothing can be written there.
    """
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder.parent / f".{folder.name}.lock", os.O_CREAT | os.O_RDWR)
    try:
        with contextlib.suppress(ImportError, OSError):  # Windows and some network file systems have no such locks
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sweep(folder: Path, name: str = "") -> None:
    """Remove the temporary files of the file `name`, or of all files, in a folder, except those that a running process
    is writing."""
    try:
        found = [p for p in folder.iterdir() if p.name.startswith(f".{name}") and _TEMPORARY.fullmatch(p.name)]
    except OSError:
        return
    for path in found:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR)
            try:
                if locked(descriptor, otherwise=False):
                    path.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def locked(descriptor: int, *, otherwise: bool = True) -> bool:
    """Lock an open file without waiting. The lock ends when the file is closed or the process ends, even by a crash.

    Returns False if another process holds the lock, and `otherwise` if the file system or platform has no locks.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return otherwise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return otherwise
    return True


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_tsv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table atomically, with the names of its columns in the first line."""
    write_text(path, "".join("\t".join(row) + "\n" for row in (columns, *rows)))


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes, computed in bounded memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(path: Path) -> dict[str, Any]:
    """Size and checksum of a file, in the form of a manifest entry."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def check(folder: Path, facts: Mapping[str, Any], advice: str, *, checksums: bool = True) -> None:
    """Compare the files of a folder with the sizes and checksums that `describe` returned, by name.

    advice     the last sentence of the message: what to do about a file that differs
    checksums  compare checksums too, which reads every byte; else only sizes are compared

    Raises UnmaskError, which names the first file that is missing or differs, or a name that leads out of the folder.
    """
    for name, fact in facts.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not isinstance(fact, Mapping):
            raise UnmaskError(f"{folder / MANIFEST} is damaged at '{name}'. {advice}")
        if not path.is_file():
            raise UnmaskError(f"{path} is missing although {MANIFEST} lists it. {advice}")
        try:
            sound = path.stat().st_size == fact.get("bytes") and (not checksums or sha256(path) == fact.get("sha256"))
        except OSError as error:
            raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None
        if not sound:
            raise UnmaskError(
                f"{path} does not match its {'checksum' if checksums else 'size'}: "
                f"it is damaged, or was changed by hand. {advice}"
            )


def write_manifest(folder: Path, names: list[str]) -> None:
    """Record size and checksum of the files `names` in the folder's manifest. Call it last, after writing the files."""
    files = {name: describe(folder / name) for name in sorted(names)}
    write_text(folder / MANIFEST, json.dumps({"files": files}, indent=2) + "\n")


def verify_manifest(folder: Path) -> None:
    """Compare a folder with its manifest, if it has one. Raises UnmaskError, naming the first file that differs."""
    from unmask.config import read_json

    if not (folder / MANIFEST).exists():
        return
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict):
        raise UnmaskError(f"{folder / MANIFEST} is damaged: it lists no files. Restore the folder from a copy.")
    advice = f"Restore the folder from a copy, or delete {folder / MANIFEST} if the change was meant."
    check(folder, files, advice)

"""Files that are whole or absent: atomic writes, and a manifest of checksums that tells a damaged folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from unmask.errors import UnmaskError

MANIFEST = "manifest.json"


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, put in its place when the block ends well and removed when it does not.

    Raises UnmaskError, in one sentence, where the disk is full or the folder cannot be written.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise UnmaskError(f"{path} could not be written: {error.strerror or error}.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file, whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes, read in bounded memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, names: list[str]) -> None:
    """Record size and checksum of `names` in the folder's manifest; written last, it seals the folder."""
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in sorted(names)}
    write_text(folder / MANIFEST, json.dumps({"files": files}, indent=2) + "\n")


def verify_manifest(folder: Path) -> None:
    """Compare a folder with its manifest, if it has one. Raises UnmaskError naming the first file that differs."""
    from unmask.config import read_json

    if not (folder / MANIFEST).exists():
        return
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict):
        raise UnmaskError(f"{folder / MANIFEST} is damaged: it lists no files. Restore the folder from a copy.")
    for name, fact in files.items():
        path = folder / name
        if Path(name).name != name or not isinstance(fact, dict):
            raise UnmaskError(f"{folder / MANIFEST} is damaged at '{name}'. Restore the folder from a copy.")
        if not path.is_file():
            raise UnmaskError(f"{path} is missing although {MANIFEST} lists it. Restore the folder from a copy.")
        if path.stat().st_size != fact.get("bytes") or sha256(path) != fact.get("sha256"):
            raise UnmaskError(
                f"{path} does not match its checksum: it is damaged, or was changed by hand. "
                f"Restore it from a copy, or delete {folder / MANIFEST} if the change was meant."
            )

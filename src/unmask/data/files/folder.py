"""MediaFolder: the files of a kind in a folder, without labels, as data for pre-training; damaged ones are left out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from unmask.data.files.damage import Failures, check_damaged, damaged
from unmask.data.files.items import Medium
from unmask.errors import Missing, UnmaskError, plural

HELD_OUT = 50  # one file in 50 is held out of training
LEAST = 2  # smallest number of files: one for training, one for evaluation

Header = TypeVar("Header")


def held_out(names: Iterable[bytes]) -> np.ndarray:
    """[N] bool: the files that are held out of training, one in HELD_OUT by the hash of its name; at least one."""
    hashes = [int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") for name in names]
    found = np.array([one % HELD_OUT == 0 for one in hashes], bool)
    if not found.any():
        found[hashes.index(min(hashes))] = True
    return found


class MediaFolder(Generic[Header]):
    """The files of a kind in a folder and its subfolders. One in 50 is held out, by the hash of its name.

    paths    of the files whose header is sound; `headers` has what `read` returned for each
    failures of decoding, which the splits share

    Files without a sound header are left out and counted in `notes`. Raises UnmaskError for a folder that does not
    exist, for one with fewer than two files, and if more than MOST_DAMAGED of them are damaged.
    """

    def __init__(self, folder: Path | str, medium: Medium, read: Callable[[Path], Header]) -> None:
        self.folder, noun = Path(folder), medium.noun
        if not self.folder.is_dir():
            instead = f": make a corpus of it with unmask corpus build {folder}" if self.folder.is_file() else ""
            raise UnmaskError(f"There is no folder of {noun}s {folder}{instead}.")
        paths, _ = medium.files_in(self.folder)
        self.paths, self.headers, reasons = list[Path](), list[Header](), list[str]()
        for path in paths:
            try:
                self.headers.append(read(path))
                self.paths.append(path)
            except Missing:  # a package; the file may be valid
                raise
            except UnmaskError as error:
                reasons.append(str(error))
        check_damaged(reasons, len(paths), noun)
        self._left_out = (f"{damaged(reasons, len(paths), noun)} Damaged {noun}s are left out.",) if reasons else ()
        if len(self.paths) < LEAST:
            few = plural(len(self.paths), noun) if self.paths else f"no {noun}s"
            raise UnmaskError(
                f"{folder} has {few}, but at least {LEAST} are needed: files such as {medium.usual}, in it or in its "
                "subfolders."
            )
        held = held_out(self._name(path) for path in self.paths)
        self.parts = {"train": np.flatnonzero(~held), "heldout": np.flatnonzero(held)}
        self.failures = Failures(len(paths), noun)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the files that were left out, or could not be decoded so far."""
        return (*self._left_out, *self.failures.said())

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the names and the sizes of the files."""
        lines = [f"{path.relative_to(self.folder)}\t{path.stat().st_size}\n" for path in self.paths]
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def _name(self, path: Path) -> bytes:
        return str(path.relative_to(self.folder)).encode("utf-8", "surrogateescape")

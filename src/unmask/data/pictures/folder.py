"""PictureFolder: the pictures of a folder, without labels, as a source for pre-training; damaged ones are left out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from unmask.data.pictures.decoding import Source, decode, header
from unmask.data.pictures.items import SHOWN, files_in
from unmask.data.pictures.processor import FILE, ImageProcessor
from unmask.errors import UnmaskError, plural

HELD_OUT = 50  # one picture in 50 is held out of training
LEAST = 2  # smallest number of pictures: one for training, one for evaluation
MOST_DAMAGED = 0.1  # largest share of pictures that may be damaged


class Failures:
    """The pictures of a folder whose decoding failed, from all processes that share a copy of this.

    count  number of pictures of the folder

    Each process appends to a temporary file, which exists after the first failure and is removed with this object.
    """

    def __init__(self, count: int, path: Path | None = None) -> None:
        self.count, self.path = count, path or Path(tempfile.gettempdir()) / f"unmask-{secrets.token_hex(16)}.jsonl"
        if path is None:
            weakref.finalize(self, _remove, self.path)
        self._own: set[str] = set()

    def note(self, reason: str) -> None:
        """Note a reason, which names the picture. Raises UnmaskError if more than MOST_DAMAGED of the pictures fail."""
        if reason in self._own:
            return
        self._own.add(reason)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with contextlib.suppress(OSError), os.fdopen(os.open(self.path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(reason) + "\n")
        check_damaged(self.reasons(), self.count)

    def reasons(self) -> list[str]:
        """The reasons so far, sorted, each once."""
        found = set(self._own)
        with contextlib.suppress(OSError, ValueError):
            found.update(json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines())
        return sorted(found)

    def __reduce__(self) -> tuple[Callable[[int, Path], Failures], tuple[int, Path]]:
        return Failures, (self.count, self.path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Pictures:
    """Some pictures as a source. Unit i is the pixels of picture i, [H, W, C] uint8, decoded when it is read.

    failures  the pictures of the folder that could not be decoded so far; None: the first of them is an error
    """

    sources: Sequence[Source]
    channels: int = 3
    failures: Failures | None = None

    @property
    def cost(self) -> np.ndarray:
        """[U] int64: 1 for each picture."""
        return np.ones(len(self.sources), np.int64)

    def read(self, unit: int) -> np.ndarray:
        """Decode a picture. In place of one that cannot be decoded, the next one that can is read, after the last the
        first. So a damaged file does not end a run, and the order stays a function of the seed.

        Raises UnmaskError if no picture, or too few of the folder, can be decoded.
        """
        count = len(self.sources)
        for number in ((unit + step) % count for step in range(count)):
            try:
                return decode(self.sources[number], self.channels)
            except UnmaskError as error:
                if self.failures is None:
                    raise
                self.failures.note(str(error))
        raise UnmaskError("No picture can be decoded.")

    def of_channels(self, channels: int) -> Pictures:
        """A copy with another number of channels, and the same failures."""
        return replace(self, channels=channels)


def damaged(reasons: Iterable[str], count: int) -> str:
    """Sentences that say how many of `count` pictures are damaged, and why the first of them are."""
    reasons = list(reasons)
    more = f" And {len(reasons) - SHOWN:,} more." if len(reasons) > SHOWN else ""
    return f"{len(reasons):,} of {plural(count, 'picture')} cannot be read: {' '.join(reasons[:SHOWN])}{more}"


def check_damaged(reasons: Iterable[str], count: int, most: float = MOST_DAMAGED) -> None:
    """Raises UnmaskError if more than a share `most` of `count` pictures are damaged."""
    reasons = list(reasons)
    if len(reasons) > most * count:
        raise UnmaskError(
            f"{damaged(reasons, count)} At most {most:.0%} may be damaged; remove them, "
            "or build a corpus with a larger --most-damaged."
        )


def held_out(names: Iterable[bytes]) -> np.ndarray:
    """[N] bool: the pictures that are held out of training, one in HELD_OUT by the hash of its name; at least one."""
    hashes = [int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") for name in names]
    found = np.array([one % HELD_OUT == 0 for one in hashes], bool)
    if not found.any():
        found[hashes.index(min(hashes))] = True
    return found


class PictureFolder:
    """The pictures of a folder and its subfolders. One in 50 is held out, by the hash of its name.

    Files whose first bytes are not those of a picture, and pictures that are too large, are left out and counted in
    `notes`. Raises UnmaskError for a folder that does not exist, for one with fewer than two pictures, and if more than
    MOST_DAMAGED of them are damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            instead = f": make a corpus of it with unmask corpus build {folder}" if self.folder.is_file() else ""
            raise UnmaskError(f"There is no folder of pictures {folder}{instead}.")
        paths, _ = files_in(self.folder)
        reasons: dict[Path, str] = {}
        for path in paths:
            try:
                header(path)
            except UnmaskError as error:
                reasons[path] = str(error)
        check_damaged(reasons.values(), len(paths))
        self.paths = [path for path in paths if path not in reasons]
        self._left_out = f"{damaged(reasons.values(), len(paths))} Damaged pictures are left out." if reasons else ""
        if len(self.paths) < LEAST:
            raise UnmaskError(
                f"{folder} has {len(self.paths) or 'no'} pictures, but at least {LEAST} are needed: files such as .jpg "
                "or .png, in it or in its subfolders."
            )
        held = held_out(self._name(path) for path in self.paths)
        self._parts = {"train": np.flatnonzero(~held), "heldout": np.flatnonzero(held)}
        self._failures = Failures(len(paths))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the pictures that were left out, or could not be decoded so far."""
        notes = [self._left_out] if self._left_out else []
        if reasons := self._failures.reasons():
            notes.append(f"{damaged(reasons, self._failures.count)} In place of each, the next one is read.")
        return tuple(notes)

    @property
    def processor(self) -> ImageProcessor:
        """The processor of the folder's preprocessor_config.json; without this file, the default one."""
        return ImageProcessor.load(self.folder) if (self.folder / FILE).is_file() else ImageProcessor()

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the names and the sizes of the files."""
        lines = [f"{path.relative_to(self.folder)}\t{path.stat().st_size}\n" for path in self.paths]
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def split(self, name: str) -> Pictures:
        """The split "train" or "heldout"."""
        return Pictures([self.paths[i] for i in self._parts[name]], failures=self._failures)

    def _name(self, path: Path) -> bytes:
        return str(path.relative_to(self.folder)).encode("utf-8", "surrogateescape")

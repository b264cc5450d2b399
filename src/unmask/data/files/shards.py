"""Shards: decoded pictures or recordings in memory-mapped arrays, with their names and labels.

A shard has six raw arrays of N units; VALUES is `pixels` or `samples`:

NAME.VALUES   the values of the units, one after another
NAME.shapes   little-endian uint32 [N, K]: of a picture height, width, channels; of a recording where it begins in its
              file, and its number of samples
NAME.labels   little-endian int32 [N]: number of the class, -1 without one
NAME.digests  uint8 [N, 16]: a hash of the file, and of the part of it if the unit is a part (BLAKE2b)
NAME.names    names in UTF-8, one after another
NAME.ends     little-endian uint32 [N]: end of each name, in bytes
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from unmask.data.files.corpora import Checked, mapped
from unmask.errors import UnmaskError

BOUND, LABEL, BYTE = np.dtype("<u4"), np.dtype("<i4"), np.dtype("u1")
DIGEST = 16  # bytes
SHARD_BYTES = 1 << 30  # approximate size of a shard
LONGEST_NAME = 4096  # bytes; a longer name is cut


class MediaShard:
    """One memory-mapped shard of N units. A subclass decides what the values and the shapes are.

    noun     one unit: "picture"
    values   suffix of the file with the values
    dtype    of the values
    columns  K, numbers of a shape

    shapes  [N, K] uint32
    labels  [N] int32: number of the class, or -1
    begins  [N + 1] int64: begin of each unit in the values
    """

    noun: ClassVar[str]
    values: ClassVar[str]
    dtype: ClassVar[np.dtype]
    columns: ClassVar[int]

    def __init__(self, folder: Path, name: str) -> None:
        """Raises UnmaskError, which names the file that is missing or does not match the others."""
        self.folder, self.name = folder, name
        self.path = folder / f"{name}.{self.values}"
        self._values = mapped(self.path, self.dtype)
        self.labels = mapped(folder / f"{name}.labels", LABEL)
        shapes, digests, names, ends = (
            mapped(folder / f"{name}.{kind}", dtype)
            for kind, dtype in (("shapes", BOUND), ("digests", BYTE), ("names", BYTE), ("ends", BOUND))
        )
        count = len(self.labels)
        if len(shapes) != self.columns * count or len(digests) != DIGEST * count or len(ends) != count:
            raise UnmaskError(f"{self.path} does not match its shapes and labels; build the corpus again.")
        self.shapes, self.digests, self._names = shapes.reshape(-1, self.columns), digests.reshape(-1, DIGEST), names
        self.begins = np.concatenate([[0], np.cumsum(self.sizes(self.shapes.astype(np.int64)))])
        self._ends = np.concatenate([[0], ends.astype(np.int64)])
        sound = self.sound() and (np.diff(self._ends) > 0).all()
        if not sound or self.begins[-1] != len(self._values) or self._ends[-1] != len(names):
            raise UnmaskError(f"{self.path} does not match its shapes and names; build the corpus again.")

    @staticmethod
    def sizes(shapes: np.ndarray) -> np.ndarray:
        """[N] the number of values of units with these shapes [N, K]."""
        raise NotImplementedError

    def sound(self) -> bool:
        """Whether the shapes are those of units."""
        return bool((np.diff(self.begins) > 0).all())

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, number: int) -> np.ndarray:
        """The values of a unit: a view of the map."""
        return self._values[self.begins[number] : self.begins[number + 1]]

    def named(self, number: int) -> bytes:
        """The name of a unit, in UTF-8 with escaped surrogates."""
        return self._names[self._ends[number] : self._ends[number + 1]].tobytes()

    def __reduce__(self) -> tuple[Callable[[Path, str], MediaShard], tuple[Path, str]]:
        return type(self), (self.folder, self.name)


class Unit(NamedTuple):
    """A decoded unit: a picture, a recording, or a part of one.

    name    of its file; the same for all parts
    label   "" without one
    values  empty if only a description was asked for
    shape   K numbers
    digest  DIGEST bytes
    facts   what else is known of it
    """

    name: str
    label: str
    values: np.ndarray
    shape: tuple[int, ...]
    digest: bytes
    facts: Any = None


class ShardWriter:
    """Writes units into shards of about `limit` bytes, and computes their checksums.

    shards   name and number of units of each finished shard
    files    name -> bytes and sha256 of each finished file
    classes  label -> its number
    """

    def __init__(self, folder: Path, shard: type[MediaShard], limit: int = SHARD_BYTES) -> None:
        self.folder, self.shard, self.limit = folder, shard, limit
        self.shards: list[dict[str, Any]] = []
        self.files: dict[str, dict[str, Any]] = {}
        self.classes: dict[str, int] = {}
        self._file: Checked | None = None
        self._begin()

    def add(self, unit: Unit) -> None:
        """Add a unit; its values have the type of the shard."""
        if self._file is not None and self._file.size + unit.values.nbytes > self.limit:
            self.close()
        if self._file is None:
            self._file = self._open(self.shard.values)
        self._file.write(unit.values)
        self._shapes.append(unit.shape)
        self._labels.append(self.classes.setdefault(unit.label, len(self.classes)) if unit.label else -1)
        self._digests.append(unit.digest)
        self._names.append(unit.name.encode("utf-8", "surrogateescape")[:LONGEST_NAME] or b"-")

    def close(self) -> None:
        """Finish the open shard, if there is one."""
        if self._file is None:
            return
        self._close(self._file)
        arrays: dict[str, np.ndarray] = {
            "shapes": np.array(self._shapes, BOUND),
            "labels": np.array(self._labels, LABEL),
            "digests": np.frombuffer(b"".join(self._digests), BYTE),
            "names": np.frombuffer(b"".join(self._names), BYTE),
            "ends": np.cumsum([len(name) for name in self._names]).astype(BOUND),
        }
        for kind, array in arrays.items():
            file = self._open(kind)
            file.write(array)
            self._close(file)
        self.shards.append({"name": self._name, f"{self.shard.noun}s": len(self._labels)})
        self._file = None
        self._begin()

    def abandon(self) -> None:
        """Close the open file, if there is one, without finishing the shard."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.file.close()

    def opened(self) -> list[MediaShard]:
        """The finished shards."""
        return [self.shard(self.folder, one["name"]) for one in self.shards]

    def _begin(self) -> None:
        self._shapes: list[tuple[int, ...]] = []
        self._labels: list[int] = []
        self._digests: list[bytes] = []
        self._names: list[bytes] = []

    @property
    def _name(self) -> str:
        return f"{self.shard.noun}s-{len(self.shards):05d}"

    def _open(self, kind: str) -> Checked:
        return Checked(self.folder / f"{self._name}.{kind}")

    def _close(self, file: Checked) -> None:
        self.files[file.path.name] = file.close()

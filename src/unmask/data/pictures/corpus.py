"""PictureCorpus: decoded pictures in memory-mapped shards, with their names and labels.

A shard has five raw arrays of N pictures:

NAME.pixels   uint8: the pictures one after another, each [H, W, C] with C = 1 if it is grey, else 3
NAME.shapes   little-endian uint32 [N, 3]: H, W, C
NAME.labels   little-endian int32 [N]: number of the class, -1 without one
NAME.digests  uint8 [N, 16]: a hash of the file (BLAKE2b)
NAME.names    names in UTF-8, one after another
NAME.ends     little-endian uint32 [N]: end of each name, in bytes
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.corpora import PICTURES, VERIFY_BELOW, checksum_of, format_of, mapped, read_manifest
from unmask.data.files.folder import LEAST, held_out
from unmask.data.files.items import shares
from unmask.data.pictures.decoding import Source, of_channels
from unmask.data.pictures.folder import Pictures
from unmask.data.pictures.items import PICTURES as MEDIUM
from unmask.data.pictures.processor import FILE, ImageProcessor
from unmask.errors import UnmaskError, plural, unknown
from unmask.files import check

VERSION = 1
BOUND, LABEL, BYTE = np.dtype("<u4"), np.dtype("<i4"), np.dtype("u1")
DIGEST = 16  # bytes


class Shard:
    """One memory-mapped shard of N pictures.

    shapes  [N, 3] uint32: height, width, channels
    labels  [N] int32: number of the class, or -1
    begins  [N + 1] int64: begin of each picture in the pixels
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Raises UnmaskError, which names the file that is missing or does not match the others."""
        self.folder, self.name = folder, name
        self.path = folder / f"{name}.pixels"
        self._pixels = mapped(self.path, BYTE)
        self.labels = mapped(folder / f"{name}.labels", LABEL)
        shapes, digests, names, ends = (
            mapped(folder / f"{name}.{kind}", dtype)
            for kind, dtype in (("shapes", BOUND), ("digests", BYTE), ("names", BYTE), ("ends", BOUND))
        )
        count = len(self.labels)
        if len(shapes) != 3 * count or len(digests) != DIGEST * count or len(ends) != count:
            raise UnmaskError(f"{self.path} does not match its shapes and labels; build the corpus again.")
        self.shapes, self.digests, self._names = shapes.reshape(-1, 3), digests.reshape(-1, DIGEST), names
        self.begins = np.concatenate([[0], np.cumsum(self.shapes.astype(np.int64).prod(1))])
        self._ends = np.concatenate([[0], ends.astype(np.int64)])
        sound = np.isin(self.shapes[:, 2], (1, 3)).all() and (np.diff(self._ends) > 0).all() and self.shapes.all()
        if not sound or self.begins[-1] != len(self._pixels) or self._ends[-1] != len(names):
            raise UnmaskError(f"{self.path} does not match its shapes and names; build the corpus again.")

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, number: int) -> np.ndarray:
        """[H, W, C] uint8: a view of the map."""
        return self._pixels[self.begins[number] : self.begins[number + 1]].reshape(self.shapes[number])

    def named(self, number: int) -> bytes:
        """The name of a picture, in UTF-8 with escaped surrogates."""
        return self._names[self._ends[number] : self._ends[number + 1]].tobytes()

    def __reduce__(self) -> tuple[Callable[[Path, str], Shard], tuple[Path, str]]:
        return Shard, (self.folder, self.name)


@dataclass(frozen=True, slots=True)
class Stored:
    """A picture of a shard: a handle, without its pixels."""

    shard: Shard
    number: int

    @property
    def digest(self) -> str:
        """The hash of the file that the picture came from."""
        return self.shard.digests[self.number].tobytes().hex()

    def pixels(self, channels: int | None = None) -> np.ndarray:
        """[H, W, C] uint8: a view of the map, unless the picture has another number of channels."""
        return of_channels(self.shard.read(self.number), channels)


class PictureCorpus(Sequence[Stored]):
    """An open corpus of pictures, in the order of the data that it was built from.

    manifest   the content of manifest.json: counts, checksums, classes, pictures that were left out
    notes      sentences on what could not be read: none, since the pictures are decoded already
    """

    notes: Sequence[str] = ()

    def __init__(self, folder: Path | str, *, verify: bool | None = None) -> None:
        """Open a folder that `build` wrote.

        verify  whether to compare checksums; None: if the corpus is below 1 GiB. Sizes are always compared

        Raises UnmaskError, which names the file that is missing, damaged or inconsistent.
        """
        self.folder = Path(folder)
        try:
            self.manifest = read_manifest(self.folder, PICTURES, VERSION)
            self.bytes = sum(fact["bytes"] for fact in self.manifest["files"].values())
            if verify is None:
                verify = self.bytes < VERIFY_BELOW
            check(self.folder, self.manifest["files"], "Build the corpus again.", checksums=verify)
        except OSError as error:
            raise UnmaskError(f"{error.filename or folder} cannot be read: {error.strerror or error}.") from None
        self.classes: list[str] = list(self.manifest["classes"])
        self.shards = [Shard(self.folder, one["name"]) for one in self.manifest["shards"]]
        self._origins = list(accumulate(map(len, self.shards), initial=0))
        if any(shard.labels.max() >= len(self.classes) or shard.labels.min() < -1 for shard in self.shards):
            raise UnmaskError(f"{folder} has a picture with a class that its manifest lacks; build the corpus again.")

    def __len__(self) -> int:
        return self._origins[-1]

    def __getitem__(self, number: Any) -> Any:
        """The handle of a picture."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        shard = bisect_right(self._origins, number) - 1
        return Stored(self.shards[shard], int(number) - self._origins[shard])

    def name(self, number: int) -> str:
        """The name of a picture in the data that the corpus was built from."""
        stored = self[number]
        return stored.shard.named(stored.number).decode("utf-8", "surrogateescape")

    def label(self, number: int) -> str:
        """The label of a picture, "" without one."""
        stored = self[number]
        found = int(stored.shard.labels[stored.number])
        return "" if found < 0 else self.classes[found]

    @property
    def labelled(self) -> bool:
        """Whether all pictures have a label."""
        return all(shard.labels.min() >= 0 for shard in self.shards)

    @property
    def processor(self) -> ImageProcessor:
        """The processor of the folder that the corpus was built from, if it had one; else the default one."""
        return ImageProcessor.load(self.folder) if (self.folder / FILE).is_file() else ImageProcessor()

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the content of the corpus, which does not depend on its path."""
        return checksum_of(self.manifest["files"])

    def split(self, name: str) -> Pictures:
        """The split "train" or "heldout", the same as that of the folder that the corpus was built from. Raises
        UnmaskError for a corpus of one picture."""
        if name not in ("train", "heldout"):
            raise unknown(f"split of {self.folder}", name, ("train", "heldout"))
        if len(self) < LEAST:
            raise UnmaskError(f"{self.folder} has 1 picture, but at least {LEAST} are needed.")
        return Pictures(Chosen(self, np.flatnonzero(self._held if name == "heldout" else ~self._held)))

    @cached_property
    def _held(self) -> np.ndarray:
        return held_out(shard.named(number) for shard in self.shards for number in range(len(shard)))

    def summary(self) -> str:
        """The size and content of the corpus, in a few lines."""
        facts = self.manifest
        count = plural(len(self), "picture")
        lines = [f"Corpus {self.folder}: {count}, {self.bytes / 1e6:,.1f} MB."]
        if self.classes:
            lines.append(f"  classes    {shares(facts['classes'])}")
        lines.append(f"  sizes      {shares(facts['sizes'])}")
        return "\n".join([*lines, *(f"  {note}" for note in facts["notes"])])

    def __iter__(self) -> Iterator[Stored]:
        for shard in self.shards:
            for number in range(len(shard)):
                yield Stored(shard, number)

    def __reduce__(self) -> tuple[Callable[[Path], PictureCorpus], tuple[Path]]:
        return _reopened, (self.folder,)


@dataclass(frozen=True)
class Chosen(Sequence[Stored]):
    """Some pictures of a corpus, by their numbers [U]."""

    corpus: PictureCorpus
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, unit: Any) -> Any:
        """The handle of a picture."""
        return self.corpus[int(self.numbers[unit])]


def named_pictures(folder: Path) -> tuple[Sequence[Source], list[str]]:
    """The pictures of a folder and its subfolders, or of a corpus, and their names. Raises UnmaskError if there are
    none."""
    if not folder.is_dir():
        raise UnmaskError(f"There is no folder of pictures {folder}.")
    if format_of(folder) is not None:
        corpus = PictureCorpus(folder)
        return list(corpus), [corpus.name(number) for number in range(len(corpus))]
    found, _ = MEDIUM.files_in(folder)
    if not found:
        raise UnmaskError(f"{folder} has no pictures: files such as .jpg or .png, in it or in folders in it.")
    return found, [str(path.relative_to(folder)) for path in found]


def _reopened(folder: Path) -> PictureCorpus:
    return PictureCorpus(folder, verify=False)

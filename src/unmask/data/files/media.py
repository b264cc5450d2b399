"""MediaCorpus: what corpora of pictures and of recordings share when they are opened."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from unmask.data.files.corpora import VERIFY_BELOW, checksum_of, read_manifest
from unmask.data.files.folder import LEAST, held_out
from unmask.data.files.items import shares
from unmask.data.files.shards import MediaShard
from unmask.errors import UnmaskError, plural, unknown
from unmask.files import check

Handle = TypeVar("Handle")


class Format(NamedTuple):
    """The format of a corpus: its name and version in the manifest, and the class of its shards."""

    name: str
    version: int
    shard: type[MediaShard]


class MediaCorpus(Sequence[Handle], Generic[Handle]):
    """An open corpus, in the order of the data that it was built from: a sequence of handles, without values.

    manifest   the content of manifest.json: counts, checksums, classes, files that were left out
    notes      sentences on what could not be read: none, since all is decoded already
    """

    format: ClassVar[Format]
    notes: Sequence[str] = ()

    def __init__(self, folder: Path | str, *, verify: bool | None = None) -> None:
        """Open a folder that `build` wrote.

        verify  whether to compare checksums; None: if the corpus is below 1 GiB. Sizes are always compared

        Raises UnmaskError, which names the file that is missing, damaged or inconsistent.
        """
        self.folder = Path(folder)
        try:
            self.manifest = read_manifest(self.folder, self.format.name, self.format.version)
            self.bytes = sum(fact["bytes"] for fact in self.manifest["files"].values())
            if verify is None:
                verify = self.bytes < VERIFY_BELOW
            check(self.folder, self.manifest["files"], "Build the corpus again.", checksums=verify)
        except OSError as error:
            raise UnmaskError(f"{error.filename or folder} cannot be read: {error.strerror or error}.") from None
        self.classes: list[str] = list(self.manifest["classes"])
        self.shards: list[Any] = [self.format.shard(self.folder, one["name"]) for one in self.manifest["shards"]]
        self._origins = list(accumulate(map(len, self.shards), initial=0))
        if any(shard.labels.max() >= len(self.classes) or shard.labels.min() < -1 for shard in self.shards):
            raise UnmaskError(
                f"{folder} has a {self.noun} with a class that its manifest lacks; build the corpus again."
            )

    def handle(self, shard: Any, number: int) -> Handle:
        """The handle of a unit of a shard."""
        raise NotImplementedError

    @property
    def noun(self) -> str:
        return self.format.shard.noun

    def __len__(self) -> int:
        return self._origins[-1]

    def __getitem__(self, number: Any) -> Any:
        """The handle of a unit."""
        return self.handle(*self._place(number))

    def name(self, number: int) -> str:
        """The name of a unit's file in the data that the corpus was built from."""
        shard, place = self._place(number)
        return shard.named(place).decode("utf-8", "surrogateescape")

    def label(self, number: int) -> str:
        """The label of a unit, "" without one."""
        shard, place = self._place(number)
        found = int(shard.labels[place])
        return "" if found < 0 else self.classes[found]

    @property
    def labelled(self) -> bool:
        """Whether all units have a label."""
        return all(shard.labels.min() >= 0 for shard in self.shards)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the content of the corpus, which does not depend on its path."""
        return checksum_of(self.manifest["files"])

    def units(self, name: str) -> np.ndarray:
        """[U] int64: the units of the split "train" or "heldout", which are those of the folder that the corpus was
        built from. Raises UnmaskError for a corpus of one file."""
        if name not in ("train", "heldout"):
            raise unknown(f"split of {self.folder}", name, ("train", "heldout"))
        if self._held.all():
            raise UnmaskError(f"{self.folder} has 1 {self.noun}, but at least {LEAST} are needed.")
        return np.flatnonzero(self._held if name == "heldout" else ~self._held)

    @cached_property
    def _held(self) -> np.ndarray:
        return held_out(shard.named(number) for shard in self.shards for number in range(len(shard)))

    def summary(self) -> str:
        """The size and content of the corpus, in a few lines."""
        facts = self.manifest
        lines = [f"Corpus {self.folder}: {self.counted()}, {self.bytes / 1e6:,.1f} MB."]
        if self.classes:
            lines.append(f"  classes    {shares(facts['classes'])}")
        return "\n".join([*lines, *self.described(), *(f"  {note}" for note in facts["notes"])])

    def counted(self) -> str:
        """The number of files, and of units if some files have several."""
        files = self.manifest[f"{self.noun}s"]
        return plural(files, self.noun) + (f" in {plural(len(self), 'unit')}" if files != len(self) else "")

    def described(self) -> list[str]:
        """Lines of the summary on what the units are like."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Handle]:
        for shard in self.shards:
            for number in range(len(shard)):
                yield self.handle(shard, number)

    def _place(self, number: int) -> tuple[Any, int]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        shard = bisect_right(self._origins, number) - 1
        return self.shards[shard], int(number) - self._origins[shard]

    def __reduce__(self) -> tuple[Callable[[type[Self], Path], Self], tuple[type[Self], Path]]:
        return _reopened, (type(self), self.folder)


Corpus = TypeVar("Corpus", bound=MediaCorpus[Any])


def _reopened(kind: type[Corpus], folder: Path) -> Corpus:
    return kind(folder, verify=False)


class Chosen(Sequence[Any]):
    """Some units of a corpus, by their numbers [U]."""

    def __init__(self, corpus: MediaCorpus[Any], numbers: np.ndarray) -> None:
        self.corpus, self.numbers = corpus, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, unit: Any) -> Any:
        """The handle of a unit."""
        return self.corpus[int(self.numbers[unit])]

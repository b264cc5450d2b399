"""Building a corpus of pictures: decoded once, in parallel, and written into shards; the same for their description."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files import building
from unmask.data.files.building import KEPT, Damage, DecodedBatch, Progress, decoded
from unmask.data.files.damage import MOST_DAMAGED
from unmask.data.files.items import Item, Items
from unmask.data.files.shards import SHARD_BYTES, Unit
from unmask.data.pictures.corpus import PictureCorpus
from unmask.data.pictures.decoding import decode, digest_of, header, shrink
from unmask.data.pictures.processor import FILE, ImageProcessor
from unmask.errors import Missing, UnmaskError


@dataclass(frozen=True)
class Decode:
    """Decodes some pictures; it can be pickled. The facts of a unit are the colour mode of its file.

    side  pixels that the shorter side has at most; None: as it is
    keep  whether to return the pixels, not only a description
    """

    side: int | None = None
    keep: bool = True

    def __call__(self, items: list[Item]) -> DecodedBatch:
        found = DecodedBatch(done=len(items))
        for item in items:
            try:
                pixels_HWC, mode = _decoded(item, self.keep)
                digest = bytes.fromhex(digest_of(item.source))
            except Missing:  # a package; the file may be valid
                raise
            except UnmaskError as error:
                found.damaged.append(Damage(str(error), item.label, item.place))
                continue
            if self.side is not None:
                pixels_HWC = shrink(pixels_HWC, self.side)
            values = pixels_HWC if self.keep else pixels_HWC[:0]
            found.units.append(Unit(item.name, item.label, values, pixels_HWC.shape, digest, mode))
        return found


def _decoded(item: Item, keep: bool) -> tuple[np.ndarray, str]:
    """The pixels of a picture, and, if they are not kept, the colour mode of its file."""
    pixels_HWC = decode(item.source, None, name=item.place)
    if keep or not isinstance(item.source, Path | bytes):
        return pixels_HWC, "RGB" if pixels_HWC.shape[2] == 3 else "L"
    return pixels_HWC, header(item.source, name=item.place)[0]


@dataclass
class Sizes:
    """Counts the sizes of pictures, for the manifest."""

    side: int | None
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, unit: Unit) -> None:
        self.counts[size_of(unit.shape)] += 1

    def facts(self) -> dict[str, Any]:
        return {"side": self.side, "sizes": dict(self.counts.most_common(KEPT))}

    def notes(self) -> list[str]:
        return []


def build(
    items: Items[Any],
    out: Path | str,
    *,
    side: int | None = None,
    workers: int = 1,
    most_damaged: float = MOST_DAMAGED,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> PictureCorpus:
    """Write a corpus folder from pictures, in their order.

    items         as `items_of` finds them
    out           the folder, which must be empty or not exist; it appears only when it is complete
    side          pixels that the shorter side of a picture has at most; larger ones are resized. None: as they are
    workers       number of processes that decode; 1 decodes in a background thread
    most_damaged  largest share of pictures that may be damaged; they are left out, counted, and the first are named
    shard_bytes   approximate size of a file of pixels
    progress      called with (name of the stage, number done, total number or None)

    Memory: some pictures for each worker, and about 300 bytes for each picture, to find copies. Raises UnmaskError if
    there are no pictures, too many are damaged, or `out` cannot be written.
    """
    if side is not None and side < 1:
        raise UnmaskError(f"The side of the pictures must be at least 1 pixel, not {side}.")

    def own(folder: Path) -> Sequence[str]:
        return ImageProcessor.load(items.path).save(folder) if (items.path / FILE).is_file() else ()

    building.build(
        items,
        out,
        decoded(items, Decode(side), workers),
        PictureCorpus.format,
        Sizes(side),
        own=own,
        most_damaged=most_damaged,
        shard_bytes=shard_bytes,
        progress=progress,
    )
    return PictureCorpus(out)


def size_of(shape: tuple[int, ...]) -> str:
    """A size in pixels, such as 640 x 480: width, then height."""
    return f"{shape[1]} x {shape[0]}"

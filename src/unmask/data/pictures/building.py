"""Building a corpus of pictures: decoded once, in parallel, and written into shards; the same for their description.

Shapes: N pictures of a batch.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.copies import copies_note, copies_of
from unmask.data.files.corpora import PICTURES, Checked, seal, workspace
from unmask.data.files.damage import MOST_DAMAGED, check_damaged, damaged
from unmask.data.files.items import SHOWN, Item, Items, visible
from unmask.data.parallel import ordered
from unmask.data.pictures.corpus import BOUND, LABEL, VERSION, PictureCorpus, Shard
from unmask.data.pictures.decoding import Source, decode, digest_of, header, shrink
from unmask.data.pictures.processor import FILE, ImageProcessor
from unmask.errors import UnmaskError
from unmask.files import describe

AT_ONCE, BYTES_AT_ONCE = 64, 1 << 20  # pictures, and bytes of their files, that a process decodes at a time
SHARD_BYTES = 1 << 30  # approximate size of a shard
LONGEST_NAME = 4096  # bytes; a longer name is cut
KEPT = 20  # reasons of damaged pictures that the manifest keeps
Progress = Callable[[str, int, int | None], None]


@dataclass
class DecodedBatch:
    """Some pictures.

    items    name and label of each that could be decoded
    pixels   of each, [H, W, C] uint8; empty if only their description was asked for
    shapes   [N, 3] height, width and channels
    modes    [N] the colour mode of each file
    digests  [N] a hash of each file
    damaged  reason for each that could not be decoded, and its label
    """

    items: list[tuple[str, str]] = field(default_factory=list)
    pixels: list[np.ndarray] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    damaged: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Decode:
    """Decodes some pictures; it can be pickled.

    side  pixels that the shorter side has at most; None: as it is
    keep  whether to return the pixels, not only a description
    """

    side: int | None = None
    keep: bool = True

    def __call__(self, items: list[Item]) -> DecodedBatch:
        found = DecodedBatch()
        for item in items:
            try:
                pixels_HWC, mode = _decoded(item, self.keep)
                digest = bytes.fromhex(digest_of(item.source))
            except UnmaskError as error:
                found.damaged.append((str(error), item.label))
                continue
            if self.side is not None:
                pixels_HWC = shrink(pixels_HWC, self.side)
            found.items.append((item.name, item.label))
            found.shapes.append(pixels_HWC.shape)
            found.modes.append(mode)
            found.digests.append(digest)
            if self.keep:
                found.pixels.append(pixels_HWC)
        return found


def _decoded(item: Item, keep: bool) -> tuple[np.ndarray, str]:
    """The pixels of a picture, and, if they are not kept, the colour mode of its file."""
    pixels_HWC = decode(item.source, None, name=item.place)
    if keep or not isinstance(item.source, Path | bytes):
        return pixels_HWC, "RGB" if pixels_HWC.shape[2] == 3 else "L"
    return pixels_HWC, header(item.source, name=item.place)[0]


class Writer:
    """Writes pictures into shards of about `limit` bytes, and computes their checksums.

    shards  name and number of pictures of each finished shard
    files   name -> bytes and sha256 of each finished file
    """

    def __init__(self, folder: Path, limit: int = SHARD_BYTES) -> None:
        self.folder, self.limit = folder, limit
        self.shards: list[dict[str, Any]] = []
        self.files: dict[str, dict[str, Any]] = {}
        self.classes: dict[str, int] = {}
        self._file: Checked | None = None
        self._begin()

    def add(self, name: str, label: str, pixels_HWC: np.ndarray, digest: bytes) -> None:
        """Add a picture with its name and label, "" without one."""
        if self._file is not None and self._file.size + pixels_HWC.size > self.limit:
            self.close()
        if self._file is None:
            self._file = self._open("pixels")
        self._file.write(pixels_HWC)
        self._shapes.append(pixels_HWC.shape)
        self._labels.append(self.classes.setdefault(label, len(self.classes)) if label else -1)
        self._digests.append(digest)
        self._names.append(name.encode("utf-8", "surrogateescape")[:LONGEST_NAME] or b"-")

    def close(self) -> None:
        """Finish the open shard, if there is one."""
        if self._file is None:
            return
        self._close(self._file)
        arrays: dict[str, np.ndarray] = {
            "shapes": np.array(self._shapes, BOUND),
            "labels": np.array(self._labels, LABEL),
            "digests": np.frombuffer(b"".join(self._digests), np.uint8),
            "names": np.frombuffer(b"".join(self._names), np.uint8),
            "ends": np.cumsum([len(name) for name in self._names]).astype(BOUND),
        }
        for kind, array in arrays.items():
            file = self._open(kind)
            file.write(array)
            self._close(file)
        self.shards.append({"name": self._name, "pictures": len(self._labels)})
        self._file = None
        self._begin()

    def abandon(self) -> None:
        """Close the open file, if there is one, without finishing the shard."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.file.close()

    def _begin(self) -> None:
        self._shapes: list[tuple[int, ...]] = []
        self._labels: list[int] = []
        self._digests: list[bytes] = []
        self._names: list[bytes] = []

    @property
    def _name(self) -> str:
        return f"pictures-{len(self.shards):05d}"

    def _open(self, kind: str) -> Checked:
        return Checked(self.folder / f"{self._name}.{kind}")

    def _close(self, file: Checked) -> None:
        self.files[file.path.name] = file.close()


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
    if not 0 <= most_damaged <= 1:
        raise UnmaskError(f"The largest share of damaged pictures is between 0 and 1, not {most_damaged}.")
    out = Path(out).absolute()
    with workspace(out) as folder:
        writer, broken, lost, done = Writer(folder, shard_bytes), list[str](), set[str](), 0
        classes, sizes = Counter[str](), Counter[str]()
        try:
            for found in decoded(items, Decode(side), workers):
                for (name, label), pixels_HWC, digest in zip(found.items, found.pixels, found.digests, strict=True):
                    writer.add(name, label, pixels_HWC, digest)
                    classes.update([label] if label else [])
                    sizes[size_of(pixels_HWC.shape)] += 1
                broken += [reason for reason, _ in found.damaged]
                lost |= {label for _, label in found.damaged if label}
                done += len(found.items) + len(found.damaged)
                if items.count is not None:
                    check_damaged(broken, items.count, "picture", most_damaged)
                if progress is not None:
                    progress("pictures", done, items.count)
            writer.close()
        finally:
            writer.abandon()
        check_damaged(broken, done, "picture", most_damaged)
        if not writer.shards:
            raise UnmaskError(f"{items.path} has no pictures.")
        notes = [
            *items.notes,
            *([f"{damaged(broken, done, 'picture')} Damaged pictures are left out."] if broken else []),
        ]
        if gone := sorted(lost - classes.keys()):
            notes.append(f"Classes without a picture that can be read: {', '.join(map(visible, gone[:SHOWN]))}")
        notes += _copies([Shard(folder, one["name"]) for one in writer.shards])
        own = items.path / FILE
        if own.is_file():
            names = ImageProcessor.load(items.path).save(folder)
            writer.files |= {name: describe(folder / name) for name in names}
        facts = {
            "pictures": done - len(broken),
            "side": side,
            "classes": {label: classes[label] for label in writer.classes},
            "sizes": dict(sizes.most_common(KEPT)),
            "damaged": {"count": len(broken), "first": broken[:KEPT]},
            "notes": [note.removesuffix(".") + "." for note in notes],
            "shards": writer.shards,
            "files": writer.files,
        }
        seal(folder, PICTURES, VERSION, facts)
    return PictureCorpus(out)


def decoded(items: Items[Any], decode: Decode, workers: int) -> Iterator[DecodedBatch]:
    """All items of some data, decoded in order, some at a time."""
    return ordered(decode, _batches(items), workers if workers > 1 and not items.decoded else 0)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    batch, size = list[Item](), 0
    for item in items:
        batch.append(item)
        size += _size(item.source)
        if len(batch) == AT_ONCE or size >= BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(source: Source) -> int:
    """Bytes of a file; 0 if there is none, which decoding reports."""
    if isinstance(source, bytes):
        return len(source)
    try:
        return source.stat().st_size if isinstance(source, Path) else 0
    except OSError:
        return 0


def size_of(shape: tuple[int, ...]) -> str:
    """A size in pixels, such as 640 x 480: width, then height."""
    return f"{shape[1]} x {shape[0]}"


def _copies(shards: Sequence[Shard]) -> list[str]:
    owners = [(shard, number) for shard in shards for number in range(len(shard))]
    copies = copies_of(digest.tobytes() for shard in shards for digest in shard.digests)

    def name(i: int) -> str:
        shard, number = owners[i]
        return shard.named(number).decode("utf-8", "surrogateescape")

    return copies_note(copies, name, lambda i: owners[i][0].labels[owners[i][1]], "picture")

"""Building a corpus of pictures or recordings: decoded once, in parallel, and written into shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from unmask.data.files.copies import copies_note, copies_of
from unmask.data.files.corpora import seal, workspace
from unmask.data.files.damage import MOST_DAMAGED, check_damaged, damaged
from unmask.data.files.items import SHOWN, Item, Items, visible
from unmask.data.files.media import Format
from unmask.data.files.shards import SHARD_BYTES, MediaShard, ShardWriter, Unit
from unmask.data.parallel import ordered
from unmask.errors import UnmaskError
from unmask.files import describe

AT_ONCE, BYTES_AT_ONCE = 64, 1 << 20  # items, and bytes of their files, that a process decodes at a time
KEPT = 20  # reasons of damaged files that the manifest keeps
Progress = Callable[[str, int, int | None], None]


class Damage(NamedTuple):
    """A file that could not be decoded, or not in all parts.

    place  in messages; the same for all parts
    """

    reason: str
    label: str
    place: str


@dataclass
class DecodedBatch:
    """Some items, decoded.

    units    of those that could be decoded
    damaged  those that could not
    done     number of items that are complete
    """

    units: list[Unit] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    done: int = 0


class Tally(Protocol):
    """Collects what a manifest or a report says of the units."""

    def add(self, unit: Unit) -> None:
        """Count a unit."""

    def facts(self) -> dict[str, Any]:
        """The fields of the manifest."""

    def notes(self) -> list[str]:
        """Sentences for the manifest."""


def build(
    items: Items[Any],
    out: Path | str,
    batches: Iterable[DecodedBatch],
    format: Format,
    tally: Tally,
    *,
    own: Callable[[Path], Sequence[str]] = lambda folder: (),
    most_damaged: float = MOST_DAMAGED,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> None:
    """Write a corpus folder from the items of `batches`, in their order.

    own  writes further files, such as those of a processor, into the folder, and returns their names

    For the other arguments and errors see `data.pictures.building.build`.
    """
    noun = format.shard.noun
    if not 0 <= most_damaged <= 1:
        raise UnmaskError(f"The largest share of damaged {noun}s is between 0 and 1, not {most_damaged}.")
    with workspace(Path(out).absolute()) as folder:
        writer, broken, lost, done = ShardWriter(folder, format.shard, shard_bytes), dict[str, str](), set[str](), 0
        classes = Counter[str]()
        try:
            for found in batches:
                for unit in found.units:
                    writer.add(unit)
                    tally.add(unit)
                    classes.update([unit.label] if unit.label else [])
                broken = {one.place: one.reason for one in found.damaged} | broken
                lost |= {one.label for one in found.damaged if one.label}
                done += found.done
                if items.count is not None:
                    check_damaged(broken.values(), items.count, noun, most_damaged)
                if progress is not None:
                    progress(f"{noun}s", done, items.count)
            writer.close()
        finally:
            writer.abandon()
        check_damaged(broken.values(), done, noun, most_damaged)
        if not writer.shards:
            raise UnmaskError(f"{items.path} has no {noun}s.")
        notes = [*items.notes, *tally.notes()]
        if broken:
            notes.append(f"{damaged(broken.values(), done, noun)} Damaged {noun}s are left out.")
        if gone := sorted(lost - classes.keys()):
            notes.append(f"Classes without a {noun} that can be read: {', '.join(map(visible, gone[:SHOWN]))}")
        notes += _copies(writer.opened(), noun)
        writer.files |= {name: describe(folder / name) for name in own(folder)}
        facts = {
            f"{noun}s": done - len(broken),
            **tally.facts(),
            "classes": {label: classes[label] for label in writer.classes},
            "damaged": {"count": len(broken), "first": list(broken.values())[:KEPT]},
            "notes": [note.removesuffix(".") + "." for note in notes],
            "shards": writer.shards,
            "files": writer.files,
        }
        seal(folder, format.name, format.version, facts)


def decoded(
    items: Items[Any], decode: Callable[[list[Any]], DecodedBatch], workers: int, works: Iterable[Any] | None = None
) -> Iterator[DecodedBatch]:
    """All items of some data, or the `works` that they are divided into, decoded in order, some at a time."""
    given = items if works is None else works
    return ordered(decode, _batches(given), workers if workers > 1 and not items.decoded else 0)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    batch, size = list[Item](), 0
    for item in items:
        batch.append(item)
        size += item.size
        if len(batch) == AT_ONCE or size >= BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _copies(shards: Sequence[MediaShard], noun: str) -> list[str]:
    owners = [(shard, number) for shard in shards for number in range(len(shard))]
    copies = copies_of(digest.tobytes() for shard in shards for digest in shard.digests)

    def name(i: int) -> str:
        shard, number = owners[i]
        return shard.named(number).decode("utf-8", "surrogateescape")

    return copies_note(copies, name, lambda i: owners[i][0].labels[owners[i][1]], noun)

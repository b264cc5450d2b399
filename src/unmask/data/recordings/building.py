"""Building a corpus of recordings: decoded and resampled once, in parallel, and written into shards.

A recording that is longer than a unit may be is cut at quiet places. One of more than STRETCH seconds is decoded in
stretches, by several processes and in bounded memory: where two of them meet is the quietest place about their edge,
which both find.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files import building
from unmask.data.files.building import Damage, DecodedBatch, Progress, decoded
from unmask.data.files.damage import MOST_DAMAGED
from unmask.data.files.items import Items
from unmask.data.files.shards import SHARD_BYTES, Unit
from unmask.data.recordings.activity import PART, active, cuts, quietest, silent
from unmask.data.recordings.corpus import RecordingCorpus
from unmask.data.recordings.decoding import LOWEST_RATE, OpenRecording, bounds, digest_of, header, opened
from unmask.data.recordings.folder import LONGEST
from unmask.data.recordings.items import RecordingItem
from unmask.data.recordings.processor import FILE, RecordingProcessor
from unmask.data.recordings.tally import Sound, Tally
from unmask.errors import Missing, UnmaskError

STRETCH = 120.0  # seconds that are decoded at a time, at least
HIGHEST_RATE = 48_000  # of a corpus: a day has to have less than 2^32 samples
SHORTEST = 1.0  # seconds that the longest unit has at least


@dataclass(frozen=True, slots=True)
class Stretch(RecordingItem):
    """Stretch `number` of the `count` stretches of an item; `digest` is that of the item, if there are several."""

    number: int = 0
    count: int = 1
    digest: str = ""


def stretches(items: Iterable[RecordingItem], longest: float) -> Iterator[Stretch]:
    """The stretches of all items, none for a short one. An item without a sound header is one stretch, which fails."""
    for item in items:
        count, digest = 1, ""
        try:
            found = header(item.source)
            seconds = (found.seconds if item.end is None else min(item.end, found.seconds)) - item.begin
            count = max(1, round(seconds / max(STRETCH, 4 * longest)))
            digest = digest_of(item.source, item.begin, item.end) if count > 1 else ""
        except UnmaskError:
            pass
        for number in range(count):
            given = (item.source, item.name, item.place, item.label, item.begin, item.end)
            yield Stretch(*given, number, count, digest)


@dataclass(frozen=True)
class Decode:
    """Decodes some stretches; it can be pickled. The facts of a unit are a `Sound`.

    rate     samples a second
    longest  seconds of a unit
    trim     whether silence at both ends of a unit is left out
    keep     whether to return the samples, not only a description
    """

    rate: int
    longest: float = LONGEST
    trim: bool = False
    keep: bool = True

    def __call__(self, works: list[Stretch]) -> DecodedBatch:
        found = DecodedBatch()
        for work in works:
            found.done += work.number == work.count - 1
            try:
                found.units += self._units(work)
            except Missing:  # a package; the file may be valid
                raise
            except UnmaskError as error:
                found.damaged.append(Damage(str(error), work.label, work.place))
        return found

    def _units(self, work: Stretch) -> list[Unit]:
        digest = work.digest or digest_of(work.source, work.begin, work.end)
        with opened(work.source, work.place) as file:
            begin, samples = self._stretch(file, work)
            heard, clipped = file.header, file.clipped
        parts, units = cuts(samples, self.rate, self.longest), list[Unit]()
        for number, (first, last) in enumerate(parts):
            part = samples[first:last]
            on, off = active(part, self.rate) if self.trim else (0, len(part))
            whole = work.count == 1 and len(parts) == 1
            own = digest if whole else hashlib.blake2b(f"{digest} {begin + first}".encode(), digest_size=16).hexdigest()
            sound = Sound(
                rate=heard.rate,
                coding=heard.coding,
                channels=heard.channels,
                seconds=(off - on) / self.rate,
                trimmed=(len(part) - off + on) / self.rate,
                silent=silent(part, self.rate),
                clipped=clipped if number == 0 else 0,
                opens=work.number == 0 and number == 0,
                span=(work.begin, work.end) if work.begin or work.end is not None else None,
            )
            kept = part[on:off] if self.keep else part[:0]
            values = np.clip(np.rint(kept * 2**15), -(2**15), 2**15 - 1).astype("<i2")
            shape = (begin + first + on, off - on)
            units.append(Unit(work.name, work.label, values, shape, bytes.fromhex(own), sound))
        return units

    def _stretch(self, file: OpenRecording, work: Stretch) -> tuple[int, np.ndarray]:
        """Where a stretch begins in its file, in samples, and its samples [N] float32."""
        origin, limit = bounds(file.header, self.rate, work.begin, work.end, file.name)
        reach = int(self.longest * self.rate * PART)  # of the search for a quiet place, on both sides of an edge
        edges = [origin + (limit - origin) * (work.number + side) // work.count for side in (0, 1)]
        first = edges[0] - (reach if work.number else 0)
        last = edges[1] + (reach if work.number < work.count - 1 else 0)
        samples = file.resampled(self.rate, first, last)
        begin, end = 0, len(samples)
        if first < edges[0]:
            begin = quietest(samples[: 2 * reach], self.rate, 0, 2 * reach)
        if last > edges[1]:
            end = len(samples) - 2 * reach + quietest(samples[-2 * reach :], self.rate, 0, 2 * reach)
        return first + begin, samples[begin:end]


def build(
    items: Items[Any],
    out: Path | str,
    *,
    rate: int | None = None,
    longest: float = LONGEST,
    trim: bool = False,
    workers: int = 1,
    most_damaged: float = MOST_DAMAGED,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> RecordingCorpus:
    """Write a corpus folder from recordings, in their order.

    items    as `items_of` finds them
    rate     samples a second; None: that of the processor in the folder of the items, else of the default one
    longest  seconds of a unit; a longer recording is cut at quiet places
    trim     whether silence at both ends of a unit is left out

    For the other arguments see `data.pictures.building.build`. Memory: about STRETCH seconds for each worker, and 300
    bytes for each unit. Raises UnmaskError if there are no recordings, too many are damaged, `out` cannot be written,
    or a number is out of range.
    """
    processor = RecordingProcessor.load(items.path) if (items.path / FILE).is_file() else None
    rate = rate or (processor or RecordingProcessor()).rate
    check_sizes(rate, longest)

    def own(folder: Path) -> Sequence[str]:
        return processor.save(folder) if processor is not None else ()

    building.build(
        items,
        out,
        decoded(items, Decode(rate, longest, trim), workers, stretches(items, longest)),
        RecordingCorpus.format,
        Tally(rate, longest, trim),
        own=own,
        most_damaged=most_damaged,
        shard_bytes=shard_bytes,
        progress=progress,
    )
    return RecordingCorpus(out)


def check_sizes(rate: int, longest: float) -> None:
    """Raises UnmaskError for a rate or a longest unit out of range."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise UnmaskError(f"The rate of a corpus must be {LOWEST_RATE:,} to {HIGHEST_RATE:,}, not {rate:,}.")
    if not longest >= SHORTEST:
        raise UnmaskError(f"The longest unit must have at least {SHORTEST:g} s, not {longest:g}.")

"""RecordingCorpus: decoded recordings in memory-mapped shards, at one rate, with their names and labels.

Shapes: U units, N samples of a unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unmask.data.files import corpora
from unmask.data.files.items import shares
from unmask.data.files.media import Chosen, Format, MediaCorpus
from unmask.data.files.shards import MediaShard
from unmask.data.files.timed import named
from unmask.data.recordings.decoding import Header, bounds, resample
from unmask.data.recordings.folder import Recordings
from unmask.data.recordings.processor import FILE, RecordingProcessor


class Shard(MediaShard):
    """A shard of recordings, each [N] int16; the shapes are where it begins in its file, in samples, and N."""

    noun, values, dtype, columns = "recording", "samples", np.dtype("<i2"), 2

    @staticmethod
    def sizes(shapes: np.ndarray) -> np.ndarray:
        return shapes[:, 1]


@dataclass(frozen=True, slots=True)
class Stored:
    """A recording of a shard, or a part of one: a handle, without its samples."""

    shard: Shard
    number: int
    rate: int

    @property
    def digest(self) -> str:
        """The hash of the file that the recording came from, or of its part."""
        return self.shard.digests[self.number].tobytes().hex()

    @property
    def begin(self) -> float:
        """Seconds at which it begins in its file."""
        return int(self.shard.shapes[self.number, 0]) / self.rate

    @property
    def header(self) -> Header:
        return Header(self.rate, int(self.shard.shapes[self.number, 1]), 1, "corpus")

    def samples(self, rate: int, begin: float = 0.0, end: float | None = None) -> np.ndarray:
        """[N] float32 in [-1, 1], as `decode`; resampled if the corpus has another rate."""
        first, last = bounds(self.header, rate, begin, end, "A recording of a corpus")
        return resample(self.shard.read(self.number), self.rate, rate)[first:last]


class RecordingCorpus(MediaCorpus[Stored]):
    """An open corpus of recordings. A long recording is several units, all of the same split."""

    format = Format(corpora.RECORDINGS, 1, Shard)

    @property
    def rate(self) -> int:
        """Samples a second."""
        return int(self.manifest["rate"])

    def handle(self, shard: Shard, number: int) -> Stored:
        return Stored(shard, number, self.rate)

    @property
    def processor(self) -> RecordingProcessor:
        """The processor of the folder that the corpus was built from, if it had one, else the default one; at the rate
        of the corpus."""
        there = (self.folder / FILE).is_file()
        return replace(RecordingProcessor.load(self.folder) if there else RecordingProcessor(), rate=self.rate)

    def split(self, name: str) -> Recordings:
        """The split "train" or "heldout": see `MediaCorpus.units`."""
        units = self.units(name)
        samples, labels = (
            np.concatenate([getattr(shard, what) for shard in self.shards])[units] for what in ("shapes", "labels")
        )
        headers = np.stack([samples[:, 1].astype(np.int64), np.full(len(units), self.rate)], 1)
        spans = np.tile([0.0, np.inf], (len(units), 1))
        classes = [*self.classes, ""]  # -1 is the last
        begins = (samples[:, 0] / self.rate).tolist()
        names = [named(self.name(unit), begin) for unit, begin in zip(units.tolist(), begins, strict=True)]
        labels = [classes[label] for label in labels.tolist()]
        return Recordings(Chosen(self, units), headers, spans, self.rate, labels, names=names)

    def described(self) -> list[str]:
        facts = self.manifest
        least, middle, most = facts["seconds"]
        return [
            f"  length     {facts['hours']:,.2f} hours; units of {least:.1f} to {most:.1f} s, median {middle:.1f} s",
            f"  rate       {facts['rate']:,} samples a second; of the files: {shares(facts['rates'])}",
        ]

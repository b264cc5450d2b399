"""SignalCorpus: decoded records in memory-mapped shards, at one rate, with their names and labels.

Shapes: U units, N samples of a unit, L leads.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unmask.data.files import corpora
from unmask.data.files.items import shares
from unmask.data.files.media import Chosen, Format, MediaCorpus
from unmask.data.files.shards import MediaShard
from unmask.data.files.timed import named
from unmask.data.signals.arrays import names_of
from unmask.data.signals.folder import Records
from unmask.data.signals.processor import FILE, SignalProcessor
from unmask.data.signals.signal import Signal


class Shard(MediaShard):
    """A shard of records, each [N, L] float32; the shapes are where it begins in its file, in samples, N and L."""

    noun, values, dtype, columns = "record", "samples", np.dtype("<f4"), 3

    @staticmethod
    def sizes(shapes: np.ndarray) -> np.ndarray:
        return shapes[:, 1] * shapes[:, 2]


class SignalCorpus(MediaCorpus[Signal]):
    """An open corpus of records, whose handles are views of the shards. A long record is several units, all of the same
    split."""

    format = Format(corpora.SIGNALS, 1, Shard)

    @property
    def rate(self) -> int:
        """Samples a second."""
        return int(self.manifest["rate"])

    def handle(self, shard: Shard, number: int) -> Signal:
        leads = int(shard.shapes[number, 2])
        samples = shard.read(number).reshape(-1, leads)
        return Signal(samples, self.rate, names_of(leads), ("",) * leads)

    @property
    def processor(self) -> SignalProcessor:
        """The processor of the folder that the corpus was built from, if it had one, else the default one; at the rate
        of the corpus."""
        there = (self.folder / FILE).is_file()
        return replace(SignalProcessor.load(self.folder) if there else SignalProcessor(), rate=self.rate)

    def split(self, name: str) -> Records:
        """The split "train" or "heldout": see `MediaCorpus.units`."""
        units = self.units(name)
        shapes, labels = (
            np.concatenate([getattr(shard, what) for shard in self.shards])[units] for what in ("shapes", "labels")
        )
        rates = np.full(len(units), self.rate)
        headers = np.stack([shapes[:, 1], rates, shapes[:, 2]], 1).astype(np.float64)
        classes = [*self.classes, ""]  # -1 is the last
        begins = (shapes[:, 0] / self.rate).tolist()
        return Records(
            Chosen(self, units),
            headers,
            np.tile([0.0, np.inf], (len(units), 1)),
            self.rate,
            [classes[label] for label in labels.tolist()],
            names=[named(self.name(unit), begin) for unit, begin in zip(units.tolist(), begins, strict=True)],
        )

    def described(self) -> list[str]:
        facts = self.manifest
        least, middle, most = facts["seconds"]
        return [
            f"  length     {facts['hours']:,.2f} hours; units of {least:.1f} to {most:.1f} s, median {middle:.1f} s",
            f"  rate       {facts['rate']:,} samples a second; of the files: {shares(facts['rates'])}",
            f"  leads      {shares(facts['leads'])}",
        ]

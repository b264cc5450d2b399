"""RecordingFolder: the recordings of a folder, without labels, as a source for pre-training.

Shapes: U units, N samples of a unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from unmask.data.files.damage import Failures, first_sound
from unmask.data.files.folder import MediaFolder
from unmask.data.files.items import class_of
from unmask.data.recordings.decoding import Header, Source, decode, header
from unmask.data.recordings.items import RECORDINGS
from unmask.data.recordings.processor import FILE, NESTED, RecordingProcessor

LONGEST = 30.0  # seconds of a unit; a longer recording is several units


@dataclass(frozen=True)
class Recordings:
    """Some recordings, or parts of them, as a source. Unit i is samples [N] float32 in [-1, 1], decoded when it is
    read.

    sources   the recording of each unit
    headers   [U, 2] int64: samples and rate of the whole recording
    spans     [U, 2] float64: begin and end of the unit, in seconds; the end is infinite if it is that of the recording
    rate      samples a second that are read; recordings of another rate are resampled
    labels    of each unit, such as its language, "" without one
    failures  the recordings of the folder that could not be decoded so far; None: the first of them is an error
    names     of each unit, in its data: that of the file and, for a part that begins later, its begin in seconds
    """

    sources: Sequence[Source]
    headers: np.ndarray
    spans: np.ndarray
    rate: int
    labels: Sequence[str] = ()
    failures: Failures | None = None
    names: Sequence[str] = ()

    @cached_property
    def cost(self) -> np.ndarray:
        """[U] int64: the samples of each unit at `rate`."""
        samples, rates = self.headers.T
        ends = -(-samples * self.rate // rates)
        begin, end = np.rint(np.minimum(self.spans * self.rate, ends[:, None])).astype(np.int64).T
        return end - begin

    def read(self, unit: int) -> np.ndarray:
        """Decode a unit, or the next one that can be decoded: see `first_sound`."""
        return self.located(unit)[1]

    def located(self, unit: int) -> tuple[int, np.ndarray]:
        """As `read`, with the number of the unit that was decoded."""
        return first_sound(lambda number: (number, self._decode(number)), unit, len(self.sources), self.failures)

    def _decode(self, unit: int) -> np.ndarray:
        begin, end = self.spans[unit].tolist()
        return decode(self.sources[unit], self.rate, begin, end if np.isfinite(end) else None)

    def at_rate(self, rate: int) -> Recordings:
        """A copy that reads another number of samples a second."""
        return replace(self, rate=rate)

    def take(self, units: np.ndarray) -> Recordings:
        """Some of the units [U'], as a source."""
        chosen = [self.sources[unit] for unit in units.tolist()]
        names = [self.names[unit] for unit in units.tolist()] if self.names else ()
        labels = [self.labels[unit] for unit in units.tolist()] if self.labels else ()
        headers, spans = self.headers[units], self.spans[units]
        return replace(self, sources=chosen, headers=headers, spans=spans, names=names, labels=labels)

    def by_label(self) -> list[Recordings]:
        """The units of each label, such as a language, in the order of the labels: parts for a mixture."""
        labels = np.array(self.labels if self.labels else [""] * len(self.sources))
        return [self.take(np.flatnonzero(labels == label)) for label in np.unique(labels)]


def cut(seconds: float, longest: float = LONGEST) -> np.ndarray:
    """[P, 2] float64: the begin and end, in seconds, of the fewest equal parts that are not longer than `longest`; the
    end of the last one is infinite."""
    count = max(1, int(np.ceil(seconds / longest)))
    edges = np.arange(count + 1) * (seconds / count)
    edges[-1] = np.inf
    return np.stack([edges[:-1], edges[1:]], 1)


def named(name: str, begin: float) -> str:
    """The name of a unit: that of its recording and, unless it is the first part, where it begins."""
    return f"{name}#{begin:.3f}" if begin else name


class RecordingFolder(MediaFolder[Header]):
    """The recordings of a folder and its subfolders: see `MediaFolder`. One of more than LONGEST seconds becomes
    several units of equal length, all of the same split. If all recordings are in subfolders, these are their labels.
    """

    def __init__(self, folder: Path | str) -> None:
        super().__init__(folder, RECORDINGS, header)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the recordings that were left out, are resampled, or could not be decoded so far."""
        rates = Counter(found.rate for found in self.headers)
        if set(rates) == {self.processor.rate}:
            return super().notes
        shown = ", ".join(f"{rate:,} ({count:,})" for rate, count in rates.most_common())
        said = f"Samples a second of the recordings: {shown}. Others than the model reads are resampled."
        return (said, *super().notes)

    @property
    def processor(self) -> RecordingProcessor:
        """The processor of the folder's preprocessor_config.json; without this file, the default one."""
        there = any((self.folder / name).is_file() for name in (FILE, NESTED))
        return RecordingProcessor.load(self.folder) if there else RecordingProcessor()

    def split(self, name: str) -> Recordings:
        """The split "train" or "heldout"."""
        parts = [(number, span) for number in self.parts[name].tolist() for span in cut(self.headers[number].seconds)]
        numbers = [number for number, _ in parts]
        labelled = all(path.parent != self.folder for path in self.paths)
        return Recordings(
            [self.paths[number] for number in numbers],
            np.array([(self.headers[number].samples, self.headers[number].rate) for number in numbers], np.int64),
            np.array([span for _, span in parts]),
            self.processor.rate,
            [class_of(self.paths[number], self.folder) if labelled else "" for number in numbers],
            self.failures,
            [named(self.paths[number].relative_to(self.folder).as_posix(), span[0]) for number, span in parts],
        )

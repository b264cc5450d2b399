"""RecordingFolder: the recordings of a folder, without labels, as a source for pre-training.

Shapes: U units, N samples of a unit.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from unmask.data.files.folder import MediaFolder
from unmask.data.files.items import class_of
from unmask.data.files.timed import Timed, cut, named
from unmask.data.recordings.decoding import Header, decode, header
from unmask.data.recordings.items import RECORDINGS
from unmask.data.recordings.processor import FILE, NESTED, RecordingProcessor

LONGEST = 30.0  # seconds of a unit; a longer recording is several units


class Recordings(Timed):
    """Some recordings, or parts of them, as a source. Unit i is samples [N] float32 in [-1, 1]."""

    def counts(self) -> np.ndarray:
        samples, rates = self.headers.T
        ends = -(-samples * self.rate // rates)
        begin, end = np.rint(np.minimum(self.spans * self.rate, ends[:, None])).astype(np.int64).T
        return end - begin

    def decode(self, unit: int) -> np.ndarray:
        begin, end = self.spans[unit].tolist()
        return decode(self.sources[unit], self.rate, begin, end if np.isfinite(end) else None)


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
        parts = [
            (number, span)
            for number in self.parts[name].tolist()
            for span in cut(self.headers[number].seconds, LONGEST)
        ]
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

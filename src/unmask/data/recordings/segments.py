"""Frames with labels: those of whole recordings that lie in the times of rows, such as phones.

Shapes: N samples, F frames of a recording, n frames with a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.data.files.timed import cut
from unmask.data.recordings.decoding import Source
from unmask.data.recordings.folder import LONGEST
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording
from unmask.errors import UnmaskError


@dataclass(frozen=True)
class Framed:
    """A recording, or a part of a long one, and its frames that have a row.

    recording  without the times of a row
    frames     [n] their numbers
    rows       [n] the number of the row of each
    """

    recording: Recording
    frames: np.ndarray
    rows: np.ndarray

    def samples(self, processor: RecordingProcessor) -> np.ndarray:
        """[N] float32. Raises UnmaskError, which names the recording, if it cannot be decoded."""
        return self.recording.samples(processor.rate)


def framed(rows: Sequence[Recording], processor: RecordingProcessor) -> Iterator[Framed]:
    """The recordings of some rows; a frame has the row between whose begin and end its middle lies. A recording of more
    than 30 seconds is read in parts.

    Raises UnmaskError for rows without times, and for a file whose header is damaged.
    """
    of_source = dict[Source, list[int]]()
    for number, row in enumerate(rows):
        if row.end is None:
            raise UnmaskError(
                f"{row.place}: a row needs a begin and an end in seconds (columns begin and end), so that the frames "
                "between them have its label."
            )
        of_source.setdefault(row.source, []).append(number)
    for source, numbers in of_source.items():
        first = rows[numbers[0]]
        for begin, end in cut(first.header.seconds, LONGEST).tolist():
            whole = Recording(place=first.place, source=source, begin=begin, end=end if np.isfinite(end) else None)
            F = processor.frames(whole.count(processor.rate))
            middles_F = begin + (np.arange(F) * processor.hop + processor.window / 2) / processor.rate
            owners_F = np.full(F, -1)
            for number in numbers:
                row = rows[number]
                owners_F[(row.begin <= middles_F) & (middles_F < row.end)] = number
            frames = np.flatnonzero(owners_F >= 0)
            if len(frames):
                yield Framed(whole, frames, owners_F[frames])

"""SignalFolder: the records of a folder, without labels, as a source for pre-training.

Shapes: U units, N samples of a unit, L leads.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from unmask.data.files.folder import MediaFolder
from unmask.data.files.items import class_of
from unmask.data.files.timed import Timed, cut, named
from unmask.data.signals.decoding import decode, header
from unmask.data.signals.processor import FILE, SignalProcessor
from unmask.data.signals.reading import SIGNALS
from unmask.data.signals.signal import Header

LONGEST = 60.0  # seconds of a unit; a longer record is several units


class Records(Timed):
    """Some records, or parts of them, as a source. Unit i is samples [N, L] float32, in the units of its file; gaps are
    filled. `headers` is [U, 3] float64: samples, rate and number of leads of the whole record."""

    def counts(self) -> np.ndarray:
        found = [
            Header(rate, int(samples), ()).bounds(self.rate, begin, end if np.isfinite(end) else None)
            for (samples, rate, _), (begin, end) in zip(self.headers.tolist(), self.spans.tolist(), strict=True)
        ]
        return np.diff(np.array(found, np.int64).reshape(-1, 2)).ravel()

    def decode(self, unit: int) -> np.ndarray:
        begin, end = self.spans[unit].tolist()
        found = decode(self.sources[unit], self.rate, begin, end if np.isfinite(end) else None)
        return found.samples


class SignalFolder(MediaFolder[Header]):
    """The records of a folder and its subfolders: see `MediaFolder`. One of more than LONGEST seconds becomes several
    units of equal length, all of the same split. If all records are in subfolders, these are their labels.
    """

    def __init__(self, folder: Path | str) -> None:
        super().__init__(folder, SIGNALS, header)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the records that were left out, are resampled, or could not be decoded so far."""
        rates = Counter(found.rate for found in self.headers)
        if len(rates) == 1:
            return super().notes
        shown = ", ".join(f"{rate:,g} ({count:,})" for rate, count in rates.most_common())
        said = f"Samples a second of the records: {shown}. Others than the model reads are resampled."
        return (said, *super().notes)

    @property
    def processor(self) -> SignalProcessor:
        """The processor of the folder's preprocessor_config.json; without this file, the default one."""
        return SignalProcessor.load(self.folder) if (self.folder / FILE).is_file() else SignalProcessor()

    def split(self, name: str) -> Records:
        """The split "train" or "heldout"."""
        numbers = self.parts[name].tolist()
        parts = [(number, span) for number in numbers for span in cut(self.headers[number].seconds, LONGEST)]
        of = [self.headers[number] for number, _ in parts]
        labelled = all(path.parent != self.folder for path in self.paths)
        return Records(
            [self.paths[number] for number, _ in parts],
            np.array([(one.samples, one.rate, len(one.leads)) for one in of], np.float64),
            np.array([span for _, span in parts]),
            self.processor.rate,
            [class_of(self.paths[number], self.folder) if labelled else "" for number, _ in parts],
            self.failures,
            [named(self.paths[number].relative_to(self.folder).as_posix(), span[0]) for number, span in parts],
        )

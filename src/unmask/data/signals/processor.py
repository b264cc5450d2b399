"""SignalProcessor: converts records of sensors, such as electrocardiograms, to segments.

Shapes: N samples of a record, L leads, S samples of a segment, P segments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from unmask.config import Config, read_json, typed
from unmask.data.processor import Processor, Region
from unmask.errors import UnmaskError, plural, unknown
from unmask.files import write_text
from unmask.types import Example, Kind

FILE = "preprocessor_config.json"
EPS = 1e-7  # of the variance: a flat lead becomes zeros
HIGHEST_RATE = 1_000_000
SCALINGS = ("record", "none")


@dataclass(frozen=True, kw_only=True)
class SignalProcessor(Config, Processor[np.ndarray]):
    """Samples [N, L] float32 of `rate` a second -> a place for each segment of `segment` samples.

    rate       samples a second that the model reads
    segment    S, samples of a segment
    leads      L, numbers of a sample: the leads of an electrocardiogram, the channels of a sensor
    normalise  "record": each lead of a record is scaled to mean 0 and variance 1; "none": the values stay as they are
    """

    rate: int = 300
    segment: int = 50
    leads: int = 1
    normalise: str = "record"

    pad = Kind.PADDING

    def __post_init__(self) -> None:
        if self.normalise not in SCALINGS:
            raise unknown("scaling", self.normalise, SCALINGS)

    def segments(self, samples: int) -> int:
        """P = floor(N / S). The samples after the last whole segment are not read."""
        return samples // self.segment

    def values(self, item: np.ndarray) -> np.ndarray:
        """[P * S, L] float32: the samples of whole segments, as the model reads them. Raises UnmaskError for an item
        that is no record, has another number of leads, is too short, or has values that are no numbers."""
        if item.ndim != 2:
            raise UnmaskError(f"A record must be an array [samples, {self.leads}], not {list(item.shape)}.")
        if item.shape[1] != self.leads:
            raise UnmaskError(
                f"The record has {plural(item.shape[1], 'lead')}, but the model reads {self.leads}: choose by --lead."
            )
        if len(item) < self.segment:
            raise UnmaskError(
                f"The record has {len(item)} samples, but the model needs at least {self.segment} "
                f"({self.segment / self.rate:.3f} s): leave it out."
            )
        if not np.isfinite(item).all():
            raise UnmaskError(
                "The record has samples that are no numbers (NaN or infinite): repair it or leave it out."
            )
        values = np.asarray(item[: self.segments(len(item)) * self.segment], np.float32)
        if self.normalise == "none":
            return values
        normalised: np.ndarray = (values - values.mean(0)) / np.sqrt(values.var(0) + EPS)
        return normalised

    def example(self, item: np.ndarray) -> Example:
        """A place of kind SIGNAL for each segment [P], with values [P, L * S]: the samples of the first lead, then
        those of the next one."""
        return self.segmented(self.values(item))

    def segmented(self, values: np.ndarray) -> Example:
        """The example of samples [P * S, L] that are normalised already."""
        cut = values.reshape(-1, self.segment, self.leads).transpose(0, 2, 1)
        flat = np.ascontiguousarray(cut.reshape(len(cut), -1), np.float32)
        tokens = np.full(len(flat), int(Kind.SIGNAL), np.int64)
        return Example(tokens, signal=(np.arange(len(flat)), flat))

    def describe(self, item: np.ndarray, place: int) -> Region | None:
        """The seconds of the record that a segment covers."""
        segments = self.segments(len(item))
        if not 0 <= place < segments:
            raise UnmaskError(f"The record has {segments} segments, so there is no segment {place}.")
        begin = place * self.segment
        return Region("seconds", (begin / self.rate,), ((begin + self.segment) / self.rate,))

    def for_model(self, config: Any) -> Self:
        """A copy with the rate, the segments and the leads of a model."""
        return replace(self, rate=config.rate, segment=config.segment, leads=config.leads)

    def save(self, folder: Path, /) -> list[str]:
        """Write preprocessor_config.json, with the names of `transformers` where it has any."""
        values = {
            "do_normalize": self.normalise == "record",
            "feature_extractor_type": "SignalFeatureExtractor",
            "feature_size": self.leads,
            "sampling_rate": self.rate,
            "segment": self.segment,
        }
        write_text(folder / FILE, json.dumps(values, indent=2, sort_keys=True) + "\n")
        return [FILE]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """Load a file that `save` wrote. Raises UnmaskError for a damaged file."""
        place = folder / FILE
        values = read_json(place)
        names = {"sampling_rate": "rate", "segment": "segment", "feature_size": "leads"}
        given = {own: typed(values[name], int, f"{place}: {name}") for name, own in names.items() if name in values}
        found = cls(**given)
        if not typed(values.get("do_normalize", True), bool, f"{place}: do_normalize"):
            found = replace(found, normalise="none")
        if not 1 <= found.rate <= HIGHEST_RATE or found.segment < 1 or found.leads < 1:
            raise UnmaskError(
                f"{place}: sampling_rate must be 1 to {HIGHEST_RATE}, segment and feature_size at least 1."
            )
        return found

"""RecordingProcessor: converts recordings to examples, like the feature extractor of wav2vec 2.0 in `transformers`.

Shapes: N samples of a recording, F frames.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from unmask.config import Config, read_json, typed
from unmask.data.processor import Processor, Region
from unmask.errors import UnmaskError
from unmask.files import write_text
from unmask.types import Example, Kind

FILE, NESTED = "preprocessor_config.json", "processor_config.json"
EPS = 1e-7  # of the variance, as in `transformers`
HIGHEST_RATE = 768_000


@dataclass(frozen=True, kw_only=True)
class RecordingProcessor(Config, Processor[np.ndarray]):
    """Samples [N] float32 of `rate` a second -> a place for each frame, and the samples at the first place.

    rate       samples a second that the model reads
    hop        samples from the beginning of a frame to that of the next one: the stride of the model's first layers
    window     samples that a frame depends on: the receptive field of these layers
    normalise  whether the samples of each recording are scaled to mean 0 and variance 1
    """

    rate: int = 16_000
    hop: int = 320
    window: int = 400
    normalise: bool = True

    pad = Kind.PADDING

    def frames(self, samples: int) -> int:
        """F = floor((N - window) / hop) + 1, as a stack of convolutions without padding gives; 0 if N < window."""
        return max(0, (samples - self.window) // self.hop + 1)

    def samples(self, frames: int) -> int:
        """The smallest N that gives F frames."""
        return (frames - 1) * self.hop + self.window if frames > 0 else 0

    def values(self, item: np.ndarray) -> np.ndarray:
        """[N] float32: the samples as the model reads them. Raises UnmaskError for an item that is no recording, is
        too short, or that has values that are no numbers."""
        if item.ndim != 1:
            raise UnmaskError(f"A recording must be an array of samples [N], not {list(item.shape)}.")
        if len(item) < self.window:
            raise UnmaskError(
                f"The recording has {len(item)} samples, but the model needs at least {self.window} "
                f"({self.window / self.rate:.3f} s): leave it out."
            )
        values = item.astype(np.float32) if item.dtype.kind == "f" else item.astype(np.float32) / 2**15
        if not np.isfinite(values).all():
            raise UnmaskError(
                "The recording has samples that are no numbers (NaN or infinite): repair it or leave it out."
            )
        if not self.normalise:
            return values
        normalised: np.ndarray = (values - values.mean()) / np.sqrt(values.var() + EPS)
        return normalised

    def example(self, item: np.ndarray) -> Example:
        """A place of kind SIGNAL for each frame [F]; the samples [N] are a sequence at the first place."""
        return self.framed(self.values(item))

    def framed(self, values: np.ndarray) -> Example:
        """The example of samples that are normalised already."""
        first, N = np.zeros(1, np.int64), len(values)
        tokens = np.full(self.frames(N), int(Kind.SIGNAL), np.int64)
        return Example(tokens, signal=(first, values, np.array([N])))

    def describe(self, item: np.ndarray, place: int) -> Region | None:
        """The seconds of the recording that a frame depends on."""
        frames = self.frames(len(item))
        if not 0 <= place < frames:
            raise UnmaskError(f"The recording has {frames} frames, so there is no frame {place}.")
        begin = place * self.hop
        return Region("seconds", (begin / self.rate,), ((begin + self.window) / self.rate,))

    def for_model(self, config: Any) -> Self:
        """A copy with the frames of a model."""
        return replace(self, hop=config.hop, window=config.window)

    def save(self, folder: Path, /) -> list[str]:
        """Write preprocessor_config.json, which `transformers` reads; only unmask uses `hop_length` and `window`."""
        values = {
            "do_normalize": self.normalise,
            "feature_extractor_type": "Wav2Vec2FeatureExtractor",
            "feature_size": 1,
            "hop_length": self.hop,
            "padding_side": "right",
            "padding_value": 0.0,
            "return_attention_mask": True,
            "sampling_rate": self.rate,
            "window": self.window,
        }
        write_text(folder / FILE, json.dumps(values, indent=2, sort_keys=True) + "\n")
        return [FILE]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """Load a file that `save`, or the feature extractor of `transformers`, wrote. Raises UnmaskError for a damaged
        file, and for features that are not samples."""
        place = folder / NESTED if (folder / NESTED).is_file() else folder / FILE
        values = read_json(place)
        values = values.get("feature_extractor", values)
        if not isinstance(values, Mapping):
            raise UnmaskError(f"{place}: feature_extractor must be an object with fields, not {values!r}.")
        if values.get("feature_size", 1) != 1:
            raise UnmaskError(
                f"{place}: feature_size must be 1: the model reads samples, not {values['feature_size']!r}."
            )
        names = {"sampling_rate": "rate", "hop_length": "hop", "window": "window", "do_normalize": "normalise"}
        hints = {"rate": int, "hop": int, "window": int, "normalise": bool}
        given = {
            own: typed(values[name], hints[own], f"{place}: {name}") for name, own in names.items() if name in values
        }
        found = cls(**given)
        if not 1 <= found.rate <= HIGHEST_RATE or found.hop < 1 or found.window < 1:
            raise UnmaskError(f"{place}: sampling_rate must be 1 to {HIGHEST_RATE}, hop_length and window at least 1.")
        return found

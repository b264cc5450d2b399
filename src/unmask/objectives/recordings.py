"""Objectives on recordings: their crops, and the spans of frames that are masked.

Shapes: N recordings of a batch, F frames of a recording, B rows, T frames of a row, M masked frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from unmask.data.files.corpora import format_of
from unmask.data.recordings import synthetic
from unmask.data.recordings.corpus import RecordingCorpus
from unmask.data.recordings.decoding import HIGHEST_RATE, LOWEST_RATE
from unmask.data.recordings.folder import RecordingFolder
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.spectrogram import picture
from unmask.errors import UnmaskError
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.crops import LEAST, Crops, check_label_alpha, crop, drawn_spans, joined, with_mask
from unmask.objectives.objective import Guesses, Objective, Probe
from unmask.types import Batch, Example

PROBES = 3  # held-out recordings that are shown at every evaluation


class RecordingObjective(Crops):
    """An objective on recordings, which are cropped at random and packed."""

    processor: RecordingProcessor
    asked: ClassVar[str] = "masked frames"  # the frames that the model finds

    def samples(self, places: int) -> int:
        return self.processor.samples(places)

    def example(self, item: Any, length: int, rng: np.random.Generator | None = None) -> Example:
        begin = crop(self.processor.frames(len(item)), length, rng) * self.processor.hop
        values = self.processor.values(item)[begin : begin + self.processor.samples(length)]
        return self.processor.framed(values)

    def count(self, splits: Sequence[Any]) -> None:
        """Count in the training parts what the baselines need; by default nothing."""

    def amount(self, tokens: int) -> str:
        seconds = tokens * self.processor.hop / self.processor.rate
        return f"{seconds / 3600:.3g} hours of sound" if seconds >= 3600 else f"{seconds:,.0f} s of sound"

    # -- probes

    def told(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of rows with targets: the flat places [M] of the frames that are asked for, and whether the model found each
        [M]. Call it in evaluation mode, without gradients."""
        raise NotImplementedError(f"{type(self).__name__} asks for no frames")

    def probes(self, split: Any, tokenizer: Any, length: int) -> list[Probe]:
        """The beginnings of recordings of a held-out split, evenly spread over it."""
        source = self.source(split, length)
        count = len(source.cost)
        units = dict.fromkeys(i * count // PROBES for i in range(PROBES)) if count else ()
        examples = [self.example(source.read(unit), length) for unit in units]
        return [Probe(f"held-out recording {i}", np.empty(0, np.int64), item=one) for i, one in enumerate(examples, 1)]

    def guesses(self, model: Any, tokenizer: Any, probes: Sequence[Probe]) -> list[Guesses]:
        """The share of the frames that the model finds."""
        told = [self.told(model, self._asked(probe.item).to(model.device))[1] for probe in probes]
        return [[("found", float(found_M.float().mean()))] if len(found_M) else [] for found_M in told]

    def pictures(self, model: Any, processor: Any, probes: Sequence[Probe]) -> list[dict[str, np.ndarray]]:
        """The spectrogram of each probe: whole, without the frames that are asked for, and without those of them that
        the model does not find."""
        shown = []
        for probe in probes:
            places_M, found_M = (x.cpu().numpy() for x in self.told(model, self._asked(probe.item).to(model.device)))
            assert probe.item.signal is not None
            draw = partial(self._drawn, probe.item.signal[1])
            shown.append({"recording": draw([]), self.asked: draw(places_M), "found frames": draw(places_M[~found_M])})
        return shown

    def _asked(self, example: Example) -> Batch:
        """A row of one recording, with the same targets at every call."""
        return self.packed([example], len(example.tokens), np.random.default_rng(0))

    def _drawn(self, samples_N: np.ndarray, hidden_M: Iterable[int]) -> np.ndarray:
        """A spectrogram without some frames."""
        first, hop = (self.processor.window - self.processor.hop) / 2, self.processor.hop
        seconds = [((first + frame * hop) / self.processor.rate) for frame in hidden_M]
        step = hop / self.processor.rate
        return picture(samples_N, self.processor.rate, [(begin, begin + step) for begin in seconds])


def recordings_of(batch: Batch, processor: RecordingProcessor) -> tuple[np.ndarray, np.ndarray]:
    """For each recording of packed rows, in ascending order, the flat place of its first frame [N], and its number of
    frames [N]."""
    assert batch.signal is not None
    assert batch.signal.lengths is not None
    samples_N = batch.signal.lengths.numpy()
    return batch.signal.places.numpy(), (samples_N - processor.window) // processor.hop + 1


def masked_spans(
    batch: Batch, processor: RecordingProcessor, share: float, span: int, rng: np.random.Generator
) -> tuple[Batch, list[np.ndarray]]:
    """Packed rows whose masked frames hold MASK, and the flat places of the masked frames of each recording, in
    ascending order. The samples stay in the signal: the targets are computed from them."""
    found = drawn_spans(*recordings_of(batch, processor), share, span, rng)
    return replace(batch, tokens=with_mask(batch, joined(found))), found


def check_lengths(processor: RecordingProcessor, splits: Sequence[Any]) -> None:
    """Raises UnmaskError for a rate that no recording has, and where no recording is long enough to be read."""
    if not LOWEST_RATE <= processor.rate <= HIGHEST_RATE:
        raise UnmaskError(
            f"--rate must be {LOWEST_RATE:,} to {HIGHEST_RATE:,} samples a second, not {processor.rate:,}."
        )
    least = processor.samples(LEAST)
    if splits and not any((split.at_rate(processor.rate).cost >= least).any() for split in splits):
        raise UnmaskError(
            f"No recording has {least / processor.rate:.3f} s, which are {LEAST} frames of this model: use longer "
            "recordings."
        )


@dataclass(frozen=True, kw_only=True)
class RecordingConfig(ObjectiveConfig):
    """What a model reads of a recording.

    rate         samples a second; other rates are resampled
    label_alpha  the labels of a corpus, such as its languages, are mixed with weights n^alpha of their lengths n, and
                 then the corpora are (Babu et al. 2021, XLS-R, section 3: 0.5; 1 keeps their proportions)
    """

    rate: int = 16_000
    label_alpha: float = 1.0

    requires: ClassVar[frozenset[str]] = frozenset({"recordings"})
    plain: ClassVar[bool] = True
    pipeline: ClassVar[str] = ""  # that of transformers for features reads texts
    command: ClassVar[tuple[str, str] | None] = ("embed", "--data recordings --out vectors.npy")

    @classmethod
    def chosen(cls, current: ObjectiveConfig, option: str, value: str) -> ObjectiveConfig | None:
        """As for every objective, but a run that learns from texts or pictures is not turned into one on recordings."""
        return super().chosen(current, option, value) if isinstance(current, RecordingConfig) else None

    @classmethod
    def opens(cls, folder: Path | str) -> RecordingFolder | RecordingCorpus:
        """A folder of recordings, or a corpus that was built from one."""
        return RecordingFolder(folder) if format_of(Path(folder)) is None else RecordingCorpus(folder)

    def build(self, processor: RecordingProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        check_lengths(processor, splits)
        check_label_alpha(self.label_alpha)
        found = self.of_recordings(processor)
        found.label_alpha = self.label_alpha
        found.count(splits)
        return found

    def of_recordings(self, processor: RecordingProcessor) -> RecordingObjective:
        """The objective, for recordings that this processor prepares."""
        raise NotImplementedError(f"{type(self).__name__} makes no objective")

    def stand_in(self) -> str:
        return f"spoken-{self.rate}"

    def make(self, folder: Path) -> None:
        """Words and short sentences that are synthesised."""
        synthetic.write(folder, rate=self.rate)

    def processor(self, processor: RecordingProcessor) -> RecordingProcessor:
        """That of the folder, at this rate."""
        return replace(processor, rate=self.rate)

    def model_fields(self, processor: RecordingProcessor) -> dict[str, Any]:
        return {}

    def mismatch(self, corpus: object, folder: object) -> str:
        return (
            f"The recordings in {corpus} would be prepared otherwise than those that {folder} was trained on: leave "
            f"--rate out, and copy preprocessor_config.json from {folder} to {corpus}."
        )

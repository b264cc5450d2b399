"""Objectives on recordings: how they are drawn, cropped and packed, and the spans of frames that are masked.

Shapes: N recordings of a batch, F frames of a recording, B rows, T frames of a row, M masked frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask.data import collate
from unmask.data.files.corpora import format_of
from unmask.data.loader import Collated, Loader
from unmask.data.order import SeededBlocks, nested_mixture
from unmask.data.recordings import synthetic
from unmask.data.recordings.corpus import RecordingCorpus
from unmask.data.recordings.folder import RecordingFolder
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.spectrogram import picture
from unmask.data.source import Cropped
from unmask.errors import UnmaskError
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.objective import Guesses, Objective, Probe, StreamOptions
from unmask.types import Batch, Example, Kind

BLOCK = 32  # approximate number of rows of a block
LEAST = 4  # frames of the shortest recording that is read
PROBES = 3  # held-out recordings that are shown at every evaluation


class RecordingObjective(Objective):
    """An objective on recordings, which are cropped at random to the length of a row and packed: several short ones
    share a row, and nothing is computed at padding. A subclass chooses targets in the rows (`corrupt`)."""

    processor: RecordingProcessor
    label_alpha: float = 1.0
    asked: ClassVar[str] = "masked frames"  # the frames that the model finds

    def stream(self, splits: Sequence[Any], options: StreamOptions) -> Loader:
        """Recordings of several corpora are mixed with weights n^alpha of their lengths n, where a crop counts as what
        it keeps; before that, so are the labels of each corpus, with `label_alpha`. The crops, the rows and the targets
        of a block depend only on the seed, the epoch and the block."""
        length = options["length"]
        parts = [[split] if self.label_alpha == 1 else split.by_label() for split in splits]
        groups = [[self.source(part, length) for part in group] for group in parts]
        sizes = [[int(source.cost.sum()) for source in group] for group in groups]
        shares = nested_mixture(sizes, self.label_alpha, options["alpha"])
        sources = [source for group in groups for source in group]
        block = BLOCK * self.processor.samples(length)
        order = SeededBlocks(sources, shares, seed=options["seed"], block=block)
        return Loader(Collated(order, partial(self.rows, length)), cut=options["cut"], workers=options["workers"])

    def source(self, split: Any, length: int) -> Cropped:
        """The recordings of a split with at least LEAST frames. The cost of each is what rows of `length` frames read
        of it."""
        split = split.at_rate(self.processor.rate)
        long = np.flatnonzero(split.cost >= self.processor.samples(LEAST))
        return Cropped(split, long, most=self.processor.samples(length))

    def evaluation_rows(self, splits: Sequence[Any], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        """The beginnings of held-out recordings with fixed targets, corpus by corpus."""
        rng, examples, frames = np.random.default_rng(0), list[Example](), 0
        for source in (self.source(split, length) for split in splits):
            for unit in range(len(source.cost)):
                if frames >= limit_rows * length:
                    break
                examples.append(self.example(source.read(unit), length))
                frames += len(examples[-1].tokens)
        packed = self.packed(examples, length, rng).rows(0, limit_rows)
        return [packed.rows(begin, begin + rows) for begin in range(0, len(packed.tokens), rows)]

    def rows(self, length: int, recordings: Sequence[Any], rng: np.random.Generator) -> Batch:
        """Recordings, as a source reads them, as rows of `length` frames with targets."""
        return self.packed([self.example(one, length, rng) for one in recordings], length, rng)

    def packed(self, examples: Sequence[Example], length: int, rng: np.random.Generator) -> Batch:
        """Examples as rows of `length` frames, in random order, with targets."""
        batch = collate.pack(examples, length, Kind.PADDING)
        if not examples:
            return batch
        return self.corrupt(batch.take(rng.permutation(len(batch.tokens))), rng)

    def example(self, recording: Any, length: int, rng: np.random.Generator | None = None) -> Example:
        """A recording, or a random crop of `length` frames, which begins where a frame of the recording does; without
        a generator its beginning. Samples are normalised before they are cropped, so that a pause stays quiet."""
        begin = crop(self.processor.frames(len(recording)), length, rng) * self.processor.hop
        values = self.processor.values(recording)[begin : begin + self.processor.samples(length)]
        return self.processor.framed(values)

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


def crop(frames: int, length: int, rng: np.random.Generator | None) -> int:
    """The first frame of a random crop of `length` frames; 0 without a generator and for a shorter recording."""
    return int(rng.integers(frames - length + 1)) if rng is not None and frames > length else 0


def recordings_of(batch: Batch, processor: RecordingProcessor) -> tuple[np.ndarray, np.ndarray]:
    """For each recording of packed rows, in ascending order, the flat place of its first frame [N], and its number of
    frames [N]."""
    assert batch.signal is not None
    assert batch.signal.lengths is not None
    samples_N = batch.signal.lengths.numpy()
    return batch.signal.places.numpy(), (samples_N - processor.window) // processor.hop + 1


def spans(frames: int, share: float, span: int, rng: np.random.Generator) -> np.ndarray:
    """[M] ascending: frames of a recording that are masked in spans (wav2vec 2.0, Baevski et al. 2020, section 3.1).

    share  of the frames that spans would cover if none overlapped: share * F / span spans, rounded up or down at
           random, and at least two. 0.65 and spans of 10 are the probability 0.065 of a start in the paper; because
           spans overlap, about half of the frames are masked
    span   frames of a span; at most a quarter of the recording, because two longer spans could hide a short one whole

    The starts are distinct. A recording of fewer than four frames has no masked frames. The authors' code also drops
    masked frames until all recordings of a batch have the same number, which nothing here needs.
    """
    if frames < LEAST:
        return np.empty(0, np.int64)
    span = min(span, frames // 4)
    places = frames - span + 1
    count = min(max(2, int(share * frames / span + rng.random())), places)
    starts = rng.choice(places, count, replace=False)
    masked = np.zeros(frames, bool)
    masked[(starts[:, None] + np.arange(span)).ravel()] = True
    return np.flatnonzero(masked)


def masked_spans(
    batch: Batch, processor: RecordingProcessor, share: float, span: int, rng: np.random.Generator
) -> tuple[Batch, list[np.ndarray]]:
    """Packed rows whose masked frames hold MASK, and the flat places of the masked frames of each recording, in
    ascending order. The samples stay in the signal: the targets are computed from them."""
    found = [
        begin + spans(frames, share, span, rng)
        for begin, frames in zip(*map(np.ndarray.tolist, recordings_of(batch, processor)), strict=True)
    ]
    places = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *found]))
    tokens = batch.tokens.flatten().index_fill(0, places, int(Kind.MASK)).view_as(batch.tokens)
    return replace(batch, tokens=tokens), found


def check_lengths(processor: RecordingProcessor, splits: Sequence[Any]) -> None:
    """Raises UnmaskError where no recording is long enough to be read."""
    least = processor.samples(LEAST)
    if splits and not any((split.at_rate(processor.rate).cost >= least).any() for split in splits):
        raise UnmaskError(
            f"No recording has {least / processor.rate:.3f} s, which are {LEAST} frames of this model: use longer "
            "recordings."
        )


def check_spans(share: float, span: int) -> None:
    """Raises UnmaskError for a share or a length of spans out of range."""
    if not 0 < share < 1:
        raise UnmaskError(f"The share of masked frames is between 0 and 1, not {share}.")
    if span < 1:
        raise UnmaskError(f"A span has at least 1 frame, not {span}.")


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

    @classmethod
    def chosen(cls, current: ObjectiveConfig, option: str, value: str) -> ObjectiveConfig | None:
        """As for every objective, but a run that learns from texts or pictures is not turned into one on recordings."""
        return super().chosen(current, option, value) if isinstance(current, RecordingConfig) else None

    @classmethod
    def opens(cls, folder: Path | str) -> RecordingFolder | RecordingCorpus:
        """A folder of recordings, or a corpus that was built from one."""
        from unmask.data.recordings.folder import RecordingFolder

        if format_of(Path(folder)) is None:
            return RecordingFolder(folder)
        from unmask.data.recordings.corpus import RecordingCorpus

        return RecordingCorpus(folder)

    def build(self, processor: RecordingProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        check_lengths(processor, splits)
        if not 0 <= self.label_alpha < math.inf:
            raise UnmaskError(f"The alpha of the labels is a number of at least 0, not {self.label_alpha}.")
        found = self.of_recordings(processor)
        found.label_alpha = self.label_alpha
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

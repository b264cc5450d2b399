"""Attention over a recording: which frames attend to which, in every layer and head, along the time axis.

Shapes: N samples, F frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unmask.data.recordings.processor import RecordingProcessor
from unmask.models.model import Model
from unmask.visualize import attention, recordings
from unmask.visualize.numbers import Data
from unmask.visualize.reading import LONGEST, Read


def read_recording(model: Model, processor: RecordingProcessor, samples_N: np.ndarray, begin: float = 0.0) -> Read:
    """The first LONGEST frames of a recording, or of its part that begins at `begin` seconds. They are named by the
    seconds of their middle. Raises UnmaskError for one that the model cannot read."""
    example = processor.example(samples_N[: processor.samples(LONGEST)])
    edges = recordings.seconds_of(processor, len(example.tokens))
    names = [f"{begin + middle:.2f} s" for middle in (edges[:-1] + edges[1:]) / 2]
    return Read(processor.collate([example]).to(model.device), names, [], [], list(range(len(names))))


def over_recording(
    model: Model,
    processor: RecordingProcessor,
    samples_N: np.ndarray,
    look: Callable[[Model, Read], Data] = attention.whole,
    *,
    begin: float = 0.0,
) -> Data:
    """The weights of every head and the rollout, as for a text, and the recording.

    samples_N  float32, at the rate of the processor
    look       `attention.whole`, or `attention.overview` for a page that requests the weights later
    begin      seconds at which the samples begin in the whole recording

    Raises UnmaskError for a recording that the model cannot read, and for a model without attention.
    """
    reading = read_recording(model, processor, samples_N, begin)
    F = len(reading.tokens)
    edges = recordings.seconds_of(processor, F)
    cut = processor.frames(len(samples_N)) > F
    which = f"{F:,} frames from {begin:g} s on" if begin else f"the first {F:,} frames of the recording"
    shown: dict[str, Any] = recordings.recording(
        samples_N[: processor.samples(F)],
        processor.rate,
        step=processor.hop / processor.rate,
        begin=begin,
        note=f"The view reads {which}: {edges[-1]:.1f} s." if cut else "",
    )
    frames = {"begin": float(edges[0]), "end": float(edges[-1])}
    own = {"view": "recording-attention", "unit": "frame", "recording": shown, "frames": frames}
    return look(model, reading) | own

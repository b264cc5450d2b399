"""The labels of frames beside letters: what a recogniser hears, or the classes of the recordings, for each frame.

Shapes: F frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from unmask.data.recordings.labels import FrameLabels
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording
from unmask.errors import UnmaskError
from unmask.serve.predictor import Predictor
from unmask.tasks.recordings import RecordingTask
from unmask.visualize.clusters import letters_of
from unmask.visualize.recordings import seconds_of

AT_ONCE = 16  # recordings that are recognised together
Pair = tuple[np.ndarray, Sequence[str]]
"""Clusters [F] and labels [F] of the frames of a recording."""


def beside_classes(labels: FrameLabels, splits: Sequence[Any], most: int) -> Iterator[Pair]:
    """For the first `most` recordings of some splits (`folder.Recordings`) that have clusters and a class, these."""
    for split, unit, clusters_F in islice(_units(labels, splits), most):
        if split.labels and split.labels[unit]:
            yield clusters_F, [split.labels[unit]] * len(clusters_F)


def beside_letters(labels: FrameLabels, splits: Sequence[Any], predictor: Predictor, most: int) -> Iterator[Pair]:
    """The same with the letters that a model recognises. Raises UnmaskError for a model that recognises none."""
    task, processor = predictor.task, _processor(labels)
    if not isinstance(task, RecordingTask):
        raise UnmaskError("Letters need a model of speech recognition.")
    units = islice(_units(labels, splits), most)
    while some := list(islice(units, AT_ONCE)):
        spans = [split.spans[unit].tolist() for split, unit, _ in some]
        rows = [
            Recording(
                place=split.names[unit], source=split.sources[unit], begin=begin, end=end if np.isfinite(end) else None
            )
            for (split, unit, _), (begin, end) in zip(some, spans, strict=True)
        ]
        for (_, _, clusters_F), found in zip(some, predictor.found(rows), strict=True):
            if not (along := task.along(found)):
                raise UnmaskError("Letters need a model of speech recognition.")
            edges = seconds_of(processor, len(clusters_F))
            yield clusters_F, letters_of(along, (edges[:-1] + edges[1:]) / 2)


def _units(labels: FrameLabels, splits: Sequence[Any]) -> Iterator[tuple[Any, int, np.ndarray]]:
    """(split, unit, clusters [F]) of the units that have clusters."""
    processor = _processor(labels)
    for split in splits:
        frames = [processor.frames(int(samples)) for samples in split.at_rate(processor.rate).cost]
        for unit, name in enumerate(split.names):
            if name in labels.numbers and frames[unit]:
                yield split, unit, labels.of(name, frames[unit])


def _processor(labels: FrameLabels) -> RecordingProcessor:
    """The frames of the labels."""
    return RecordingProcessor(**labels.manifest["frames"])

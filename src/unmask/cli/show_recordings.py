"""`unmask show` for recordings: the part that is shown, and the views of features and of clusters."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

Data = dict[str, Any]


def add_part(sub: argparse.ArgumentParser) -> None:
    """The options for a part of a recording."""
    sub.add_argument("--begin", type=float, metavar="SECONDS", help="where the view of a recording begins (default: 0)")
    sub.add_argument("--end", type=float, metavar="SECONDS", help="where it ends (default: as much as a view shows)")


def part_of(options: argparse.Namespace) -> Any:
    """The part of a recording; None without a begin and an end. Raises UnmaskError for a part of no length."""
    from unmask.visualize.recordings import Part

    begin, end = options.begin or 0.0, options.end
    if not begin >= 0 or not (end is None or end > begin):
        raise UnmaskError("--begin must be 0 seconds or more, and --end greater than it.")
    return None if options.begin is None and end is None else Part(begin, end)


def features(options: argparse.Namespace) -> Data:
    from unmask.data.recordings.labels import FrameLabels
    from unmask.runs.clustering import entries_of
    from unmask.serve.opened import open_model
    from unmask.visualize.recordings import WHOLE

    path, part = Path(options.recording), part_of(options) or WHOLE
    opened = open_model(options.model)
    entries = [] if options.labels is None else [entries_of(FrameLabels(options.labels), path, part)]
    return opened.features(path, seed=options.seed, part=part, entries=entries)


def clusters(options: argparse.Namespace) -> Data:
    from unmask.data.recordings.labels import FrameLabels
    from unmask.objectives.recordings import RecordingConfig
    from unmask.serve.frame_labels import beside_classes, beside_letters
    from unmask.serve.opened import open_model
    from unmask.visualize.clusters import clusters, counted

    if options.count < 1:
        raise UnmaskError(f"--count must be at least 1, not {options.count}.")
    labels, data = FrameLabels(options.labels), RecordingConfig.opens(options.data)
    splits = [data.split(name) for name in ("train", "heldout")]
    if options.model is None:
        return clusters(counted(beside_classes(labels, splits, options.count), labels.clusters), "classes")
    predictor = open_model(options.model).predictor
    if predictor is None:
        raise UnmaskError(f"{options.model} recognises no speech: leave --model out, or fine-tune it first.")
    return clusters(counted(beside_letters(labels, splits, predictor, options.count), labels.clusters), "letters")

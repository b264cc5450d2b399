"""Recordings: a recording along the time axis: waveform, spectrogram, and lanes of what a model made of it.

Shapes: N samples, P columns of pixels, F frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from unmask.data.recordings.features import mel
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.spectrogram import BANDS, DECIBELS, features_of
from unmask.data.recordings.spectrogram import spectrogram as levels
from unmask.visualize.numbers import Data, packed

LONGEST = 30.0  # seconds of a recording that a view shows
STEP = 0.01  # seconds that an arrow key moves


class Part(NamedTuple):
    """The part of a recording that a view shows, in seconds: from `begin` to `end`, or as much as a view can show."""

    begin: float = 0.0
    end: float | None = None

    @property
    def last(self) -> float:
        """Where reading ends: somewhat after what the view shows, so that the view knows that it leaves something
        out."""
        most = self.begin + LONGEST + 1
        return most if self.end is None else min(self.end, most)


WHOLE = Part()


def recording(
    samples_N: np.ndarray,
    rate: int,
    *,
    lead: str = "",
    lanes: Sequence[Data] = (),
    charts: Sequence[Data] = (),
    step: float = STEP,
    begin: float = 0.0,
    note: str = "",
) -> Data:
    """The view: the first LONGEST seconds of a recording, or of a part of it.

    samples_N  float32 from -1 to 1, `rate` of them a second
    lead       the sentence above it
    lanes      rows below the spectrogram, with the same time axis: see `spans`, `stems` and `map_of`
    charts     line charts below, see `chart`
    step       seconds that an arrow key moves, such as those of a frame
    begin      seconds at which the part begins in the whole recording; all other times count from there
    note       the sentence below it
    """
    where = f"{LONGEST:g} seconds from {begin:g} s on" if begin else f"the first {LONGEST:g} seconds"
    cut = "" if len(samples_N) <= LONGEST * rate else f"The view shows {where}. "
    samples_N = samples_N[: int(LONGEST * rate)]
    return {
        "view": "recording",
        "lead": lead,
        "rate": rate,
        "begin": begin,
        "seconds": len(samples_N) / rate,
        "samples": packed(samples_N, "int16"),
        "spectrogram": spectrogram(samples_N, rate),
        "lanes": list(lanes),
        "charts": list(charts),
        "step": step,
        "note": (cut + note).strip(),
    }


def spectrogram(samples_N: np.ndarray, rate: int) -> Data | None:
    """Power in mel bands, in decibels: {"values": [F, M], 0 is DECIBELS below the loudest place and 1 is the loudest;
    "begin" and "hop": seconds of the middle of frame 0 and between two frames; "hertz": [M] middle of each band}. None
    for a recording shorter than a window."""
    levels_FM = levels(samples_N, rate)
    if not len(levels_FM):
        return None
    features = features_of(rate)
    edges = np.linspace(0.0, mel(rate / 2), BANDS + 2)[1:-1]
    return {
        "values": packed(levels_FM, "uint8"),
        "begin": features.window / 2 / rate,
        "hop": features.hop / rate,
        "hertz": [round(float(one), 1) for one in 700 * np.expm1(edges / 1127)],
        "decibels": DECIBELS,
    }


def envelope(samples_N: np.ndarray, columns: int) -> np.ndarray:
    """[2, P], P = min(N, columns): the lowest and the highest sample of each column of pixels."""
    edges = np.linspace(0, len(samples_N), min(len(samples_N), columns) + 1).astype(int)[:-1]
    if not len(edges):
        return np.zeros((2, 0), np.float32)
    return np.stack([np.minimum.reduceat(samples_N, edges), np.maximum.reduceat(samples_N, edges)])


def spans(title: str, found: Sequence[Data], *, over: bool = False) -> Data:
    """A lane of parts of the recording, see `span`; with `over`, also faded in the waveform and spectrogram."""
    return {"kind": "spans", "title": title, "spans": list(found), "over": over}


def span(begin: float, end: float, label: str = "", index: int = 0) -> Data:
    """A part, in seconds; `index` chooses its colour."""
    return {"begin": round(begin, 6), "end": round(end, 6), "label": label, "index": index}


def stems(title: str, found: Sequence[Data]) -> Data:
    """A lane of vertical lines: {"time" in seconds, "value" from 0 to 1, "label"} each, and maybe the "index" of a
    colour."""
    return {"kind": "stems", "title": title, "stems": list(found)}


def spoken(along: Mapping[str, Sequence[Data]]) -> list[Data]:
    """The lanes of what a task recognised: "words" {"word", "begin", "end", "probability"} and "letters" {"letter",
    "time", "probability"}; none without them."""
    lanes = []
    if words := along.get("words"):
        found = [span(one["begin"], one["end"], one["word"], i) for i, one in enumerate(words)]
        lanes.append(spans("Words", found))
    if letters := along.get("letters"):
        found = [{"time": one["time"], "value": one["probability"], "label": one["letter"]} for one in letters]
        lanes.append(stems("Letters: probability at the frame where each is most probable", found))
    return lanes


def map_of(title: str, values_KF: np.ndarray, edges: np.ndarray) -> Data:
    """A lane of K numbers for each frame, from -1 to 1, which have a colour by their sign; `edges` as for `runs`."""
    return {
        "kind": "map",
        "title": title,
        "values": packed(values_KF),
        "begin": float(edges[0]),
        "end": float(edges[-1]),
    }


def chart(title: str, series: Mapping[str, np.ndarray], *, x: str) -> Data:
    """A line chart; number i of a series is at x = i + 1."""
    lines = [
        {"name": name, "index": i, "points": [[place + 1, float(value)] for place, value in enumerate(values)]}
        for i, (name, values) in enumerate(series.items())
    ]
    return {"title": title, "x": x, "series": lines}


def seconds_of(processor: RecordingProcessor, frames: int) -> np.ndarray:
    """[F + 1]: the seconds between which each frame is drawn: the hop around the middle of its window."""
    first = (processor.window - processor.hop) / 2
    edges: np.ndarray = (first + processor.hop * np.arange(frames + 1)) / processor.rate
    return edges


def runs(labels: Sequence[str], edges: np.ndarray, indices: Sequence[int] | None = None) -> list[Data]:
    """The spans of frames that follow each other with the same label; frames with the label "" have none.

    edges    [F + 1] seconds between the frames
    indices  [F] colour of each frame; by default 0
    """
    found, place = [], 0
    for label, group in groupby(labels):
        end = place + len(list(group))
        if label:
            index = 0 if indices is None else int(indices[place])
            found.append(span(float(edges[place]), float(edges[end]), label, index))
        place = end
    return found

"""Signals: a record along the time axis: its trace and beats, the answers to its parts, and where the model looked.

Shapes: N samples of a record, L leads, F bands, K segments, P places of a segment, W windows, R beats.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from unmask.data.signals.beats import r_peaks
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import windows
from unmask.models.model import Model
from unmask.visualize.numbers import Data, packed
from unmask.visualize.recordings import map_of, span, spans, stems

LONGEST = 60.0  # seconds of a record that a view shows
HIGHEST_SCORE = 4.0  # anomaly score with the strongest colour
NO_DEVICE = "This is no medical device: its answers are no diagnosis."


class Attention(NamedTuple):
    """Weights of attention along a record, which are 1 where the model looked most.

    beats    [K * P]: of the places within segments, times that of their segment
    rhythm   [K]: of the segments
    bands    [F, K]: of the segments in each band, times that of the band
    seconds  the part of the record that they cover
    """

    beats: np.ndarray
    rhythm: np.ndarray
    bands: np.ndarray
    seconds: float


def signal(
    samples_NL: np.ndarray,
    rate: float,
    *,
    lead: str = "",
    answers: Sequence[Data] = (),
    beats: Sequence[Data] | None = None,
    labels: Sequence[str] = (),
    attention: Attention | None = None,
    more: Sequence[Data] = (),
) -> Data:
    """The view: the first LONGEST seconds of the first lead.

    samples_NL  in any unit, `rate` of them a second
    lead        the sentence above it
    answers     of its parts: {"begin", "end", "label", "probability"}, ascending, with a colour by `labels`; each is
                drawn to where the next one begins
    beats       the beats that a model labelled: {"time", "label", "probability"}; None: R peaks, without labels
    attention   None: the model has none
    more        lanes below the others
    """
    shown_N = samples_NL[: int(LONGEST * rate), 0].astype(np.float64)
    middle, most = np.median(shown_N), max(float(np.abs(shown_N - np.median(shown_N)).max()), 1e-9)
    if beats is None:
        peaks_R = r_peaks(shown_N, rate)
        lines = [{"time": float(at / rate), "value": 1.0, "label": ""} for at in peaks_R]
        lanes = [stems(f"Beats: {len(peaks_R)} R peaks", lines)]
    else:
        lines = [
            {"time": one["time"], "value": one["probability"], "label": label, "index": labels.index(label)}
            for one in beats
            if one["time"] < LONGEST and (label := one["label"])
        ]
        lanes = [stems("Beats: label, and its probability", lines)]
    if answers:
        ends = [min(one["end"], then["begin"]) for one, then in pairwise(answers)] + [answers[-1]["end"]]
        parts = [
            span(one["begin"], end, f"{one['label']} {one['probability']:.2f}", labels.index(one["label"]))
            for one, end in zip(answers, ends, strict=True)
        ]
        lanes.append(spans("Answers: each is drawn to where the next begins", parts))
    if attention is not None:
        edges = np.array([0.0, attention.seconds])
        lanes.append(map_of("Attention to beats", attention.beats[None], edges))
        lanes.append(map_of("Attention to rhythm: the segments", attention.rhythm[None], edges))
        if len(attention.bands) > 1:
            lanes.append(map_of("Attention to rhythm in each band, the first on top", attention.bands, edges))
    cut = "" if len(samples_NL) <= LONGEST * rate else f"The view shows the first {LONGEST:g} seconds. "
    return {
        "view": "recording",
        "lead": lead,
        "rate": rate,
        "seconds": len(shown_N) / rate,
        "samples": packed((shown_N - middle) / most, "int16"),
        "spectrogram": None,
        "silent": True,
        "lanes": [*lanes, *more],
        "charts": [],
        "step": 0.1,
        "note": f"{cut}The trace is that of the first lead, scaled to ±1. {NO_DEVICE}",
    }


def anomalies(scores_K: np.ndarray, step: float) -> Data:
    """The lane of the anomaly scores of segments of `step` seconds, one after another from the begin of a record."""
    shown_K = scores_K[: max(1, int(LONGEST / step))]
    title = f"Anomaly score, from 0 to {HIGHEST_SCORE:g} or more; held-out records: 1 % of the segments are above 1"
    return map_of(title, np.clip(shown_K, 0, HIGHEST_SCORE)[None] / HIGHEST_SCORE, np.array([0.0, len(shown_K) * step]))


def attention_along(model: Model, processor: SignalProcessor, samples_NL: np.ndarray, window: int) -> Attention | None:
    """The attention of a model along a record, which it reads in windows one after another; None for a model that
    has none.

    window  segments of a window

    Raises UnmaskError for a record that the model cannot read.
    """
    values, S = processor.values(samples_NL), processor.segment
    K = len(values) // S
    found: tuple[np.ndarray, ...] | None = None
    model.eval()
    for begin, end in windows(K, window, window).tolist():
        batch = processor.collate([processor.segmented(values[begin * S : end * S])]).to(model.device)
        with torch.no_grad():
            looked: Any = model.looked(batch)  # type: ignore[operator]  # of a StackModel
        if looked is None:
            return None
        places_KP, segments_KF = (x[0].float().cpu().numpy() for x in (looked.places, looked.segments))
        bands_FK = segments_KF.T
        if found is None:
            found = np.zeros((K, places_KP.shape[1])), np.zeros(K), np.zeros((len(bands_FK), K))
        for whole, part in zip(found, (places_KP, bands_FK.sum(0)), strict=False):
            whole[begin:end] = part[: end - begin] / max(float(part.max()), 1e-9)
        found[2][:, begin:end] = bands_FK[:, : end - begin] / max(float(bands_FK.max()), 1e-9)
    assert found is not None
    return Attention(found[0].ravel(), found[1], found[2], K * S / processor.rate)

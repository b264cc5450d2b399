"""Features: a recording as a model reads it: masked frames, codebook entries, and the states of its frames.

Shapes: N samples, F frames, C width of a frame, D of a hidden state, G codebooks, V entries of each, K components.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from unmask.data.recordings.processor import RecordingProcessor
from unmask.models.model import Model
from unmask.nn.quantiser import ProductQuantiser
from unmask.objectives.recordings import RecordingObjective
from unmask.types import Kind
from unmask.visualize import recordings
from unmask.visualize.numbers import Data
from unmask.visualize.reading import twin
from unmask.visualize.recordings import map_of, runs, seconds_of, spans

COMPONENTS = 8  # of the states of frames that are shown


def features(
    model: Model,
    processor: RecordingProcessor,
    samples_N: np.ndarray,
    *,
    objective: RecordingObjective | None = None,
    lanes: Sequence[Data] = (),
    seed: int = 0,
) -> Data:
    """The view of the first LONGEST seconds of a recording.

    samples_N  float32, at the rate of the processor
    objective  chooses the masked frames, as in training; None: none are shown
    lanes      more lanes, such as the words that the model recognises
    seed       of the masked frames

    Raises UnmaskError for a recording that the model cannot read.
    """
    samples_N = samples_N[: int(recordings.LONGEST * processor.rate)]
    example = processor.example(samples_N)
    F = len(example.tokens)
    edges = seconds_of(processor, F)
    batch = processor.collate([example]).to(model.device)
    reader: Any = twin(model)
    with torch.inference_mode():
        states = {"last layer": reader(batch)[0].float()}
        if hasattr(reader, "frames"):
            states = {"convolutions": reader.frames(batch)[0].float(), **states}
    entries = _entries(reader, states["convolutions"], edges) if "convolutions" in states else []
    found = [*_masked(objective, samples_N, edges, seed), *lanes, *(lane for lane, _ in entries)]
    for name, states_FD in states.items():
        title = f"Output of the {name}: {COMPONENTS} principal components"
        found.append(map_of(title, _components(states_FD), edges))
    hop, window = (1000 * one / processor.rate for one in (processor.hop, processor.window))
    lead = f"The model reads {F:,} frames: one each {hop:.4g} ms, which depends on {window:.4g} ms of sound."
    return recordings.recording(
        samples_N,
        processor.rate,
        lead=lead,
        lanes=found,
        charts=[chart for _, chart in entries],
        step=processor.hop / processor.rate,
        note="" if objective is None else "Each time that training reads a recording, it masks other frames.",
    )


def _masked(objective: RecordingObjective | None, samples_N: np.ndarray, edges: np.ndarray, seed: int) -> list[Data]:
    """The frames that an objective masks; none if it masks no frames."""
    if objective is None:
        return []
    F = len(edges) - 1
    tokens = objective.rows(F, [samples_N], np.random.default_rng(seed)).tokens.flatten()[:F]
    masked = (tokens == Kind.MASK).tolist()
    share = sum(masked) / F
    title = f"Masked frames: {100 * share:.0f} %, which the model must predict; seed {seed}"
    return [spans(title, runs(["masked" if one else "" for one in masked], edges, [1] * F), over=True)] if share else []


def _entries(model: Model, frames_FC: torch.Tensor, edges: np.ndarray) -> list[tuple[Data, Data]]:
    """For each codebook of the model, a lane with the entry of each frame, and a chart of how often each is used."""
    quantiser = next((part for part in model.modules() if isinstance(part, ProductQuantiser)), None)
    if quantiser is None:
        return []
    with torch.inference_mode():
        found = quantiser(frames_FC)
    lanes = []
    for number, (codes_F, perplexity) in enumerate(zip(found.codes.T.cpu().numpy(), found.perplexity, strict=True), 1):
        counts = np.sort(np.bincount(codes_F, minlength=quantiser.entries))[::-1]
        used = int((counts > 0).sum())
        title = f"Codebook {number}: entry of each frame"
        lane = spans(title, runs([str(code + 1) for code in codes_F], edges, codes_F.tolist()))
        shares = {f"codebook {number}": counts / len(codes_F)}
        caption = f"Codebook {number}: {used} of {quantiser.entries} entries, perplexity {float(perplexity):.1f}"
        lanes.append((lane, recordings.chart(caption, shares, x="entries, the most used first", y="share of frames")))
    return lanes


def _components(states_FD: torch.Tensor) -> np.ndarray:
    """[K, F]: the first principal components of the states of frames, divided by the largest number of all of them."""
    centred_FD = (states_FD - states_FD.mean(0)).double().cpu().numpy()
    left_FK, sizes_K, _ = np.linalg.svd(centred_FD, full_matrices=False)
    found_KF = (left_FK * sizes_K).T[:COMPONENTS]
    largest_K = np.abs(found_KF).argmax(1)
    found_KF *= np.sign(found_KF[np.arange(len(found_KF)), largest_K])[:, None]
    scaled: np.ndarray = found_KF / max(float(np.abs(found_KF).max(initial=0)), 1e-30)
    return scaled

"""Features: a recording as a model reads it: masked frames, codebook entries or clusters, and the states of its frames.

Shapes: N samples, F frames, D width of a state, G codebooks, V entries of each, K components.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unmask.data.recordings.processor import RecordingProcessor
from unmask.models.model import Model
from unmask.nn.clusters import ClusterHead
from unmask.nn.quantiser import ProductQuantiser
from unmask.objectives import crops as objective
from unmask.visualize import recordings
from unmask.visualize.numbers import Data
from unmask.visualize.reading import twin
from unmask.visualize.recordings import chart, map_of, runs, seconds_of, spans

COMPONENTS = 8  # of the states of frames that are shown


class Masking(NamedTuple):
    """How an objective masks frames: the share that its spans would cover without overlaps, and frames of a span."""

    share: float
    span: int


class Entries(NamedTuple):
    """The entry of each frame.

    name     of the codebook, or of what has the entries
    codes_F  [F], from 0
    size     V, number of entries
    edges    [F + 1] seconds between its frames; None: those of the model
    """

    name: str
    codes_F: np.ndarray
    size: int
    edges: np.ndarray | None = None


def features(
    model: Model,
    processor: RecordingProcessor,
    samples_N: np.ndarray,
    *,
    masking: Masking | None = None,
    lanes: Sequence[Data] = (),
    entries: Sequence[Entries] = (),
    seed: int = 0,
    begin: float = 0.0,
) -> Data:
    """The view of the first LONGEST seconds of a recording, or of its part that begins at `begin` seconds.

    samples_N  float32, at the rate of the processor
    masking    of the objective that trained the model; None: no frames are masked
    lanes      more lanes, such as the words that the model recognises
    entries    more of them, such as clusters that another model made
    seed       of the masked frames

    Raises UnmaskError for a recording that the model cannot read.
    """
    example = processor.example(samples_N[: int(recordings.LONGEST * processor.rate)])
    edges = seconds_of(processor, len(example.tokens))
    states = _states(twin(model), processor.collate([example]).to(model.device))
    found = [] if masking is None else [_masked(masking, edges, seed)]
    found += lanes
    entries = [*entries, *_entries(model, states)]
    for one in entries:
        labels, own = [str(code + 1) for code in one.codes_F], edges if one.edges is None else one.edges
        found.append(spans(f"{one.name}: number of the entry", runs(labels, own, one.codes_F.tolist())))
    for name, states_FD in states.items():
        title = f"Output of the {name}: {COMPONENTS} principal components"
        found.append(map_of(title, components(states_FD.double().cpu().numpy()), edges))
    hop, window = (1000 * one / processor.rate for one in (processor.hop, processor.window))
    return recordings.recording(
        samples_N,
        processor.rate,
        lead=f"The model reads {len(example.tokens):,} frames: one each {hop:.4g} ms, from {window:.4g} ms of sound.",
        lanes=found,
        charts=[use(one) for one in entries],
        step=processor.hop / processor.rate,
        begin=begin,
        note="" if masking is None else "Each time that training reads a recording, it masks other frames.",
    )


def _states(reader: Any, batch: Any) -> dict[str, Tensor]:
    """The states of frames [F, D], by the layer that they leave."""
    with torch.inference_mode():
        found = {"convolutions": reader.frames(batch)[0].float()} if hasattr(reader, "frames") else {}
        return {**found, "last layer": reader(batch)[0].float()}


def _masked(masking: Masking, edges: np.ndarray, seed: int) -> Data:
    """The frames that an objective masks."""
    F = len(edges) - 1
    labels = np.full(F, "", object)
    labels[objective.spans(F, masking.share, masking.span, np.random.default_rng(seed))] = "masked"
    share = np.count_nonzero(labels == "masked") / F
    title = f"Masked frames: {100 * share:.0f} %, seed {seed}"
    return spans(title, runs(labels.tolist(), edges, [1] * F), over=True)


def _entries(model: Model, states: dict[str, Tensor]) -> Iterator[Entries]:
    """The entry of each frame in each codebook of the model, or its most probable cluster."""
    for part in model.modules():
        with torch.inference_mode():
            if isinstance(part, ProductQuantiser) and "convolutions" in states:
                for number, codes_F in enumerate(part(states["convolutions"]).codes.T.cpu().numpy(), 1):
                    yield Entries(f"Codebook {number}", codes_F, part.entries)
            if isinstance(part, ClusterHead):
                logits_FK = part(states["last layer"])
                yield Entries("Predicted cluster", logits_FK.argmax(-1).cpu().numpy(), logits_FK.shape[-1])


def use(entries: Entries) -> Data:
    """A chart of the share of frames of each entry, with the perplexity: exp of the entropy of these shares."""
    counts_V = np.sort(np.bincount(entries.codes_F, minlength=entries.size))[::-1]
    shares_V = counts_V / max(int(counts_V.sum()), 1)
    used_V = shares_V[shares_V > 0]
    perplexity = float(np.exp(-(used_V * np.log(used_V)).sum()))
    title = f"{entries.name}: {len(used_V)} of {entries.size} entries are used, perplexity {perplexity:.1f}"
    return chart(title, {"share of frames": shares_V}, x="entry, the most used first")


def components(states_FD: np.ndarray, most: int = COMPONENTS) -> np.ndarray:
    """[K, F]: the first principal components of the states of frames, divided by the largest number of all. The sign of
    a component, which a PCA leaves open, makes its largest number positive."""
    left_FK, sizes_K, _ = np.linalg.svd(states_FD - states_FD.mean(0), full_matrices=False)
    found_KF = (left_FK * sizes_K).T[:most]
    largest_K = np.abs(found_KF).argmax(1)
    found_KF *= np.sign(found_KF[np.arange(len(found_KF)), largest_K])[:, None]
    scaled: np.ndarray = found_KF / max(float(np.abs(found_KF).max(initial=0)), 1e-30)
    return scaled

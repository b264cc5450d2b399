"""Summaries: one vector for each item, from a trunk without heads.

Shapes: N items, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from unmask.data.examples import lengths_of
from unmask.data.processor import Processor
from unmask.data.recordings.segments import Framed
from unmask.models.model import Model
from unmask.tasks.batching import TOKENS_ELSEWHERE, answered, by_length, evaluating
from unmask.tasks.embedding import POOLINGS
from unmask.types import Example

Summary = Literal["summary", "mean"]


def summaries(
    model: Model, examples: Sequence[Example], processor: Processor[Any], pooling: Summary = "summary"
) -> np.ndarray:
    """[N, D] float32, in evaluation mode.

    pooling  "summary": what a head for whole sequences reads (`Model.summary`), such as the state of the class token;
             "mean": the mean of the states of all places. Objectives that predict patches do not train the class token
    """

    def read(places: list[int]) -> list[np.ndarray]:
        batch = processor.collate([examples[i] for i in places]).to(model.device)
        assert batch.starts is not None
        hidden_BTD = model(batch)
        if pooling == "summary":
            found_ND = model.summary(hidden_BTD, batch.starts, batch)
        elif hidden_BTD.shape[1] == batch.tokens.shape[1]:
            found_ND = POOLINGS["mean"](hidden_BTD.float(), batch, batch.starts)
        else:  # stages have merged the places of a picture, which has a row of its own
            found_ND = hidden_BTD.mean(1)
        return list(found_ND.float().cpu().numpy())

    with evaluating(model):
        return np.stack(answered(read, lengths_of(examples).tolist(), model.device))


def layer_summaries(model: Model, examples: Sequence[Example], processor: Processor[Any]) -> list[np.ndarray]:
    """[N, D] float32 of the input of the first layer and of the output of each layer: the mean of the states of all
    places of an item, in evaluation mode. Raises UnmaskError for a model whose layers are not blocks."""
    found: list[list[np.ndarray]] = [[] for _ in examples]
    with evaluating(model):  # one batch at a time, since the states are collected by hooks on the model
        for places in by_length(lengths_of(examples).tolist(), TOKENS_ELSEWHERE):
            batch = processor.collate([examples[i] for i in places]).to(model.device)
            assert batch.starts is not None
            means = [POOLINGS["mean"](x_BTD.float(), batch, batch.starts) for x_BTD in model.hidden_states(batch)]
            for row, place in enumerate(places):
                found[place] = [mean_ND[row].cpu().numpy() for mean_ND in means]
    return [np.stack(layer) for layer in zip(*found, strict=True)]


def frame_states(model: Model, found: Sequence[Framed], processor: Any) -> list[np.ndarray]:
    """[N, D] float32 of the input of the first layer and of the output of each layer: the states of the N frames of
    `found`, each recording read alone and whole, in evaluation mode. Raises UnmaskError as `layer_summaries`."""
    parts = list[list[np.ndarray]]()
    with evaluating(model):
        for one in found:
            batch = processor.collate([processor.example(one.samples(processor))]).to(model.device)
            parts.append([x_BTD[0, one.frames].float().cpu().numpy() for x_BTD in model.hidden_states(batch)])
    return [np.concatenate(layer) for layer in zip(*parts, strict=True)]

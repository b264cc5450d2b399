"""Summaries: one vector for each item, from a trunk without heads.

Shapes: N items, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.data.processor import Processor
from unmask.models.model import Model
from unmask.tasks.batching import answered
from unmask.tasks.task import evaluating
from unmask.types import Example


def summaries(model: Model, examples: Sequence[Example], processor: Processor[Any]) -> np.ndarray:
    """[N, D] float32: for each example what a head for whole sequences reads of it (`Model.summary`), in evaluation
    mode: the state of the class token, or the mean of the last stage of a Swin."""

    def read(places: list[int]) -> list[np.ndarray]:
        batch = processor.collate([examples[i] for i in places]).to(model.device)
        assert batch.starts is not None
        return list(model.summary(model(batch), batch.starts, batch).float().cpu().numpy())

    with evaluating(model):
        return np.stack(answered(read, [len(example.tokens) for example in examples], model.device))

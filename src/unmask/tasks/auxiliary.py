"""A task with the next token as auxiliary objective, as GPT is fine-tuned (Radford et al. 2018, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives import Objective
from unmask.objectives.next_token import NextToken
from unmask.tasks.task import Encoded, Task
from unmask.types import Batch, Example, Loss


class WithLanguageModel(Objective):
    """L3 = L2 + weight * L1 (equation 5): the loss of the task plus that of every next token of the same sequences.

    task    the task, which gives the scores of the model
    weight  of the language model, 0.5 as published

    Training rows go through `prepare`. The model also needs the head "next". `projecting` removes it at the end, so
    that the saved model has the head of the task alone. Raises UnmaskError for a weight that is not above 0.
    """

    def __init__(self, task: Task, weight: float = 0.5) -> None:
        if not weight > 0:
            raise UnmaskError(f"The weight of the language model must be above 0, not {weight}.")
        self.task, self.next = task, NextToken()
        self.name = task.name
        self.heads = {**task.heads, **self.next.heads}
        self._weights = {**task.weights, self.next.name: weight}

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights

    def prepare(self, encoded: Encoded) -> Encoded:
        """The same rows with the next token as a target at every token but the last."""
        return replace(encoded, examples=[self._with_targets(example) for example in encoded.examples])

    def _with_targets(self, example: Example) -> Example:
        follow = np.asarray(example.tokens[1:], dtype=np.int64)
        targets = {**example.targets, self.next.name: (np.arange(len(follow)), follow)}
        return replace(example, targets=targets)

    @contextmanager
    def projecting(self, model: Model, seed: int = 0) -> Iterator[None]:
        """Remove the head "next" from the model at the end."""
        try:
            yield
        finally:
            del model.heads[self.next.name]

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        hidden_BTD = model(batch)
        return {
            self.task.name: self.task.score(model, hidden_BTD, batch),
            self.next.name: self.next.score(model, hidden_BTD, batch),
        }

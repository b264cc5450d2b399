"""Objective: what the data must look like and what is minimised. It owns no parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from unmask.models.model import Model
from unmask.nn import Logits
from unmask.objectives.cross_entropy import of_logits
from unmask.types import Batch, Document, Example, Head, Loss


class Join(Protocol):
    """How a tokenizer frames one or two runs of ids with its special tokens: `Tokenizer.join`."""

    def __call__(
        self, first: np.ndarray, second: np.ndarray | None = None, length: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]: ...


class Objective:
    """One thing to learn: how it samples sequences, chooses its targets, and scores the answers.

    name   of its loss term, of its target in `Batch.targets`, and of the head that answers it
    heads  what it asks of the model: name of the head -> its kind
    """

    name: str
    heads: Mapping[str, Head]

    @property
    def weights(self) -> Mapping[str, float]:
        """Loss term -> weight in the total."""
        return {self.name: 1.0}

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        """Sequences of at most `length` tokens out of some documents, before they are packed into rows."""
        raise NotImplementedError(f"{type(self).__name__} chooses targets only; join it with one that samples text")

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Choose targets in packed rows, and change the input where the objective asks for it."""
        return batch

    def read(self, model: Model, batch: Batch) -> tuple[Tensor, Batch, dict[str, Loss]]:
        """One pass through the model: its hidden states, the batch that it saw, and terms that come of reading it. Of
        objectives that are joined, the last one reads."""
        return model(batch), batch, {}

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Cross-entropy of the head's answers at the targets of `batch`, in nats, with the number right."""
        target = batch.targets[self.name]
        return self.of_answers(model.logits(self.name, hidden_BTD, target.places, batch), target.values)

    def of_answers(self, logits: Tensor | Logits, values_M: Tensor) -> Loss:
        """The same of answers [M, C] that are there already, or are a product away."""
        return of_logits(logits, values_M)

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        """One Loss for each term, after one pass through the model; of a term without a target it is 0."""
        hidden_BTD, seen, losses = self.read(model, batch.asking(self.weights))
        return losses | {self.name: self.score(model, hidden_BTD, seen)}


class Joint(Objective):
    """Several objectives on the same sequences, with one pass through the trunk.

    The first one samples, each chooses its targets in turn, and the last one, which may change what is read, reads.
    BERT is `Joint(NextSentence(join), MaskedLM(...))`.
    """

    def __init__(self, *parts: Objective, weights: Mapping[str, float] | None = None) -> None:
        self.parts = parts
        self.name = "+".join(part.name for part in parts)
        self.heads = {name: head for part in parts for name, head in part.heads.items()}
        self._weights = {name: w for part in parts for name, w in part.weights.items()} | dict(weights or {})

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        return self.parts[0].sample(documents, length, rng)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        for part in self.parts:
            batch = part.corrupt(batch, rng)
        return batch

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        # No pair may have been long enough. Every process asks every head all the same, for a sharded model sends its
        # gradients together, and those of all processes must be the same ones.
        hidden_BTD, seen, losses = self.parts[-1].read(model, batch.asking(self.weights))
        return losses | {part.name: part.score(model, hidden_BTD, seen) for part in self.parts}

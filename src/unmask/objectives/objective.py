"""Objective: what the data must look like and what is minimised. It owns no parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unmask.models.model import Model
from unmask.types import Batch, Document, Example, Loss

CACHED = 1 << 19  # logits at a time


class Join(Protocol):
    """How a tokenizer frames one or two runs of ids with its special tokens: `Tokenizer.join`."""

    def __call__(
        self, first: np.ndarray, second: np.ndarray | None = None, length: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]: ...


class Objective:
    """One thing to learn: how it samples sequences, chooses its targets, and scores the answers.

    name   of its loss term, of its target in `Batch.targets`, and of the head that answers it
    heads  what it needs of the model: head -> number of outputs (0 where the vocabulary decides)
    """

    name: str
    heads: Mapping[str, int]

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
        return self.of_answers(model.answer(self.name, hidden_BTD, target.places), target.values)

    def of_answers(self, logits_MC: Tensor, values_M: Tensor) -> Loss:
        """The same of answers that are there already."""
        return of_logits(logits_MC, values_M)

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        """One Loss for each term, after one pass through the model."""
        hidden_BTD, seen, losses = self.read(model, batch)
        return losses | {self.name: self.score(model, hidden_BTD, seen)}


class Joint(Objective):
    """Several objectives on the same sequences, with one pass through the trunk.

    The first one samples, each chooses its targets in turn, and the last one, which may change what is read, reads.
    BERT is `Joint(NextSentence(join), MaskedLM(...))`.
    """

    def __init__(self, *parts: Objective, weights: Mapping[str, float] | None = None) -> None:
        self.parts = parts
        self.name = "+".join(part.name for part in parts)
        self.heads = {head: outputs for part in parts for head, outputs in part.heads.items()}
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
        hidden_BTD, seen, losses = self.parts[-1].read(model, batch)
        present = [part for part in self.parts if part.name in batch.targets]  # no pair may have been long enough
        return losses | {part.name: part.score(model, hidden_BTD, seen) for part in present}


def of_logits(logits_MC: Tensor, values_M: Tensor) -> Loss:
    """Sum of -log p(value); the metric `correct` counts where none is likelier. Logits may be of any float type; it is
    computed in float32."""
    total, _, correct = cross_entropy(logits_MC, values_M)
    return Loss(total, values_M.numel(), {"correct": correct})


def cross_entropy(logits_MC: Tensor, values_M: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """What is minimised, the negative log-likelihood (both in nats, summed), and how many values no other exceeds.

    smoothing  share of the probability that is asked for all values alike: (1 - smoothing) nll - smoothing mean log p
    """
    if logits_MC.device.type == "cpu" and logits_MC.dtype in (torch.float32, torch.bfloat16):
        total, nll, correct = CrossEntropy.apply(logits_MC, values_M, smoothing)
        return total, nll, correct
    log_p_MC = logits_MC.float().log_softmax(-1)
    log_p_M = log_p_MC.gather(-1, values_M[:, None]).squeeze(-1)
    nll = -log_p_M.sum()
    with torch.no_grad():  # amax is several times faster than argmax on a CPU
        correct = (log_p_M >= log_p_MC.amax(-1)).sum()
    total = (1 - smoothing) * nll - smoothing * log_p_MC.mean(-1).sum() if smoothing else nll
    return total, nll.detach(), correct


class CrossEntropy(torch.autograd.Function):
    """`cross_entropy`, some rows at a time, so many as a cache holds: logits of a whole vocabulary are the largest
    numbers of a step, and passing over them in memory costs more than the logarithms. The gradient, softmax - one-hot
    or what is asked for in its place, is made in passing.
    """

    @staticmethod
    def forward(ctx: Any, logits_MC: Tensor, values_M: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
        """[M, C] float and [M] int64 -> two sums, float32, and the number, int64."""
        rows, share = max(1, CACHED // logits_MC.shape[1]), smoothing / logits_MC.shape[1]
        nll, everywhere, correct = torch.zeros(()), torch.zeros(()), torch.zeros((), dtype=torch.long)
        gradient_MC = torch.empty_like(logits_MC) if ctx.needs_input_grad[0] else None
        for begin in range(0, len(values_M), rows):
            here, places = slice(begin, begin + rows), values_M[begin : begin + rows, None]
            log_p = logits_MC[here].float().log_softmax(-1)
            said = log_p.gather(1, places)
            nll -= said.sum()
            correct += (said.squeeze(1) >= log_p.amax(1)).sum()
            if smoothing:
                everywhere -= log_p.sum()
            if gradient_MC is not None:
                p = log_p.exp_().sub_(share) if smoothing else log_p.exp_()
                gradient_MC[here] = p.scatter_add_(1, places, p.new_full(places.shape, smoothing - 1.0))
        ctx.save_for_backward(gradient_MC)
        total = (1 - smoothing) * nll + share * everywhere if smoothing else nll.clone()
        ctx.mark_non_differentiable(nll, correct)
        return total, nll, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        (gradient_MC,) = ctx.saved_tensors
        return gradient_MC * upstream, None, None

"""Task: an objective that can also answer. It encodes labelled rows, answers them, and scores the answers.

Shapes: N examples, M targets, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from unmask.data import collate
from unmask.data.rows import Row
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.kernels.threads import a_thread_each, workers
from unmask.models.model import Model
from unmask.objectives.objective import Objective
from unmask.types import Batch, Example

Answer = TypeVar("Answer")
TOKENS_AT_ONCE = 512  # of a batch that is only answered, by one thread: what lies between its layers stays in cache
FEWEST_TOKENS = 128  # of a batch that is smaller so that every thread has one
TOKENS_ELSEWHERE = 8_192  # of a batch where no threads share the work


@dataclass(frozen=True)
class Encoded:
    """Rows as sequences of ids, in the order of the rows.

    examples  one for each row, or several: the windows of a long text, the choices of a question, the texts of a pair
    owners    [N] the row that each example belongs to, ascending
    rows      what was encoded
    length    the longest sequence that was allowed, in tokens
    cut       numbers of the rows that lost tokens
    split     rows that became several windows, in which every token keeps its place
    together  whether the examples of a row must meet in one batch: the loss compares them
    """

    examples: list[Example]
    owners: np.ndarray
    rows: Sequence[Row]
    length: int
    cut: tuple[int, ...] = ()
    split: int = 0
    together: bool = False

    @property
    def notice(self) -> str:
        """One sentence on rows that did not fit; empty where all did."""
        if self.cut:
            share = f"{len(self.cut):,} of {len(self.rows):,} rows ({len(self.cut) / len(self.rows):.1%})"
            return f"{share} are longer than {self.length} tokens and were cut."
        if self.split:
            share = f"{self.split:,} of {len(self.rows):,} rows ({self.split / len(self.rows):.1%})"
            return f"{share} are longer than {self.length} tokens and were split into windows."
        return ""

    def said(self, tokenizer: Tokenizer) -> str:
        """What is to be said of rows that did not fit, and of words that the vocabulary lacks; empty where nothing."""
        return " ".join(filter(None, (self.notice, self._unread(tokenizer))))

    def _unread(self, tokenizer: Tokenizer) -> str:
        """One sentence where more than a token in a hundred stands for such words; else nothing."""
        if tokenizer.unknown in (tokenizer.pad, tokenizer.cls, tokenizer.sep):  # a vocabulary of bytes lacks nothing
            return ""
        unknown = sum(int((example.tokens == tokenizer.unknown).sum()) for example in self.examples)
        share = unknown / max(1, sum(len(example.tokens) for example in self.examples))
        return f"{share:.1%} of the tokens stand for words that the vocabulary lacks." if share > 0.01 else ""

    @cached_property
    def of_rows(self) -> list[slice]:
        """For each row, where its examples are."""
        ends = np.searchsorted(self.owners, np.arange(len(self.rows) + 1)).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]


class Task(Objective):
    """An objective with labelled rows: it encodes them, answers them, and scores the answers.

    name    of the head, the loss term and the target
    labels  class names in the order of the outputs; none where there are no classes
    metric  the one that decides which model is best, where nobody says otherwise; higher is better
    reference  what `baseline` measures, in words

    The answer to a row is an array [1, C] for a text or a pair, [W, C] for the W words of a sentence, and what
    `merge` makes of the examples of a row elsewhere.
    """

    labels: tuple[str, ...] = ()
    metric: str
    reference = "one answer to all rows"

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        """Sequences of at most `length` tokens. A row without a label has a target too: a place to answer at."""
        raise NotImplementedError

    def squash(self, logits: Tensor) -> Tensor:
        """What a head says [M, C] -> what is answered [M, C]: probabilities, or scores as they are."""
        return logits.softmax(-1)

    def places(self, batch: Batch) -> Tensor:
        """The flat places [M] that the head answers at."""
        return batch.targets[self.name].places

    def answers(self, model: Model, batch: Batch) -> list[np.ndarray]:
        """Answers [M, C] of each example, in the order of the examples, wherever packing put them."""
        places = self.places(batch)
        answers = self.squash(model.answer(self.name, model(batch), places, batch).float()).detach().cpu().numpy()
        owners = sequence_of(batch, places).cpu().numpy()
        assert batch.starts is not None
        return [answers[owners == i] for i in range(len(batch.starts))]

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Any:
        """The answer to a row from the answers to its examples."""
        return np.concatenate(parts)

    def answer_all(self, model: Model, encoded: Encoded, pad: int) -> list[Any]:
        """The answer to each row; computed without gradients, in evaluation mode."""

        def read(places: list[int]) -> list[np.ndarray]:
            batch = collate.pad([encoded.examples[i] for i in places], pad, multiple=1)
            return self.answers(model, batch.to(model.device))

        with evaluating(model):
            found = answered(read, [len(example.tokens) for example in encoded.examples], model.device)
        return [self.merge(found[own], encoded, row) for row, own in enumerate(encoded.of_rows)]

    def evaluate(self, model: Model, encoded: Encoded, pad: int) -> dict[str, float]:
        """The metrics of what the model answers to rows that have labels."""
        return self.judge(model, self.answer_all(model, encoded, pad), encoded.rows)

    def judge(self, model: Model, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of answers that the model gave, also where those of its vectors need one of its heads."""
        return self.metrics(answers, rows)

    def metrics(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, float]:
        """Name -> value over all rows; `loss` is the mean one, in nats for classes."""
        raise NotImplementedError

    def report(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        """Class -> precision, recall, f1, support; empty where there are no classes."""
        return {}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """The metrics of one answer to everything: the most frequent label of `train`, or its mean score."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """What a folder must remember, besides its head and labels, for the task to answer alike: JSON values."""
        return {}

    def is_collapsed(self, answers: Sequence[Any], rows: Sequence[Row]) -> bool:
        """Whether all rows, or words, got one answer, though they ask for several, as from a model that learned only
        how often labels are."""
        return False

    def fitted(self, answers: Sequence[Any], rows: Sequence[Row]) -> None:
        """Choose, on the answers to dev rows, what is not a weight of the model: a threshold. Most tasks have none."""


def sequence_of(batch: Batch, places: Tensor) -> Tensor:
    """Which sequence of the batch, in the order of its examples, each flat place [M] belongs to: [M] int64."""
    if batch.starts is None:
        raise UnmaskError("The batch does not say where its sequences start; make it with collate.pack or pad.")
    order = batch.starts.argsort()
    return order[torch.searchsorted(batch.starts[order], places, right=True) - 1]


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the mode that the model was in comes back afterwards."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def answered(
    read: Callable[[list[int]], Iterable[Answer]], lengths: Sequence[int], device: torch.device | str
) -> list[Answer]:
    """The answers to examples of these lengths, in their order, from `read`, which answers those at some places; it is
    asked for batches of similar lengths, on a CPU for several at once (`threads.a_thread_each`)."""
    batches = list(by_length(lengths, _most_tokens(sum(lengths), device)))
    found: dict[int, Answer] = {}
    for places, answers in zip(batches, a_thread_each(read, batches, device), strict=True):
        found.update(zip(places, answers, strict=True))
    return [found[i] for i in range(len(lengths))]


def _most_tokens(total: int, device: torch.device | str) -> int:
    """Of a batch: fewer where there are not enough for every thread."""
    threads = workers(device)
    if threads is None:
        return TOKENS_ELSEWHERE
    return TOKENS_AT_ONCE if threads == 1 else min(max(-(-total // threads), FEWEST_TOKENS), TOKENS_AT_ONCE)


def by_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places of examples, short ones first, in batches of at most so many tokens once they are padded."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > most:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def different(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels. Raises UnmaskError where they are fewer than two, or two of them are the same."""
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise UnmaskError(f"A task needs two or more different labels, not {', '.join(labels) or 'none'}.")
    return tuple(labels)


def label_id(ids: Mapping[str, int], label: str, row: Row) -> int:
    """The number of a label. Raises UnmaskError that names the row for one that is not known."""
    if label not in ids:
        raise UnmaskError(f"{row.place or 'A row'} has the label '{label}', which is not one of {', '.join(ids)}.")
    return ids[label]


def one_class(answers: Sequence[np.ndarray]) -> bool:
    """Whether all answers [*, C] choose the same class."""
    return len({int(i) for answer in answers for i in answer.argmax(-1)}) == 1


def mean_cross_entropy(probabilities: np.ndarray, true: np.ndarray) -> float:
    """-log of the probability [N, C] of the true class [N], averaged, in nats."""
    return float(-np.log(np.maximum(probabilities[np.arange(len(true)), true], 1e-12)).mean())

"""Batching for prediction: batches of examples of similar lengths, on a CPU several batches at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.kernels.threads import a_thread_each, workers
from unmask.types import Batch

Answer = TypeVar("Answer")
TOKENS_AT_ONCE = 512  # of a batch for one thread: the activations between its layers stay in cache
FEWEST_TOKENS = 128  # of a batch that is made smaller so that every thread has one
TOKENS_ELSEWHERE = 8_192  # of a batch where no threads share the work


def answered(
    read: Callable[[list[int]], Iterable[Answer]],
    lengths: Sequence[int],
    device: torch.device | str,
    at_once: int | None = None,
) -> list[Answer]:
    """The answers to examples of these lengths, in their order.

    read     indices of the examples of a batch -> their answers; it gets batches of examples of similar lengths, on a
             CPU several at once (`kernels.threads.a_thread_each`)
    at_once  most tokens of a batch for one thread; None: TOKENS_AT_ONCE
    """
    batches = list(by_length(lengths, _most_tokens(sum(lengths), device, at_once or TOKENS_AT_ONCE)))
    found: dict[int, Answer] = {}
    for places, answers in zip(batches, a_thread_each(read, batches, device), strict=True):
        found.update(zip(places, answers, strict=True))
    return [found[i] for i in range(len(lengths))]


def _most_tokens(total: int, device: torch.device | str, at_once: int) -> int:
    """The most tokens of a batch: fewer where there are not enough for every thread."""
    threads = workers(device)
    if threads is None:
        return TOKENS_ELSEWHERE
    return at_once if threads == 1 else min(max(-(-total // threads), FEWEST_TOKENS), at_once)


def by_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Indices of examples, short ones first, in batches of at most `most` tokens, padding included."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > most:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def sequence_of(batch: Batch, places: Tensor) -> Tensor:
    """[M] int64: the sequence, by the order of the examples, to which each flat place [M] of the batch belongs."""
    if batch.starts is None:
        raise UnmaskError("The batch does not say where its sequences start; make it with collate.pack or pad.")
    order = batch.starts.argsort()
    return order[torch.searchsorted(batch.starts[order], places, right=True) - 1]


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the model's previous mode is restored afterwards."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()

"""Batching of bitext: encoded pairs as a source, as batches, and in steps of about equal numbers of target tokens.

Shapes: B rows, S tokens of a source, T of a target, M targets, U pairs; F numbers of a vector source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unmask.data.loader import TOKENS_AT_ONCE, Collated, Loader, MicroBatches
from unmask.data.order import WINDOW, ByLength
from unmask.errors import UnmaskError
from unmask.types import Batch, Target, Unread

Sentence = Sequence[int] | np.ndarray | Unread


def collate_pairs(sources: Sequence[Sentence], targets: Sequence[Sentence], pad: int, start: int, end: int) -> Batch:
    """Collate pairs of ids without special tokens to a batch for teacher forcing.

    For a target y1 … yn, tokens [B, T] are start, y1 … yn, and the values of `targets["next"]` are y1 … yn, end, at the
    places [M] that are not padding. `source.tokens` [B, S] are the source and `end`. Padding is on the right;
    `documents` is 1 for tokens and 0 for padding, or None without padding. If each source is a vector [1, F], the
    source is `Batch.of_vectors` of them; if it is `Unread`, its example.
    """
    _check_equal(sources, targets)
    written = _Ragged(targets)
    tokens = torch.from_numpy(written.padded(pad, first=start))  # start, y1 … yn
    following = written.padded(pad, last=end).reshape(-1)  # y1 … yn, end
    documents = written.documents()
    places = np.arange(len(following)) if documents is None else np.flatnonzero(documents.numpy())
    target = Target(torch.from_numpy(places), torch.from_numpy(following[places]))
    return Batch(tokens, documents=documents, targets={"next": target}, source=source_batch(sources, pad, end))


def source_batch(sources: Sequence[Sentence], pad: int, end: int) -> Batch:
    """Collate sources to a batch [B, S], each followed by `end`, as in `collate_pairs`."""
    if len(sources) and isinstance(sources[0], Unread):
        return sources[0].together(sources)
    ragged = _Ragged(sources)
    if ragged.values.ndim == 2:
        return Batch.of_vectors(torch.from_numpy(ragged.values))
    return Batch(torch.from_numpy(ragged.padded(pad, last=end)), documents=ragged.documents())


class PairSource:
    """Encoded pairs of ids, without special tokens, as a source: a unit is (source, target).

    cost     [U] number of target tokens, with `end`
    sources  [U] number of source tokens, with `end`
    longer   [U] number of tokens of the longer side
    """

    def __init__(self, sources: Sequence[Sentence], targets: Sequence[Sentence]) -> None:
        """Raises UnmaskError if there are no pairs, or the numbers of sources and targets differ."""
        _check_equal(sources, targets)
        if not len(sources):
            raise UnmaskError("There are no pairs to train on.")
        self._sources = sources if isinstance(sources[0], Unread) else _Ragged(sources)
        self._targets = _Ragged(targets)
        self.sources, self.cost = _lengths(sources) + 1, self._targets.lengths + 1
        self.longer = np.maximum(self.sources, self.cost)

    def read(self, unit: int) -> tuple[Sentence, np.ndarray]:
        """The ids, or the vector [1, F], of a source, or a source that is `Unread`, and the ids of its target."""
        return self._sources[unit], self._targets[unit]


@dataclass(frozen=True)
class PairRows:
    """`collate_pairs` for a loader."""

    pad: int
    start: int
    end: int

    def __call__(self, pairs: list[tuple[Sentence, np.ndarray]], rng: np.random.Generator) -> Batch:
        sources, targets = zip(*pairs, strict=True)
        return collate_pairs(sources, targets, self.pad, self.start, self.end)


def pairs(
    source: PairSource,
    tokens: int,
    collate: PairRows,
    *,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
    window: int = WINDOW,
    at_once: int = TOKENS_AT_ONCE,
) -> Loader:
    """Training steps of about `tokens` target tokens over all ranks, with pairs of similar lengths.

    The target tokens include `end`. A micro-batch has about `at_once` tokens of the longer side.

    Raises UnmaskError if steps are too small to have a pair for every rank.
    """
    if tokens < 1:
        raise UnmaskError(f"A step needs at least 1 token, not {tokens}.")
    lengths = source.longer, source.sources - source.cost
    order = ByLength(source, tokens, seed=seed, ranks=ranks, lengths=lengths, window=window)
    return Loader(Collated(order, collate, MicroBatches(source.longer, rank, ranks, at_once)))


def _check_equal(sources: Sequence[Sentence], targets: Sequence[Sentence]) -> None:
    if len(sources) != len(targets):
        raise UnmaskError(f"There are {len(sources):,} sources but {len(targets):,} targets.")


def _lengths(sequences: Sequence[Sentence]) -> np.ndarray:
    """The length of each."""
    return np.fromiter(map(len, sequences), np.int64, len(sequences))


class _Ragged:
    """Concatenated sequences of different lengths: values [all], or [all, F] of vectors, and the begin of each."""

    def __init__(self, sequences: Sequence[Sentence]) -> None:
        self.lengths = _lengths(sequences)
        self.begins = np.cumsum(self.lengths) - self.lengths
        parts = [np.asarray(sequence) for sequence in sequences if len(sequence)]
        self.values = np.concatenate(parts) if parts else np.empty(0)
        self.values = self.values.astype(np.int32 if self.values.ndim == 1 else np.float32, copy=False)

    def __getitem__(self, number: int) -> np.ndarray:
        return self.values[self.begins[number] : self.begins[number] + self.lengths[number]]

    def padded(self, pad: int, *, first: int | None = None, last: int | None = None) -> np.ndarray:
        """Tokens [B, longest + 1] of the sequences, each with `first` before it or `last` after it."""
        rows = np.arange(len(self.lengths))
        tokens = np.full((len(rows), int(self.lengths.max(initial=0)) + 1), pad, np.int64)
        owners = np.repeat(rows, self.lengths)
        columns = np.arange(len(owners)) - self.begins[owners]
        tokens[owners, columns + (first is not None)] = self.values
        if first is not None:
            tokens[:, 0] = first
        if last is not None:
            tokens[rows, self.lengths] = last
        return tokens

    def documents(self) -> Tensor | None:
        """[B, longest + 1]: 1 for a token, 0 for padding; None if nothing is padded."""
        longest = int(self.lengths.max(initial=0))
        if (self.lengths == longest).all():
            return None
        return torch.from_numpy((np.arange(longest + 1) <= self.lengths[:, None]).astype(np.int64))

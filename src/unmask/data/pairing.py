"""Pairing: encoded pairs to batches of about equally many target tokens, sentences of one length together.

Shapes: B rows, S tokens of a source, T of a target, M targets, P pairs; F numbers of a source that is a vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.types import Batch, Target

WINDOW = 1 << 16  # pairs that are sorted together: enough for a batch of one length, few enough to mix an epoch
TOKENS_AT_ONCE = 16_384  # of a micro-batch, about, the longer side counted
Sentence = Sequence[int] | np.ndarray


def collate_pairs(sources: Sequence[Sentence], targets: Sequence[Sentence], pad: int, start: int, end: int) -> Batch:
    """Pairs of ids without special tokens as a batch for teacher forcing.

    With a target y1 … yn, tokens [B, T] are start, y1 … yn, and `targets["next"]` asks y1 … yn, end of them, at the
    places [M] of all that is not padding. `source.tokens` [B, S] are the source and `end`. Padding is on the right;
    `documents` is 1 for real tokens, 0 for padding, or None where there is none. Where each source is one vector
    [1, F], `source.tokens` [B, F] are the vectors.
    """
    _check_equal(sources, targets)
    return _collate(_Ragged(sources), _Ragged(targets), np.arange(len(sources)), pad, start, end)


def source_batch(sources: Sequence[Sentence], pad: int, end: int) -> Batch:
    """Sources [B, S] to be read, each with `end` behind it, as `collate_pairs` has them."""
    return _read(_Ragged(sources), np.arange(len(sources)), pad, end)


class Pairs:
    """Encoded pairs as training data, without end: every step has about `tokens` target tokens, of all ranks together.

    An epoch is a permutation of the pairs, a pure function of (seed, epoch), cut into windows; within a window pairs
    are sorted by length, and the batches cut from it are taken in random order. All epochs have `steps_per_epoch`
    steps, so that the position {"step"} is enough to go on at any place at once. Rank r takes every `ranks`-th pair of
    a step from the r-th on, in micro-batches of about `at_once` tokens of the longer side, as many as every other rank.
    """

    window: ClassVar[int] = WINDOW
    at_once: ClassVar[int] = TOKENS_AT_ONCE

    def __init__(
        self,
        sources: Sequence[Sentence],
        targets: Sequence[Sentence],
        tokens: int = 4096,
        *,
        pad: int,
        start: int,
        end: int,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        """Take pairs of ids, without special tokens, as `collate_pairs` does; `end` counts among the target tokens.

        Raises UnmaskError where there are no pairs, numbers of sources and targets differ, or steps are too small to
        give every rank a pair.
        """
        _check_equal(sources, targets)
        if not len(sources):
            raise UnmaskError("There are no pairs to train on.")
        if tokens < 1 or seed < 0 or not 0 <= rank < ranks:
            raise UnmaskError(f"A step cannot have {tokens} tokens, the seed {seed} or rank {rank} of {ranks}.")
        self.sources, self.targets = _Ragged(sources), _Ragged(targets)
        self.pad, self.start, self.end, self.seed, self.rank, self.ranks = pad, start, end, seed, rank, ranks
        self.source_sizes, self.sizes = self.sources.lengths + 1, self.targets.lengths + 1  # [P], with `end`
        self.longer = np.maximum(self.source_sizes, self.sizes)
        # In any stretch of as many tokens as the longest target has, a pair begins.
        total, least = int(self.sizes.sum()), int(self.sizes.max()) * ranks
        if tokens < least or total < least:
            where = f"Steps of {tokens:,}" if tokens < least else f"All pairs together, {total:,}"
            raise UnmaskError(
                f"{where} target tokens, cannot give each of {ranks} processes a pair, as targets have up to "
                f"{least // ranks:,} tokens; make the steps larger, or leave the longest pairs out."
            )
        self.steps_per_epoch = max(1, min(round(total / tokens), total // least))
        self._epoch: tuple[int, np.ndarray, np.ndarray] | None = None

    def batches(self, position: Mapping[str, Any] | None = None) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
        """(micro-batches of this rank, position after them) for each step from `position` on (None: the beginning).

        Raises UnmaskError for a position that is none of these data.
        """
        step = 0 if position is None else position.get("step")
        if type(step) is not int or step < 0:
            raise UnmaskError(f"The position {position} is not one of these pairs; resume with the data of the run.")
        while True:
            yield self._micro_batches(self.step(step)), {"step": step + 1}
            step += 1

    def step(self, number: int) -> np.ndarray:
        """[pairs] places of the pairs of a step, over all ranks."""
        epoch, batch = divmod(number, self.steps_per_epoch)
        order, bounds = self._plan(epoch)
        return order[bounds[batch, 0] : bounds[batch, 1]]

    @property
    def padding(self) -> float:
        """Share of the cells of the first epoch, of both sides, that hold no token: what batches waste (one rank)."""
        real = cells = 0
        for step in range(self.steps_per_epoch):
            for sizes in (self.source_sizes[self.step(step)], self.sizes[self.step(step)]):
                real, cells = real + int(sizes.sum()), cells + len(sizes) * int(sizes.max())
        return 1 - real / cells

    def _plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The pairs [P] of an epoch as they lie in its windows, and (begin, end) [steps, 2] of each step in them."""
        if self._epoch is None or self._epoch[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            steps = self.steps_per_epoch
            order = rng.permutation(len(self.sizes))
            windows = np.arange(len(order)) // self.window
            order = order[_snake(windows, self.longer[order], (self.source_sizes - self.sizes)[order])]
            # Steps are cut at equal numbers of tokens, wherever windows end, so that every epoch has as many.
            sizes = self.sizes[order]
            ends = np.cumsum(sizes)
            bounds = np.searchsorted((ends - sizes) * steps // ends[-1], np.arange(steps + 1))
            self._epoch = (epoch, order, np.stack([bounds[:-1], bounds[1:]], 1)[rng.permutation(steps)])
        return self._epoch[1:]

    def _micro_batches(self, chosen: np.ndarray) -> list[Batch]:
        # As many on every rank: a sharded model is put together for each of them, by all ranks at once.
        shares = [chosen[rank :: self.ranks] for rank in range(self.ranks)]
        most = max(math.ceil(int(self.longer[share].sum()) / self.at_once) for share in shares)
        parts = np.array_split(shares[self.rank], min(len(shares[-1]), most))
        return [_collate(self.sources, self.targets, part, self.pad, self.start, self.end) for part in parts]


def _snake(window: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The order by window, then `first`, then `second`, each turning round where the one before it moves on: shortest
    to longest, then back. So neighbours are alike everywhere, also where a batch spans two windows."""
    first = np.where(window % 2, -first, first)
    return np.lexsort((np.where(first % 2, -second, second), first, window))


def _check_equal(sources: Sequence[Sentence], targets: Sequence[Sentence]) -> None:
    if len(sources) != len(targets):
        raise UnmaskError(f"There are {len(sources):,} sources but {len(targets):,} targets.")


class _Ragged:
    """Sequences of different lengths, laid end to end: values [all], of vectors [all, F], and where each begins."""

    def __init__(self, sequences: Sequence[Sentence]) -> None:
        self.lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        self.begins = np.cumsum(self.lengths) - self.lengths
        parts = [np.asarray(sequence) for sequence in sequences if len(sequence)]
        self.values = np.concatenate(parts) if parts else np.empty(0)
        self.values = self.values.astype(np.int32 if self.values.ndim == 1 else np.float32, copy=False)

    def padded(self, chosen: np.ndarray, pad: int, *, first: int | None = None, last: int | None = None) -> np.ndarray:
        """Tokens [B, longest + 1] of the chosen sequences, each with `first` before it or `last` behind it."""
        lengths = self.lengths[chosen]
        rows = np.arange(len(chosen))
        tokens = np.full((len(chosen), int(lengths.max(initial=0)) + 1), pad, np.int64)
        owners = np.repeat(rows, lengths)
        columns = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        tokens[owners, columns + (first is not None)] = self.values[self.begins[chosen][owners] + columns]
        if first is not None:
            tokens[:, 0] = first
        if last is not None:
            tokens[rows, lengths] = last
        return tokens

    def documents(self, chosen: np.ndarray) -> Tensor | None:
        """[B, longest + 1]: 1 for a token, 0 for padding; None where nothing is padded."""
        lengths = self.lengths[chosen]
        longest = int(lengths.max(initial=0))
        if (lengths == longest).all():
            return None
        return torch.from_numpy((np.arange(longest + 1) <= lengths[:, None]).astype(np.int64))


def _read(sources: _Ragged, chosen: np.ndarray, pad: int, end: int) -> Batch:
    if sources.values.ndim == 2:
        return Batch.of_vectors(torch.from_numpy(sources.values[sources.begins[chosen]]))
    return Batch(torch.from_numpy(sources.padded(chosen, pad, last=end)), documents=sources.documents(chosen))


def _collate(sources: _Ragged, targets: _Ragged, chosen: np.ndarray, pad: int, start: int, end: int) -> Batch:
    tokens = torch.from_numpy(targets.padded(chosen, pad, first=start))  # start, y1 … yn
    following = targets.padded(chosen, pad, last=end).reshape(-1)  # y1 … yn, end
    documents = targets.documents(chosen)
    places = np.arange(len(following)) if documents is None else np.flatnonzero(documents.numpy())
    target = Target(torch.from_numpy(places), torch.from_numpy(following[places]))
    return Batch(tokens, documents=documents, targets={"next": target}, source=_read(sources, chosen, pad, end))

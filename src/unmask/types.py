"""The values that cross every boundary: Document and Example (one sequence), Batch (rows of them), Target and Loss.

Shapes: B rows, T tokens of a row, N sequences of a batch (N > B where rows are packed), M targets, R runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.processor import attends_by_runs


@dataclass(frozen=True, slots=True)
class Document:
    """A document, or a piece of a long one, as an objective samples it.

    sentences  integer ids of each sentence, without special tokens
    index      number of the document in its corpus; pieces of one document share it
    """

    sentences: list[np.ndarray]
    index: int


@dataclass(slots=True)
class Example:
    """One sequence, special tokens included, before it is packed or padded into rows.

    tokens    [T] integer ids
    segments  [T] integer ids, or None for all zero
    targets   name -> (places [M] within this sequence, values [M] class ids or floats)
    """

    tokens: np.ndarray
    segments: np.ndarray | None = None
    targets: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be predicted, and where: the output layer runs at these places only.

    places  [M] int64, ascending, into the rows flattened to [B * T]
    values  [M] int64 class ids, or float32 for regression
    """

    places: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of tokens: one sequence a row, padded, or several a row, packed.

    tokens     [B, T] int64; of a source that is vectors, [B, F] floats, each vector counting as one token
    documents  [B, T] int64: which sequence of its row a token belongs to, from 1; 0 is padding.
               None means one sequence a row and no padding, which is the fastest case.
    positions  [B, T] int64: place within its own sequence; None means 0 … T-1 in every row
    segments   [B, T] int64; None means all zero
    starts     [N] int64: where each sequence begins in the flattened rows, in the order of the examples
    targets    name -> Target; every loss term is named after one of them
    source     what an encoder–decoder reads while it writes `tokens`: row b belongs to row b. `tokens` then begin with
               the token that starts a sequence, and the target of each place is the token after it
    streams    [B] int64: rows that go on where the row of the same number ended, in the batch before; `positions` say
               how many tokens of its sequence stand before each, those of earlier batches included. None: they do not
    runs       [R + 1] int32: what `runs_of` reads off the documents; `to` adds it where a device attends by it
    """

    tokens: Tensor
    documents: Tensor | None = None
    positions: Tensor | None = None
    segments: Tensor | None = None
    starts: Tensor | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)
    source: Batch | None = None
    streams: Tensor | None = None
    runs: Tensor | None = None

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device. To a GPU it travels from pinned memory: only from there does a copy go
        beside what the device computes, with nobody waiting for it."""
        pinned = torch.device(device).type == "cuda" and self.tokens.device.type == "cpu"

        def to(x: Tensor) -> Tensor:
            return (x.pin_memory() if pinned else x).to(device, non_blocking=True)

        def move(x: Tensor | None) -> Tensor | None:
            return None if x is None else to(x)

        runs = self.runs
        if runs is None and self.documents is not None and attends_by_runs(device):
            runs = runs_of(self.documents)  # here, where reading them off waits for no device
        return Batch(
            to(self.tokens),
            move(self.documents),
            move(self.positions),
            move(self.segments),
            move(self.starts),
            {k: Target(to(t.places), to(t.values)) for k, t in self.targets.items()},
            None if self.source is None else self.source.to(device),
            move(self.streams),
            move(runs),
        )

    def rows(self, begin: int, end: int) -> Batch:
        """Rows `begin` … `end - 1`, with the starts and targets that lie in them, moved to the new origin; without
        `runs`, which are added when they are moved."""
        width = self.tokens.shape[1]
        low, high = begin * width, min(end, self.tokens.shape[0]) * width

        def cut(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[begin:end]

        def inside(target: Target) -> Target:
            first, last = torch.searchsorted(
                target.places, torch.tensor([low, high], device=target.places.device)
            ).tolist()
            return Target(target.places[first:last] - low, target.values[first:last])

        starts = None if self.starts is None else self.starts[(self.starts >= low) & (self.starts < high)] - low
        return Batch(
            self.tokens[begin:end],
            cut(self.documents),
            cut(self.positions),
            cut(self.segments),
            starts,
            {k: inside(t) for k, t in self.targets.items()},
            None if self.source is None else self.source.rows(begin, end),
            cut(self.streams),
        )

    def with_targets(self, **targets: Target) -> Batch:
        """The same rows with these targets added or replaced."""
        return replace(self, targets={**self.targets, **targets})

    def asking(self, names: Iterable[str]) -> Batch:
        """The same rows with a target at no place for each of these names that has none: a sum over nothing is 0, and
        its gradient is 0 for all parameters of the head, not missing."""
        nowhere = self.tokens.new_empty(0, dtype=torch.int64)
        more = {name: Target(nowhere, nowhere) for name in names if name not in self.targets}
        return self.with_targets(**more) if more else self

    @property
    def counts(self) -> dict[str, int]:
        """Number of targets of each loss term: the denominators, known before the forward pass."""
        return {name: target.values.numel() for name, target in self.targets.items()}

    @property
    def lengths(self) -> Tensor | None:
        """[B] int64 tokens of each row that are not padding, where rows hold one sequence each; None: all of them."""
        return None if self.documents is None else (self.documents > 0).sum(1)

    @property
    def real_tokens(self) -> int:
        """Tokens that are not padding, those of the source included."""
        if self.tokens.is_floating_point():
            return len(self.tokens)
        own = self.tokens.numel() if self.documents is None else int((self.documents > 0).sum())
        return own if self.source is None else own + self.source.real_tokens


def runs_of(documents_BT: Tensor) -> Tensor:
    """Where runs of one document begin in the flattened rows, padding's own included, and where the last one ends:
    [R + 1] int32, ascending from 0 to B * T. The end is repeated until R is a power of two, beyond 256 a multiple of
    it: compiled graphs want few shapes, and backward has some memory for empty runs, too."""
    begins_BT = torch.ones_like(documents_BT, dtype=torch.bool)
    begins_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    begins = begins_BT.flatten().nonzero().squeeze(1).int()
    R = 1 << (len(begins) - 1).bit_length() if 0 < len(begins) <= 256 else -(-len(begins) // 256) * 256
    return F.pad(begins, (0, R + 1 - len(begins)), value=documents_BT.numel())


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss term as a sum and a count, never a mean: sums add up over micro-batches and ranks, means do not.

    sum      scalar tensor with the graph
    count    number of targets summed over; equals `Batch.counts` of the same name
    metrics  name -> sum over the same targets (a scalar without the graph), e.g. the number answered correctly
    """

    sum: Tensor
    count: int
    metrics: Mapping[str, Tensor] = field(default_factory=dict)

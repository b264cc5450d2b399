"""Objectives on long items, recordings or records of sensors: random crops of them, packed rows, masked spans.

Shapes: N items of a batch, F places of an item (frames or segments), B rows, T places of a row, M masked places.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.data import collate
from unmask.data.loader import Collated, Loader
from unmask.data.order import SeededBlocks, nested_mixture
from unmask.data.source import Cropped
from unmask.errors import UnmaskError
from unmask.objectives.objective import Objective, StreamOptions
from unmask.types import Batch, Example, Kind

BLOCK = 32  # approximate number of rows of a block
LEAST = 4  # places of the shortest item that is read


class Crops(Objective):
    """An objective on items that are cropped at random to the length of a row and packed: several short ones share a
    row, and nothing is computed at padding. A subclass says how an item becomes places (`samples`, `example`), and
    chooses targets in the rows (`corrupt`).

    processor    of the items, with the samples a second that it reads (`rate`)
    label_alpha  the labels of a corpus are mixed with weights n^alpha of their lengths n
    """

    processor: Any
    label_alpha: float = 1.0

    @abstractmethod
    def samples(self, places: int) -> int:
        """The smallest number of samples that gives so many places."""

    @abstractmethod
    def example(self, item: Any, length: int, rng: np.random.Generator | None = None) -> Example:
        """An item, or a random crop of `length` places, which begins where a place of the item does; without a
        generator its beginning. Samples are normalised before they are cropped, so that a quiet part stays quiet."""

    def stream(self, splits: Sequence[Any], options: StreamOptions) -> Loader:
        """Items of several corpora are mixed with weights n^alpha of their lengths n, where a crop counts as what it
        keeps; before that, so are the labels of each corpus, with `label_alpha`. The crops, the rows and the targets of
        a block depend only on the seed, the epoch and the block."""
        length = options["length"]
        parts = [[split] if self.label_alpha == 1 else split.by_label() for split in splits]
        groups = [[self.source(part, length) for part in group] for group in parts]
        sizes = [[int(source.cost.sum()) for source in group] for group in groups]
        shares = nested_mixture(sizes, self.label_alpha, options["alpha"])
        sources = [source for group in groups for source in group]
        order = SeededBlocks(sources, shares, seed=options["seed"], block=BLOCK * self.samples(length))
        return Loader(Collated(order, partial(self.rows, length)), cut=options["cut"], workers=options["workers"])

    def source(self, split: Any, length: int) -> Cropped:
        """The items of a split with at least LEAST places. The cost of each is what rows of `length` places read of
        it."""
        split = split.at_rate(self.processor.rate)
        long = np.flatnonzero(split.cost >= self.samples(LEAST))
        return Cropped(split, long, most=self.samples(length))

    def evaluation_rows(self, splits: Sequence[Any], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        """The beginnings of held-out items with fixed targets, corpus by corpus."""
        rng, examples, places = np.random.default_rng(0), list[Example](), 0
        for source in (self.source(split, length) for split in splits):
            for unit in range(len(source.cost)):
                if places >= limit_rows * length:
                    break
                examples.append(self.example(source.read(unit), length))
                places += len(examples[-1].tokens)
        packed = self.packed(examples, length, rng).rows(0, limit_rows)
        return [packed.rows(begin, begin + rows) for begin in range(0, len(packed.tokens), rows)]

    def rows(self, length: int, items: Sequence[Any], rng: np.random.Generator) -> Batch:
        """Items, as a source reads them, as rows of `length` places with targets."""
        return self.packed([self.example(one, length, rng) for one in items], length, rng)

    def packed(self, examples: Sequence[Example], length: int, rng: np.random.Generator) -> Batch:
        """Examples as rows of `length` places, in random order, with targets."""
        batch = collate.pack(examples, length, Kind.PADDING)
        if not examples:
            return batch
        return self.corrupt(batch.take(rng.permutation(len(batch.tokens))), rng)


def crop(places: int, length: int, rng: np.random.Generator | None) -> int:
    """The first place of a random crop of `length` places; 0 without a generator and for a shorter item."""
    return int(rng.integers(places - length + 1)) if rng is not None and places > length else 0


def spans(places: int, share: float, span: int, rng: np.random.Generator) -> np.ndarray:
    """[M] ascending: places of an item that are masked in spans (wav2vec 2.0, Baevski et al. 2020, section 3.1).

    share  of the places that spans would cover if none overlapped: share * F / span spans, rounded up or down at
           random, and at least two. 0.65 and spans of 10 are the probability 0.065 of a start in the paper; because
           spans overlap, about half of the places are masked
    span   places of a span; at most a quarter of the item, because two longer spans could hide a short one whole

    The starts are distinct. An item of fewer than four places has no masked ones. The authors' code also drops masked
    frames until all recordings of a batch have the same number, which nothing here needs.
    """
    if places < LEAST:
        return np.empty(0, np.int64)
    span = min(span, places // 4)
    possible = places - span + 1
    count = min(max(2, int(share * places / span + rng.random())), possible)
    starts = rng.choice(possible, count, replace=False)
    masked = np.zeros(places, bool)
    masked[(starts[:, None] + np.arange(span)).ravel()] = True
    return np.flatnonzero(masked)


def drawn_spans(
    begins_N: np.ndarray, counts_N: np.ndarray, share: float, span: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """For each item, whose first flat place and number of places are given, its masked flat places, ascending."""
    items = zip(begins_N.tolist(), counts_N.tolist(), strict=True)
    return [begin + spans(count, share, span, rng) for begin, count in items]


def with_mask(batch: Batch, places_M: Tensor) -> Tensor:
    """The tokens [B, T] of a batch with MASK at some flat places. The values stay in the signal."""
    return batch.tokens.flatten().index_fill(0, places_M, int(Kind.MASK)).view_as(batch.tokens)


def joined(places: Sequence[np.ndarray]) -> Tensor:
    """Places of several items, one after the other [M]."""
    return torch.from_numpy(np.concatenate([np.empty(0, np.int64), *places]))


def check_spans(share: float, span: int, noun: str = "frame") -> None:
    """Raises UnmaskError for a share or a length of spans out of range; `noun` is one place."""
    if not 0 < share < 1:
        raise UnmaskError(f"The share of masked {noun}s is between 0 and 1, not {share}.")
    if span < 1:
        raise UnmaskError(f"A span has at least 1 {noun}, not {span}.")


def check_label_alpha(alpha: float) -> None:
    """Raises UnmaskError for an exponent of the mixture of labels out of range."""
    if not 0 <= alpha < np.inf:
        raise UnmaskError(f"The alpha of the labels is a number of at least 0, not {alpha}.")

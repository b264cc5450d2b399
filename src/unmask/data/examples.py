"""Encoded examples as a source: steps with equal numbers of labelled rows, packed without padding between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.data.collate import pack
from unmask.data.loader import TOKENS_AT_ONCE, Collated, Loader, MicroBatches
from unmask.data.order import ByClass, Classes, Order, Shuffled
from unmask.errors import UnmaskError
from unmask.types import Batch, Example

Collate = Callable[[list[Any], np.random.Generator], Batch]
"""Makes a batch of groups of examples; the generator is that of the block, for augmentation."""


def lengths_of(examples: Sequence[Example]) -> np.ndarray:
    """[N] int64: the number of tokens of each example. Examples that are prepared when they are read know it before."""
    known: np.ndarray | None = getattr(examples, "lengths", None)
    return np.array([len(example.tokens) for example in examples], np.int64) if known is None else known


def take(examples: Sequence[Example], indices: Sequence[int]) -> Sequence[Example]:
    """The examples with these indices; those that are prepared when they are read stay so."""
    own = getattr(examples, "take", None)
    found: Sequence[Example] = [examples[i] for i in indices] if own is None else own(indices)
    return found


class Groups:
    """Examples as a source: a unit is a group of examples that must be in one batch, such as the choices of a question.

    cost  [U] number of tokens of each group
    """

    def __init__(self, examples: Sequence[Example], groups: Sequence[slice] | None = None) -> None:
        """groups: slices of the examples of each unit; None: each example is a unit."""
        self.examples = examples
        self.groups = [slice(i, i + 1) for i in range(len(examples))] if groups is None else groups
        lengths = lengths_of(examples)
        self.cost = np.array([lengths[group].sum() for group in self.groups], np.int64)

    def read(self, unit: int) -> Sequence[Example]:
        """The examples of a group."""
        return self.examples[self.groups[unit]]


@dataclass(frozen=True)
class PackedGroups:
    """Packs groups of examples into rows of the length of the longest example, rounded up to a multiple of 8. If all
    examples have one length, as pictures do, the rows have it too: nothing is padded, and no mask is needed."""

    pad: int

    def __call__(self, groups: list[Sequence[Example]], rng: np.random.Generator) -> Batch:
        examples = [example for group in groups for example in group]
        lengths = {len(example.tokens) for example in examples}
        width = max(lengths) if len(lengths) == 1 else -(-max(lengths) // 8) * 8
        return pack(examples, width, self.pad)


def labelled(
    source: Groups,
    batch_size: int,
    *,
    pad: int,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
    shares: np.ndarray | None = None,
    classes: Classes | None = None,
    at_once: int = TOKENS_AT_ONCE,
    collate: Collate | None = None,
    workers: int = 0,
) -> Loader:
    """Training steps of `batch_size` groups over all ranks; the last step of an epoch has the rest.

    shares   [U] relative frequency with which each group is drawn, with repetition; None: each once an epoch
    classes  classes of the groups, of which a step has several groups each (`ByClass`); None: steps are drawn at random
    at_once  approximate number of tokens of a micro-batch
    collate  makes the batches; None: groups are packed into rows
    workers  processes that read and collate; 0: a thread does

    Raises UnmaskError if there are too few groups for the ranks, and for shares together with classes.
    """
    make = collate or PackedGroups(pad)
    if classes is None:
        order: Order = Shuffled(source, batch_size, seed=seed, ranks=ranks, shares=shares)
        return Loader(Collated(order, make, MicroBatches(source.cost, rank, ranks, at_once)), workers=workers)
    if shares is not None:
        raise UnmaskError("Steps are drawn by shares or by classes, not by both.")
    order = ByClass(source, batch_size, classes, seed=seed, ranks=ranks)
    divide = MicroBatches(source.cost, rank, ranks, at_once, classes.numbers)
    return Loader(Collated(order, make, divide), workers=workers)

"""Encoded examples as a source: steps with equal numbers of labelled rows, packed without padding between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.data.collate import pack
from unmask.data.loader import TOKENS_AT_ONCE, Collated, Loader, MicroBatches
from unmask.data.order import ByClass, Classes, Order, Shuffled
from unmask.errors import UnmaskError
from unmask.types import Batch, Example


class Groups:
    """Examples as a source: a unit is a group of examples that must be in one batch, such as the choices of a question.

    cost  [U] number of tokens of each group
    """

    def __init__(self, examples: Sequence[Example], groups: Sequence[slice] | None = None) -> None:
        """groups: slices of the examples of each unit; None: each example is a unit."""
        self.examples = examples
        self.groups = [slice(i, i + 1) for i in range(len(examples))] if groups is None else groups
        lengths = np.array([len(example.tokens) for example in examples], np.int64)
        self.cost = np.array([lengths[group].sum() for group in self.groups], np.int64)

    def read(self, unit: int) -> Sequence[Example]:
        """The examples of a group."""
        return self.examples[self.groups[unit]]


@dataclass(frozen=True)
class PackedGroups:
    """Packs groups of examples into rows of the length of the longest example, rounded up to a multiple of 8."""

    pad: int

    def __call__(self, groups: list[Sequence[Example]], rng: np.random.Generator) -> Batch:
        examples = [example for group in groups for example in group]
        width = -(-max(len(example.tokens) for example in examples) // 8) * 8
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
) -> Loader:
    """Training steps of `batch_size` groups over all ranks; the last step of an epoch has the rest.

    shares   [U] relative frequency with which each group is drawn, with repetition; None: each once an epoch
    classes  classes of the groups, of which a step has several groups each (`ByClass`); None: steps are drawn at random
    at_once  approximate number of tokens of a micro-batch

    Raises UnmaskError if there are too few groups for the ranks, and for shares together with classes.
    """
    if classes is None:
        order: Order = Shuffled(source, batch_size, seed=seed, ranks=ranks, shares=shares)
        return Loader(Collated(order, PackedGroups(pad), MicroBatches(source.cost, rank, ranks, at_once)))
    if shares is not None:
        raise UnmaskError("Steps are drawn by shares or by classes, not by both.")
    order = ByClass(source, batch_size, classes, seed=seed, ranks=ranks)
    divide = MicroBatches(source.cost, rank, ranks, at_once, classes.numbers)
    return Loader(Collated(order, PackedGroups(pad), divide))

"""Augmentation: random changes of items for training, such as pictures and recordings, and how they are combined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from unmask.errors import UnmaskError

Augmentation = Callable[[np.ndarray, Generator], np.ndarray]
"""An item and a generator -> the changed item. The same state of the generator gives the same change."""


@dataclass(frozen=True)
class Composed:
    """Augmentations that are applied from left to right. It can be pickled, as worker processes require."""

    parts: tuple[Augmentation, ...]

    def __call__(self, item: np.ndarray, rng: Generator) -> np.ndarray:
        for part in self.parts:
            item = part(item, rng)
        return item


def compose(*parts: Augmentation) -> Augmentation:
    """Apply the parts from left to right."""
    return Composed(parts)


@dataclass(frozen=True)
class Maybe:
    """Apply `part` with probability `rate`."""

    part: Augmentation
    rate: float

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def __call__(self, item: np.ndarray, rng: Generator) -> np.ndarray:
        return self.part(item, rng) if rng.random() < self.rate else item


def check_rate(rate: float) -> None:
    """Raises UnmaskError for a number that is no probability."""
    if not 0 <= rate <= 1:
        raise UnmaskError(f"The rate of an augmentation is a probability between 0 and 1, not {rate}.")

"""Jigsaw: in which order are the nine tiles of a picture? (Noroozi & Favaro 2016)

Shapes: C channels, S pixels of the side of the picture that the model reads, L pixels of the side of a tile, K orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, permutations
from typing import Any, ClassVar

import numpy as np

from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.objectives.objective import Objective, Term
from unmask.objectives.pictures import ChangedPictures, PictureConfig
from unmask.types import Example

SIDE = 3  # tiles along a side
MOST = 1_000  # orders


class Jigsaw(ChangedPictures):
    """The nine tiles of a picture are read in one of K orders, and the summary predicts which (section 3).

    orders  K                    crop  smallest share of a picture that its square covers
    jitter  pixels by which a tile may move within its cell, a third of the square: the cell has L + jitter pixels

    A tile is a square of whole patches, the largest of which three fit along the side of the picture: with 8 patches
    along the side, a tile has 2 by 2. Patches that are left over stay between the tiles, as even gaps of zeros (the
    mean of the pixels). The picture is resized to three cells a side, so that tiles are not stretched.

    Two shortcuts are closed (section 3.2): random gaps of up to 2 * jitter pixels keep edges from going on in the next
    tile, and each channel of each tile is normalised, so that tiles share no brightness or colour.

    Raises UnmaskError for fields out of range, and for pictures with fewer than 3 patches along a side.
    """

    name = "jigsaw"
    terms = (Term("jigsaw", "orders of tiles", accuracy="orders of tiles that were predicted correctly"),)
    head_labels = (("jigsaw", "order-of-tiles"),)

    def __init__(self, processor: ImageProcessor, *, orders: int, jitter: int, crop: float) -> None:
        if not 2 <= orders <= MOST:
            raise UnmaskError(f"The number of orders of the tiles is between 2 and {MOST:,}, not {orders}.")
        if jitter < 0:
            raise UnmaskError(f"The jitter of the tiles is a number of pixels, at least 0, not {jitter}.")
        grid, P = processor.size // processor.patch, processor.patch
        if grid < SIDE:
            raise UnmaskError(
                f"Nine tiles need at least {SIDE} patches along a side of the picture, but there are {grid}: choose a "
                "larger size or smaller patches."
            )
        self.tile = grid // SIDE * P
        self.cell = self.tile + jitter
        self.begins = tuple(i * (grid - grid // SIDE) // (SIDE - 1) * P for i in range(SIDE))
        super().__init__(processor, orders, side=SIDE * self.cell, crop=crop)
        self.whole = replace(processor, size=SIDE * self.cell)
        self.orders_K9 = distant_orders(orders)

    def changed(self, square_HWC: np.ndarray, rng: np.random.Generator) -> list[Example]:
        """The picture with its tiles in a random order of the K."""
        order = int(rng.integers(len(self.orders_K9)))
        tiles_9CLL = normalised(self.tiles(self.whole.pixels(square_HWC), rng))
        C, S, L = tiles_9CLL.shape[1], self.processor.size, self.tile
        pixels_CSS = np.zeros((C, S, S), np.float32)
        for place, tile in enumerate(self.orders_K9[order]):
            top, left = (self.begins[i] for i in divmod(place, SIDE))
            pixels_CSS[:, top : top + L, left : left + L] = tiles_9CLL[tile]
        return [self.example(pixels_CSS, order)]

    def tiles(self, pixels_CHW: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """[9, C, L, L]: one tile from a random place of each cell, row by row."""
        L, corners_92 = self.tile, rng.integers(self.cell - self.tile + 1, size=(SIDE**2, 2))
        corners_92 += self.cell * np.stack(np.divmod(np.arange(SIDE**2), SIDE), 1)
        return np.stack([pixels_CHW[:, top : top + L, left : left + L] for top, left in corners_92])


def normalised(tiles_9CLL: np.ndarray) -> np.ndarray:
    """Each channel of each tile with mean 0 and variance 1; zeros where all pixels are equal."""
    mean, variance = tiles_9CLL.mean((2, 3), keepdims=True), tiles_9CLL.var((2, 3), keepdims=True)
    return (tiles_9CLL - mean) / np.sqrt(variance + 1e-6)


@lru_cache(maxsize=4)
def distant_orders(count: int, tiles: int = SIDE**2) -> np.ndarray:
    """[count, tiles]: orders that differ from one another in many places, chosen one after the other so that the sum of
    the Hamming distances to those before is the largest (algorithm 1).

    The paper begins with a random order; here the first is the order 0, 1, 2, ... itself, and of equally distant ones
    the first in lexicographic order is taken, so that the number of an order always means the same.
    """
    every_ON = np.fromiter(chain.from_iterable(permutations(range(tiles))), np.uint8).reshape(-1, tiles)
    columns_NO = np.ascontiguousarray(every_ON.T)
    total_O = np.zeros(len(every_ON), np.int32)
    chosen = [0]
    while len(chosen) < min(count, len(every_ON)):
        for column_O, value in zip(columns_NO, every_ON[chosen[-1]], strict=True):
            total_O += column_O != value
        total_O[chosen[-1]] = np.iinfo(np.int32).min // 2  # it is not chosen again
        chosen.append(int(total_O.argmax()))
    found = every_ON[chosen]
    found.flags.writeable = False
    return found


@dataclass(frozen=True, kw_only=True)
class JigsawConfig(PictureConfig):
    """Predict the order of the nine tiles of a picture.

    orders  number of orders that are told apart
    jitter  pixels by which a tile may move within its cell; published: 11, for tiles of 64 pixels
    crop    smallest share of a picture that is read
    """

    orders: int = 100
    jitter: int = 2
    crop: float = 0.5

    kind: ClassVar[str] = "jigsaw"
    learned: ClassVar[str] = "orders of tiles of pictures"
    example: ClassVar[str] = "jigsaw-tiny"
    objective = Jigsaw
    own_heads: ClassVar[frozenset[str]] = frozenset({"jigsaw"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("patches", "jigsaw"),)

    def build(self, processor: ImageProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        return Jigsaw(processor, orders=self.orders, jitter=self.jitter, crop=self.crop)

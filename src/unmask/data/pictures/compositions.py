"""Compositions: pictures of digits in places of a grid, with captions that say where each digit lies.

Shapes: N digits, S pixels of a cell's side, G cells of a side of the grid.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.data.bitext.pairs import Bitext, Report
from unmask.data.files.png import png
from unmask.data.pictures.idx import IdxPictures
from unmask.errors import UnmaskError
from unmask.files import atomic_folder

TABLE = "captions.tsv"
SIDE = 3  # cells of a side of the grid
MOST = 4  # digits of a picture; the fewest is 2
CELL = 28  # pixels of the side of a cell, as in MNIST
URI = "data:image/png;base64,"
SEEDS = {"train": 0, "dev": 1, "test": 2}
GLYPHS = (
    *("111101101101111", "010110010010111", "111001111100111", "111001111001111", "101101111001001"),
    *("111100111001111", "111100111101111", "111001010010010", "111101111101111", "111101111001111"),
)
"""The digits in 5 rows of 3 pixels."""


@dataclass(frozen=True)
class Digits:
    """Pictures of digits to compose from.

    pixels  [N, S, S] uint8, bright on black
    labels  [N] the digits
    """

    pixels: np.ndarray
    labels: np.ndarray

    @classmethod
    def drawn(cls, rng: np.random.Generator, each: int = 50) -> Digits:
        """`each` drawings of every digit: of random width, height, place and brightness, with noise."""
        labels = np.repeat(np.arange(10), each)
        return cls(np.stack([_drawn(digit, rng) for digit in labels.tolist()]), labels)

    @classmethod
    def of_idx(cls, path: Path) -> Digits:
        """Those of an IDX file, such as train-images-idx3-ubyte.gz of MNIST. Raises UnmaskError without labels, and for
        pictures that are no squares."""
        found = IdxPictures(path)
        if found.labels is None:
            raise UnmaskError(f"{path} has no file of labels beside it, such as train-labels-idx1-ubyte.gz.")
        _, H, W, C = found.pixels_NHWC.shape
        if H != W or C != 1:
            raise UnmaskError(
                f"{path} has pictures of {H} x {W} pixels with {C} channels, but a cell is a grey square."
            )
        return cls(found.pixels_NHWC[..., 0], found.labels)


def _drawn(digit: int, rng: np.random.Generator) -> np.ndarray:
    glyph = np.array(list(GLYPHS[digit]), np.uint8).reshape(5, 3)
    tall, wide = (int(rng.integers(*bounds)) for bounds in ((3, 5), (4, 7)))
    scaled = glyph.repeat(tall, 0).repeat(wide, 1)
    cell = rng.integers(0, 40, (CELL, CELL))
    top, left = (int(rng.integers(2, CELL - 1 - n)) for n in scaled.shape)
    cell[top : top + len(scaled), left : left + scaled.shape[1]] += scaled * rng.integers(120, 216)
    return cell.astype(np.uint8)


@dataclass(frozen=True)
class Composition:
    """One picture.

    pixels   [G * S, G * S] uint8
    caption  "3 left of 7, above 1": the digits of a row from left to right, then those of the next row that has any
    """

    pixels: np.ndarray
    caption: str


def compositions(digits: Digits, count: int, rng: np.random.Generator, *, side: int = SIDE) -> Iterator[Composition]:
    """Compositions of 2 to MOST digits in different cells of a grid of `side` cells."""
    S = digits.pixels.shape[1]
    for _ in range(count):
        cells = np.sort(rng.choice(side**2, rng.integers(2, MOST + 1), replace=False))
        chosen = rng.integers(len(digits.labels), size=len(cells))
        picture = np.zeros((side * S, side * S), np.uint8)
        rows: list[list[str]] = [[] for _ in range(side)]
        for cell, i in zip(cells.tolist(), chosen.tolist(), strict=True):
            row, column = divmod(cell, side)
            picture[row * S : (row + 1) * S, column * S : (column + 1) * S] = digits.pixels[i]
            rows[row].append(str(digits.labels[i]))
        yield Composition(picture, ", above ".join(" left of ".join(row) for row in rows if row))


def pairs(count: int, seed: int = 0, split: str = "train") -> Bitext:
    """Pictures of drawn digits as data URIs, with their captions. Splits of one seed have different drawings."""
    rng = np.random.default_rng([seed, SEEDS[split]])
    made = list(compositions(Digits.drawn(rng), count, rng))
    sources = [URI + base64.b64encode(png(one.pixels[..., None])).decode() for one in made]
    name = f"pictures of drawn digits on a grid of {SIDE} x {SIDE} ({split})"
    return Bitext(sources, [one.caption for one in made], Report(name, count), list(range(1, count + 1)))


def write(folder: Path, made: Sequence[Composition]) -> None:
    """Write the pictures of a folder, 00000.png and so on, and its table captions.tsv. Raises UnmaskError if the folder
    exists, or cannot be written."""
    if folder.exists():
        raise UnmaskError(f"{folder} exists already: give a new folder.")
    with atomic_folder(folder) as whole:
        table = io.StringIO()
        rows = csv.writer(table, delimiter="\t", lineterminator="\n")
        rows.writerow(["picture", "caption"])
        for number, one in enumerate(made):
            (whole / f"{number:05}.png").write_bytes(png(one.pixels[..., None]))
            rows.writerow([f"{number:05}.png", one.caption])
        (whole / TABLE).write_text(table.getvalue(), encoding="utf-8")

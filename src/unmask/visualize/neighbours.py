"""Neighbours: the pictures whose vectors are nearest to that of a picture, by cosine.

Shapes: N pictures, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from unmask.data.files.items import visible
from unmask.data.pictures.decoding import Source, decode
from unmask.visualize import gallery
from unmask.visualize.numbers import Data


def nearest(vector_D: np.ndarray, vectors_ND: np.ndarray, count: int) -> list[tuple[int, float]]:
    """(row, cosine) of the `count` nearest rows, the nearest first; of equal ones, the first."""
    lengths_N = np.linalg.norm(vectors_ND, axis=1) * np.linalg.norm(vector_D)
    cosines_N = vectors_ND @ vector_D / np.maximum(lengths_N, 1e-12)
    order = np.argsort(-cosines_N, kind="stable")[:count]
    return [(int(row), float(cosines_N[row])) for row in order]


def neighbours(
    asked: Mapping[Path, np.ndarray],
    folder: Path,
    pictures: Sequence[Source],
    names: Sequence[str],
    vectors_ND: np.ndarray,
    count: int,
) -> Data:
    """For each picture that is asked for, its nearest ones among the pictures of a folder, without its own file.

    asked            path -> vector [D]
    pictures, names  the pictures of the folder, and their names; their vectors are [N, D]
    """
    groups = []
    for path, vector_D in asked.items():
        others = [row for row, other in enumerate(pictures) if not _same(other, path)]
        found = nearest(vector_D, vectors_ND[others], count)
        cells = [gallery.picture(decode(path), "the picture")]
        for row, cosine in found:
            number = others[row]
            cells.append(gallery.picture(decode(pictures[number]), f"{cosine:.3f}\n{visible(names[number])}"))
        groups.append(gallery.group(str(path), cells, 9, size=116))
    lead = f"The nearest of {len(pictures):,} pictures in {folder}, with the cosine of their vectors."
    return gallery.gallery(lead, groups)


def _same(one: Source, other: Path) -> bool:
    return isinstance(one, Path) and one.name == other.name and one.resolve() == other.resolve()

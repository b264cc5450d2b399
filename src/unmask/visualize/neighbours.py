"""Neighbours: the pictures whose vectors are nearest to that of a picture, by cosine.

Shapes: N pictures, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from unmask.data.pictures.decoding import decode
from unmask.visualize import gallery
from unmask.visualize.numbers import Data


def nearest(vector_D: np.ndarray, vectors_ND: np.ndarray, count: int) -> list[tuple[int, float]]:
    """(row, cosine) of the `count` nearest rows, the nearest first; of equal ones, the first."""
    lengths_N = np.linalg.norm(vectors_ND, axis=1) * np.linalg.norm(vector_D)
    cosines_N = vectors_ND @ vector_D / np.maximum(lengths_N, 1e-12)
    order = np.argsort(-cosines_N, kind="stable")[:count]
    return [(int(row), float(cosines_N[row])) for row in order]


def neighbours(
    asked: Mapping[Path, np.ndarray], folder: Path, paths: Sequence[Path], vectors_ND: np.ndarray, count: int
) -> Data:
    """For each picture that is asked for, its nearest ones among the pictures of a folder, without its own file.

    asked        path -> vector [D]
    paths        the pictures of the folder, with their vectors [N, D]
    """
    groups = []
    for path, vector_D in asked.items():
        others = [row for row, other in enumerate(paths) if not _same(other, path)]
        found = nearest(vector_D, vectors_ND[others], count)
        cells = [gallery.picture(decode(path), "the picture")]
        for row, cosine in found:
            other = paths[others[row]]
            cells.append(gallery.picture(decode(other), f"{cosine:.3f}\n{other.relative_to(folder)}"))
        groups.append(gallery.group(str(path), cells, 9, size=116))
    lead = f"The nearest of {len(paths):,} pictures in {folder}, with the cosine of their vectors."
    return gallery.gallery(lead, groups)


def _same(one: Path, other: Path) -> bool:
    return one.name == other.name and one.resolve() == other.resolve()

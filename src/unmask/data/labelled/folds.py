"""Folds: labelled rows in parts for cross-validation, which keep groups together and spread the classes.

Shapes: N rows, P parts, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, plural


def parts(rows: Sequence[Row], count: int, rng: np.random.Generator) -> np.ndarray:
    """[N] int64: the part of each row, from 0 to `count` - 1; none is empty.

    The rows of a group, such as a patient, are in one part, and so are copies of a row without a group. The groups are
    placed one by one, the largest first, each into the part that has the smallest shares of its classes, and of equal
    parts into the smallest. Of rows without groups and copies, every part has as many of each class, up to one row.
    Raises UnmaskError if there are fewer groups than parts.
    """
    members: dict[object, list[int]] = {}
    classes: dict[object, int] = {}
    for number, row in enumerate(rows):
        members.setdefault(row.group or row.key, []).append(number)
        classes.setdefault(row.labels or row.label, len(classes))
    if len(members) < count:
        raise UnmaskError(
            f"There are {plural(len(members), 'group')} of rows, such as patients, or different rows: too few for "
            f"{count} folds."
        )
    class_N = np.array([classes[row.labels or row.label] for row in rows])
    total_C = np.bincount(class_N)
    held_PC, size_P = np.zeros((count, len(total_C))), np.zeros(count)
    units = [np.array(one) for one in members.values()]
    turns = rng.permutation(len(units)).tolist()
    part_N = np.empty(len(rows), np.int64)
    for u in sorted(range(len(units)), key=lambda u: (-len(units[u]), class_N[units[u][0]], turns[u])):
        own, rows_of = np.unique(class_N[units[u]], return_counts=True)
        crowded_P = (held_PC[:, own] * (rows_of / total_C[own])).sum(1)
        part = np.lexsort((rng.random(count), size_P, crowded_P))[0]
        held_PC[part, own] += rows_of
        size_P[part] += len(units[u])
        part_N[units[u]] = part
    return part_N

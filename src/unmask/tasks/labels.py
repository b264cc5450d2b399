"""Labels: functions that tasks with classes share.

Shapes: N rows, C outputs.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unmask.data.labelled.rows import Row
from unmask.data.pictures.thumbnails import thumbnail
from unmask.errors import UnmaskError

SHOWN = 12  # examples with a wrong answer, and with a correct one, at most


def different(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels as a tuple. Raises UnmaskError for fewer than two labels, and for two that are equal."""
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise UnmaskError(f"A task needs two or more different labels, not {', '.join(labels) or 'none'}.")
    return tuple(labels)


def label_id(ids: Mapping[str, int], label: str, row: Row) -> int:
    """The number of a label. Raises UnmaskError, which names the row, for an unknown label."""
    if label not in ids:
        raise UnmaskError(f"{row.place or 'A row'} has the label '{label}', which is not one of {', '.join(ids)}.")
    return ids[label]


def mean_cross_entropy(probabilities: np.ndarray, true: np.ndarray) -> float:
    """-log of the probability [N, C] of the true class [N], averaged, in nats."""
    return float(-np.log(np.maximum(probabilities[np.arange(len(true)), true], 1e-12)).mean())


def right_and_wrong(probabilities: np.ndarray, true: np.ndarray, most: int) -> list[int]:
    """Numbers of rows to show, from probabilities [N, C] and true classes [N]: the mistakes with the highest
    probability, the highest first; then correct rows, the first of each class, the second of each class, and so on.
    There are at most `most` of both."""
    predicted, top = probabilities.argmax(1), probabilities.max(1)
    wrong, right = np.flatnonzero(predicted != true), np.flatnonzero(predicted == true)
    wrong = wrong[np.argsort(-top[wrong], kind="stable")]
    turns = np.zeros(len(right), np.int64)  # how many earlier correct rows have the same class
    for number in range(probabilities.shape[1]):
        own = true[right] == number
        turns[own] = np.arange(own.sum())
    right = right[np.argsort(turns, kind="stable")]
    return [*wrong[:most].tolist(), *right[:most].tolist()]


def example(row: Row, label: str, predicted: str, probability: float, pixels_HWC: np.ndarray) -> dict[str, Any]:
    """A row with its answer, as `Task.examples` returns them."""
    picture = base64.b64encode(thumbnail(pixels_HWC)).decode()
    return {
        "label": label, "predicted": predicted, "place": row.place, "probability": probability, "picture": picture
    }  # fmt: skip

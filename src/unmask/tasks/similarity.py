"""Losses of sentence vectors: a score or a class for a pair, the matching text among many, the nearer of two.

Shapes: R rows of a batch, N sequences (two or three of each row), D width, C classes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import metrics
from unmask.data.labelled.dataset import ordered
from unmask.data.labelled.rows import Row, Triplet
from unmask.errors import UnmaskError, unknown
from unmask.models.model import Model
from unmask.tasks.labels import different, mean_cross_entropy
from unmask.types import Head, Loss

Kind = Literal["texts", "scores", "classes", "positives", "triplets"]
"""The kind of rows: single texts without a label; pairs with a similarity score; pairs with a class; pairs that belong
together; triplets whose first text is nearer to the second than to the third."""


@dataclass(frozen=True)
class Vectors:
    """The sentence vectors of a batch.

    vectors  [N, D], those of a row one after the other
    firsts   [R] ascending: index of the first vector of each row
    values   [R] the labels of the rows, as `VectorLoss.value` gives them
    """

    vectors: Tensor
    firsts: Tensor
    values: Tensor

    def columns(self, count: int) -> list[Tensor]:
        """The vectors of the first, second, … texts of all rows, [R, D] each. Raises UnmaskError for rows with another
        number of texts."""
        if len(self.vectors) != count * len(self.firsts):
            raise UnmaskError(f"This loss compares {count} texts of a row; some rows have more or fewer.")
        return [self.vectors[self.firsts + i] for i in range(count)]


class VectorLoss(Protocol):
    """A loss that trains sentence vectors.

    heads   the heads that it needs, as `Objective.heads`; the encoder is saved without them
    labels  class names, if it has classes
    """

    @property
    def heads(self) -> Mapping[str, Head]: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    def value(self, row: Row) -> np.ndarray:
        """The label of a row as the value [1] of its target; 0 for a row without a label."""
        ...

    def __call__(self, model: Model, batch: Vectors) -> Loss:
        """The loss summed over the rows of a batch."""
        ...


class _Plain:
    """A loss without parameters and without labels."""

    heads: ClassVar[Mapping[str, Head]] = {}
    labels: ClassVar[tuple[str, ...]] = ()

    def value(self, row: Row) -> np.ndarray:
        return np.zeros(1, np.int64)


@dataclass(frozen=True)
class CosineRegression(_Plain):
    """Squared error of cos(u, v) against the score of a pair (Reimers & Gurevych 2019, section 3, "Regression").

    low, high  the scores that become 0 and 1, the cosines of a right angle and of equal directions
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UnmaskError(f"Scores from {self.low:g} to {self.high:g} are no range: two different ones are needed.")

    def value(self, row: Row) -> np.ndarray:
        if row.label and score(row.label) is None:
            raise UnmaskError(f"{row.place or 'A row'} has the label '{row.label}', which is not a score.")
        value = ((score(row.label) or 0.0) - self.low) / (self.high - self.low) if row.label else 0.0
        return np.array([value], np.float32)

    def __call__(self, model: Model, batch: Vectors) -> Loss:
        """The metric `error` sums the absolute differences."""
        first_RD, second_RD = batch.columns(2)
        errors = torch.cosine_similarity(first_RD, second_RD) - batch.values.float()
        return Loss(errors.square().sum(), errors.numel(), {"error": errors.detach().abs().sum()})


@dataclass(frozen=True)
class SoftmaxPairs:
    """Cross-entropy of softmax(W (u, v, |u - v|)) against the class of a pair, such as entailment (Reimers & Gurevych
    2019, section 3, "Classification"). W is not part of the encoder; a run keeps it in a separate file, for scoring
    (`pair_classes`)."""

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        different(self.labels)

    @property
    def heads(self) -> Mapping[str, Head]:
        return {"pairs": Head("vectors", len(self.labels))}

    def value(self, row: Row) -> np.ndarray:
        if row.label in self.labels:
            return np.array([self.labels.index(row.label)])
        if row.label and score(row.label) is None:
            known = ", ".join(self.labels)
            raise UnmaskError(f"{row.place or 'A row'} has the label '{row.label}', which is not one of {known}.")
        # Rows with scores are for evaluation only; like cross-entropy, this loss ignores the value -100.
        return np.array([-100 if row.label else 0])

    def __call__(self, model: Model, batch: Vectors) -> Loss:
        """The metric `correct` counts the rows whose class is the most likely."""
        first_RD, second_RD = batch.columns(2)
        logits_RC = self.logits(model, first_RD, second_RD)
        total = F.cross_entropy(logits_RC, batch.values, reduction="sum")
        return Loss(total, len(logits_RC), {"correct": (logits_RC.detach().argmax(-1) == batch.values).sum()})

    def logits(self, model: Model, first_RD: Tensor, second_RD: Tensor) -> Tensor:
        """Logits [R, C] of the classes of pairs."""
        features = torch.cat([first_RD, second_RD, (first_RD - second_RD).abs()], dim=-1)
        logits_RC: Tensor = model.heads["pairs"](features)
        return logits_RC.float()

    def judge(self, model: Model, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of the classes that the head predicts for pairs of vectors [2, D]."""
        pairs = torch.from_numpy(np.stack(answers)).to(model.device)
        with torch.no_grad():
            shares = self.logits(model, pairs[:, 0], pairs[:, 1]).softmax(-1).cpu().numpy()
        true = np.array([self.labels.index(row.label) for row in rows])
        return {
            **metrics.of_classes(shares.argmax(1), true, self.labels),
            "loss": mean_cross_entropy(shares, true),
        }


@dataclass(frozen=True)
class InBatchNegatives(_Plain):
    """Find the second text of each row among the texts of the batch: cross-entropy over cosine similarities.

    The second texts of the other rows are the negatives (Henderson et al. 2017, section 4.4); third texts, if rows have
    them, are negatives for every row (Gao et al. 2021, "SimCSE", equation 5). The batch is one micro-batch of one
    process. A text that is the second of two rows in a batch is also a negative for each of them once.

    scale  factor of the similarities, 1 / temperature
    """

    scale: float = 20.0

    def __call__(self, model: Model, batch: Vectors) -> Loss:
        """The metric `correct` counts the rows whose second text is the most similar."""
        if len(batch.vectors) < 2 * len(batch.firsts):
            raise UnmaskError("This loss compares 2 or more texts of a row; some rows have one.")
        rest = torch.ones(len(batch.vectors), dtype=torch.bool, device=batch.vectors.device)
        rest[batch.firsts] = rest[batch.firsts + 1] = False
        units = F.normalize(batch.vectors, dim=-1)
        candidates = torch.cat([units[batch.firsts + 1], units[rest]])
        logits = units[batch.firsts] @ candidates.T * self.scale
        true_R = torch.arange(len(logits), device=logits.device)
        total = F.cross_entropy(logits, true_R, reduction="sum")
        return Loss(total, len(logits), {"correct": (logits.detach().argmax(-1) == true_R).sum()})


@dataclass(frozen=True)
class TripletLoss(_Plain):
    """max(0, |a - p| - |a - n| + margin) of the first, second and third text of a row, by Euclidean distance (Reimers &
    Gurevych 2019, section 3, "Triplet", whose margin is 1). Vectors of length 1 need a smaller margin, such as 0.2."""

    margin: float = 1.0

    def __call__(self, model: Model, batch: Vectors) -> Loss:
        """The metric `correct` counts the rows in which the second text is nearer than the third."""
        anchor_RD, positive_RD, negative_RD = batch.columns(3)
        near = F.pairwise_distance(anchor_RD, positive_RD)
        far = F.pairwise_distance(anchor_RD, negative_RD)
        return Loss(F.relu(near - far + self.margin).sum(), len(near), {"correct": (near < far).sum()})


SAID: Mapping[type, str] = {
    CosineRegression: "cosine, which fits the similarity of a pair to its score",
    SoftmaxPairs: "softmax, which classifies pairs",
    InBatchNegatives: "in-batch, which finds the second text of a row among those of all rows",
    TripletLoss: "triplet, which moves the second text nearer than the third",
}
"""A description of each loss, for messages."""

NAMES = ("cosine", "softmax", "in-batch", "triplet")
"""The names of the losses on the command line."""

_USUAL: dict[Kind, str] = {
    "scores": "cosine",
    "classes": "softmax",
    "positives": "in-batch",
    "triplets": "in-batch",
}
_FITS: dict[str, frozenset[Kind]] = {
    "cosine": frozenset({"scores"}),
    "softmax": frozenset({"classes", "scores"}),  # the classes may be called 0, 1 and 2
    "in-batch": frozenset({"positives", "triplets"}),
    "triplet": frozenset({"triplets"}),
}


def loss_for(rows: Sequence[Row], name: str | None = None) -> VectorLoss:
    """The loss `name`, one of NAMES, or by default the one that suits the training rows; its settings come from them.

    By default scores have CosineRegression, over their range, or 0 to 1 if it holds them; class names SoftmaxPairs;
    pairs without labels and triplets InBatchNegatives. Raises UnmaskError for single texts, and for rows that the named
    loss cannot use.
    """
    kind = kind_of(rows)
    if kind == "texts":
        raise UnmaskError(f"{_place(rows)} has one text; vectors are learned from pairs or triplets of texts.")
    name = name or _USUAL[kind]
    if name not in NAMES:
        raise unknown("loss for sentence vectors", name, NAMES)
    if kind not in _FITS[name]:
        raise UnmaskError(f"{_place(rows)} and the rows after it are {kind}, which the loss '{name}' cannot use.")
    if name == "softmax" and kind == "scores" and not all((score(row.label) or 0.0).is_integer() for row in rows):
        raise UnmaskError(
            f"{_place(rows)} and the rows after it have scores, but the loss 'softmax' learns classes: take --loss "
            "cosine, or leave --loss out."
        )
    if name == "cosine":
        found = [score(row.label) or 0.0 for row in rows]
        low, high = min(found), max(found)
        return CosineRegression() if low >= 0 and high <= 1 and low < high else CosineRegression(low, high)
    if name == "softmax":
        return SoftmaxPairs(tuple(ordered({row.label for row in rows})))
    return InBatchNegatives() if name == "in-batch" else TripletLoss()


def kind_of(rows: Sequence[Row], labels: Sequence[str] = ()) -> Kind:
    """The kind of rows, by their texts and labels; `labels` are known names of classes, which may be numbers.

    Raises UnmaskError for no rows, and for rows of different kinds.
    """
    if not rows:
        raise UnmaskError("There are no rows to compare.")
    kinds = [_kind(row, labels) for row in rows]
    found = Counter(kinds)
    if found.keys() <= {"positives", "triplets"}:
        return "triplets" if "positives" not in found else "positives"
    if found.keys() <= {"classes", "scores"} and not labels:  # a class may be called 1
        return "scores" if "classes" not in found else "classes"
    if len(found) > 1:
        most, least = found.most_common()[0][0], found.most_common()[-1][0]
        place = rows[kinds.index(least)].place or f"Row {kinds.index(least) + 1}"
        raise UnmaskError(f"{place} is of another kind than most rows: {_SAID[least]}, and those {_SAID[most]}.")
    return kinds[0]


_SAID: dict[Kind, str] = {
    "texts": "it has one text",
    "scores": "it has a pair with a score",
    "classes": "it has a pair with a class",
    "positives": "it has a pair without a label",
    "triplets": "it has a triplet",
}


def _kind(row: Row, labels: Sequence[str]) -> Kind:
    if isinstance(row, Triplet):
        return "triplets"
    if row.pair is None:
        return "texts"
    if not row.label:
        return "positives"
    return "scores" if row.label not in labels and score(row.label) is not None else "classes"


def score(label: str) -> float | None:
    """A label as a finite number, or None."""
    try:
        value = float(label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _place(rows: Sequence[Row]) -> str:
    return rows[0].place or "The first row"

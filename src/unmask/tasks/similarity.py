"""Losses of sentence vectors: a score or a class for a pair, the right text among many, the nearer of two.

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
"""What rows say: nothing; how similar two texts are; how two texts stand to each other, by name; that two texts belong
together; that a text is nearer to one than to another."""


@dataclass(frozen=True)
class Vectors:
    """The sentence vectors of a batch.

    vectors  [N, D], those of a row one after the other
    firsts   [R] ascending: which of them begins each row
    values   [R] what the loss made of the labels of the rows
    """

    vectors: Tensor
    firsts: Tensor
    values: Tensor

    def columns(self, count: int) -> list[Tensor]:
        """The first, second, … text of all rows, [R, D] each. Raises UnmaskError for rows of another size."""
        if len(self.vectors) != count * len(self.firsts):
            raise UnmaskError(f"This loss compares {count} texts of a row; some rows have more or fewer.")
        return [self.vectors[self.firsts + i] for i in range(count)]


class VectorLoss(Protocol):
    """What sentence vectors are trained by.

    heads   what it needs of the model, as `Objective.heads`; the encoder is saved without it
    labels  class names, where it knows classes
    """

    @property
    def heads(self) -> Mapping[str, Head]: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    def value(self, row: Row) -> np.ndarray:
        """The label of a row as the value [1] of its target; 0 where it has none."""
        ...

    def __call__(self, model: Model, batch: Vectors) -> Loss:
        """The loss summed over the rows of a batch."""
        ...


class _Plain:
    """A loss without parameters, which needs no label."""

    heads: ClassVar[Mapping[str, Head]] = {}
    labels: ClassVar[tuple[str, ...]] = ()

    def value(self, row: Row) -> np.ndarray:
        return np.zeros(1, np.int64)


@dataclass(frozen=True)
class CosineRegression(_Plain):
    """Squared error of cos(u, v) against the score of a pair (Reimers & Gurevych 2019, section 3, "Regression").

    low, high  the scores that become 0 and 1, as similar as a right angle and as the same text
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UnmaskError(f"Scores from {self.low:g} to {self.high:g} say nothing; two different ones are needed.")

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
    2019, section 3, "Classification"). W is no part of the encoder; a run keeps it in a file of its own, to be
    scored by (`pair_classes`)."""

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
        # Scores are for evaluation beside the classes; cross-entropy passes over -100, and so does this loss.
        return np.array([-100 if row.label else 0])

    def __call__(self, model: Model, batch: Vectors) -> Loss:
        """The metric `correct` counts the rows whose class is the likeliest."""
        first_RD, second_RD = batch.columns(2)
        logits_RC = self.logits(model, first_RD, second_RD)
        total = F.cross_entropy(logits_RC, batch.values, reduction="sum")
        return Loss(total, len(logits_RC), {"correct": (logits_RC.detach().argmax(-1) == batch.values).sum()})

    def logits(self, model: Model, first_RD: Tensor, second_RD: Tensor) -> Tensor:
        """[R, C]"""
        features = torch.cat([first_RD, second_RD, (first_RD - second_RD).abs()], dim=-1)
        logits_RC: Tensor = model.heads["pairs"](features)
        return logits_RC.float()

    def judge(self, model: Model, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of the classes that the head gives to pairs of vectors [2, D]."""
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
    """Which text of the batch belongs to the first of each row? Cross-entropy over cosine similarities.

    The second texts of the other rows are the wrong ones (Henderson et al. 2017, section 4.4); third texts, where rows
    have them, are wrong for every row (Gao et al. 2021, "SimCSE", equation 5). A batch is what one process holds at a
    time: micro-batches and processes do not see each other's texts, and a text that is right for two rows of a batch
    counts as wrong for each of them once.

    scale  that similarities are multiplied by, 1 / temperature
    """

    scale: float = 20.0

    def __call__(self, model: Model, batch: Vectors) -> Loss:
        """The metric `correct` counts the rows whose own text is the most similar."""
        if len(batch.vectors) < 2 * len(batch.firsts):
            raise UnmaskError("This loss compares 2 or more texts of a row; some rows have one.")
        rest = torch.ones(len(batch.vectors), dtype=torch.bool, device=batch.vectors.device)
        rest[batch.firsts] = rest[batch.firsts + 1] = False
        units = F.normalize(batch.vectors, dim=-1)
        candidates = torch.cat([units[batch.firsts + 1], units[rest]])
        logits = units[batch.firsts] @ candidates.T * self.scale
        own = torch.arange(len(logits), device=logits.device)
        total = F.cross_entropy(logits, own, reduction="sum")
        return Loss(total, len(logits), {"correct": (logits.detach().argmax(-1) == own).sum()})


@dataclass(frozen=True)
class TripletLoss(_Plain):
    """max(0, |a - p| - |a - n| + margin) of the first, second and third text of a row, by Euclidean distance (Reimers &
    Gurevych 2019, section 3, "Triplet", whose margin is 1). Vectors of length 1 want a smaller margin: 0.2, say."""

    margin: float = 1.0

    def __call__(self, model: Model, batch: Vectors) -> Loss:
        """The metric `correct` counts the rows in which the second text is nearer than the third."""
        anchor_RD, positive_RD, negative_RD = batch.columns(3)
        near = F.pairwise_distance(anchor_RD, positive_RD)
        far = F.pairwise_distance(anchor_RD, negative_RD)
        return Loss(F.relu(near - far + self.margin).sum(), len(near), {"correct": (near < far).sum()})


SAID: Mapping[type, str] = {
    CosineRegression: "cosine, which draws the similarity of a pair to its score",
    SoftmaxPairs: "softmax, which tells the classes of pairs",
    InBatchNegatives: "in-batch, which sets the second text of a row against those of the others",
    TripletLoss: "triplet, which draws the second text nearer than the third",
}
"""What each loss does, in words."""

NAMES = ("cosine", "softmax", "in-batch", "triplet")
"""The losses, as they are called on a command line."""

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
    """The loss that suits training rows, or the one of NAMES that is asked for, with what it takes from the rows.

    Scores give CosineRegression over their range (0 to 1 where they lie in it), class names SoftmaxPairs, pairs
    without labels and triplets InBatchNegatives. Raises UnmaskError for rows that are no pairs, or that the loss which
    is asked for cannot use.
    """
    kind = kind_of(rows)
    if kind == "texts":
        raise UnmaskError(f"{_place(rows)} has one text; vectors are learned from pairs or triplets of texts.")
    name = name or _USUAL[kind]
    if name not in NAMES:
        raise unknown("loss for sentence vectors", name, NAMES)
    if kind not in _FITS[name]:
        raise UnmaskError(f"{_place(rows)} and the rows after it are {kind}, which the loss '{name}' cannot use.")
    if name == "cosine":
        found = [score(row.label) or 0.0 for row in rows]
        low, high = min(found), max(found)
        return CosineRegression() if low >= 0 and high <= 1 and low < high else CosineRegression(low, high)
    if name == "softmax":
        return SoftmaxPairs(tuple(ordered({row.label for row in rows})))
    return InBatchNegatives() if name == "in-batch" else TripletLoss()


def kind_of(rows: Sequence[Row], labels: Sequence[str] = ()) -> Kind:
    """What rows say, by their texts and labels; `labels` are known names of classes, which may be numbers.

    Raises UnmaskError for no rows, and where a few rows say something else than the others.
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

"""Sentence embedding: a vector for a text, so that similar texts lie close to each other (Reimers & Gurevych 2019).

Shapes: B rows, T tokens of a row, S sequences of the row that has most, N sequences, D width; R labelled rows,
E texts of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import metrics
from unmask.data.rows import Row, Triplet
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.tasks.similarity import Kind, SoftmaxPairs, VectorLoss, Vectors, kind_of, score
from unmask.tasks.task import Encoded, Task, sequence_of
from unmask.types import Batch, Example, Head, Loss

Pooling = Literal["mean", "cls"]
QUERIES = 1_024  # that are compared with all candidates at a time

METRICS: dict[Kind, str] = {
    "texts": "spearman",
    "scores": "spearman",
    "classes": "accuracy",
    "positives": "mrr",
    "triplets": "accuracy",
}
"""The metric that decides, for each kind of rows."""


class Embedding(Task):
    """A vector for each text of a row: the text alone, a pair, or a triplet, each a sequence of its own.

    loss       what it is trained by (`similarity.loss_for`); None embeds only
    pooling    "mean" over all tokens of a sequence, [CLS] and [SEP] included, or the vector of its [CLS]
    normalise  scale vectors to length 1
    length     longest sequence that the vectors are meant for; noted in the folder as its default
    metric     that decides which model is best (`metric_for` the dev rows)

    The answer to a row is an array [k, D], of its k texts. Texts of a row must meet in one batch, one after the other;
    the target is on the first of them, so that a loss counts rows.
    """

    name = "embedding"
    reference = "words that two texts share (TF-IDF), or for classes the most frequent one"

    def __init__(
        self,
        loss: VectorLoss | None = None,
        *,
        pooling: Pooling = "mean",
        normalise: bool = False,
        length: int | None = None,
        metric: str = "spearman",
    ) -> None:
        if pooling not in POOLINGS:
            raise unknown("pooling", pooling, POOLINGS)
        self.trained_by = loss
        self.pooling, self.normalise, self.length, self.metric = pooling, normalise, length, metric
        self.heads: Mapping[str, Head] = {} if loss is None else loss.heads
        self.labels = () if loss is None else loss.labels

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        texts = [texts_of(row) for row in rows]
        owners = [i for i, own in enumerate(texts) for _ in own]
        ids = tokenizer.ids([text for own in texts for text in own])
        frame = len(tokenizer.join(np.empty(0, np.int64))[0])
        cut = dict.fromkeys(i for i, own in zip(owners, ids, strict=True) if len(own) + frame > length)
        begins = np.cumsum([0, *map(len, texts)])
        targets: dict[int, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
        for begin, row in zip(begins.tolist(), rows, strict=False):
            value = np.zeros(1, np.int64) if self.trained_by is None else self.trained_by.value(row)
            targets[begin] = {self.name: (np.zeros(1, np.int64), value)}
        examples = [Example(*tokenizer.join(own, None, length), targets.get(i, {})) for i, own in enumerate(ids)]
        return Encoded(examples, np.array(owners, np.int64), rows, length, cut=tuple(cut), together=True)

    def places(self, batch: Batch) -> Tensor:
        """Where every sequence starts, in the order of the examples."""
        if batch.starts is None:
            raise UnmaskError("The batch does not say where its sequences start; make it with collate.pack or pad.")
        return batch.starts

    def vectors(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """[N, D] float32, in the order of the examples, wherever packing put them."""
        with exactly(hidden_BTD):  # a mean in bfloat16 would lose what tells texts
            vectors_ND = POOLINGS[self.pooling](hidden_BTD.float(), batch, self.places(batch))
            return F.normalize(vectors_ND, dim=-1) if self.normalise else vectors_ND

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        if self.trained_by is None:
            raise UnmaskError("Vectors are trained by a loss, and this task has none; see tasks.loss_for.")
        target = batch.targets[self.name]
        firsts_R, order = sequence_of(batch, target.places).sort()
        vectors_ND = self.vectors(hidden_BTD, batch)
        with exactly(hidden_BTD):
            return self.trained_by(model, Vectors(vectors_ND, firsts_R, target.values[order]))

    def answers(self, model: Model, batch: Batch) -> list[np.ndarray]:
        """The vector [1, D] of each example."""
        vectors_ND = self.vectors(model(batch), batch).detach().cpu().numpy()
        return list(vectors_ND[:, None])

    def judge(self, model: Model, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        if isinstance(self.trained_by, SoftmaxPairs) and kind_of(rows, self.labels) == "classes":
            return self.trained_by.judge(model, answers, rows)
        return self.metrics(answers, rows)

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        """By the cosine of vectors. Pairs with scores: pearson, spearman. Pairs and triplets without labels: recall@1,
        recall@10 and mrr of the second text of a row among those of all rows, third texts included; of triplets the
        accuracy as well, the share in which the second text is nearer than the third.

        Raises UnmaskError for pairs with classes, which `judge` scores where there is a head for them.
        """
        return of_similarity(_units(np.concatenate(answers)), rows, kind_of(rows, self.labels))

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """The metrics of texts as bags of words, each weighed by how rare it is in `train` (TF-IDF); for pairs with
        classes, of the most frequent one."""
        kind = kind_of(rows, self.labels)
        if kind == "classes" and self.labels:
            true = np.array([self.labels.index(row.label) for row in rows])
            seen = [self.labels.index(row.label) for row in train if row.label in self.labels]
            return metrics.of_classes(np.full(len(true), np.bincount(seen).argmax()), true, self.labels)
        return of_similarity(_bags(rows, train), rows, kind)

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"pooling": self.pooling, "normalise": self.normalise}
        return found if self.length is None else {**found, "length": self.length}


def metric_for(rows: Sequence[Row], labels: Sequence[str] = ()) -> str:
    """The metric that decides on dev rows of this kind; `labels` are the names of classes, where there are any."""
    return METRICS[kind_of(rows, labels)]


def texts_of(row: Row) -> tuple[str, ...]:
    """One text, two, or three."""
    if isinstance(row, Triplet):
        return (row.text, row.pair or "", row.negative)
    return (row.text,) if row.pair is None else (row.text, row.pair)


# ------------------------------------------------------------------------------------------------ pooling


def _mean(hidden_BTD: Tensor, batch: Batch, starts_N: Tensor) -> Tensor:
    """The mean over the tokens of each sequence [N, D], special ones included and padding left out."""
    rows_N = starts_N // batch.tokens.shape[1]
    if batch.documents is None:
        return hidden_BTD.mean(1)[rows_N]
    numbers_S = torch.arange(1, int(batch.documents.max()) + 1, device=hidden_BTD.device)
    # A product with ones and zeros, not a scattered sum: on every device the same numbers every time.
    inside_BST = (batch.documents[:, None] == numbers_S[:, None]).to(hidden_BTD.dtype)
    means_BSD = inside_BST @ hidden_BTD / inside_BST.sum(-1, keepdim=True).clamp(min=1)
    return means_BSD[rows_N, batch.documents.flatten()[starts_N] - 1]


def _cls(hidden_BTD: Tensor, batch: Batch, starts_N: Tensor) -> Tensor:
    """The first vector of each sequence [N, D]."""
    return hidden_BTD.flatten(0, 1)[starts_N]


POOLINGS: dict[str, Callable[[Tensor, Batch, Tensor], Tensor]] = {"mean": _mean, "cls": _cls}
assert tuple(POOLINGS) == get_args(Pooling)


# ------------------------------------------------------------------------------------------------ similarity


def cosines(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """The cosine [N] of each vector and the one beside it; one of length 0 is like none."""
    return _products(_units(first_ND), _units(second_ND))


def of_similarity(units_ED: Any, rows: Sequence[Row], kind: Kind) -> dict[str, float]:
    """The metrics of the texts of rows as vectors of length 1, one after the other: an array or a sparse one."""
    sizes = np.array([len(texts_of(row)) for row in rows])
    firsts = np.cumsum(sizes) - sizes
    if kind == "texts":
        raise UnmaskError("Rows of one text say nothing of similarity; evaluate on pairs or triplets.")
    if kind == "classes":
        raise UnmaskError(
            f"{rows[0].place or 'A row'} has the class '{rows[0].label}', and vectors have no head for classes: "
            "evaluate on pairs with scores, on pairs that belong together, or on triplets."
        )
    near = _products(units_ED[firsts], units_ED[firsts + 1])
    if kind == "scores":
        found = metrics.of_scores(near.astype(np.float64), np.array([score(row.label) or 0.0 for row in rows]))
        return {name: found[name] for name in ("spearman", "pearson")}
    ranks = _ranks(units_ED, rows, firsts)
    found = {f"recall@{k}": metrics.recall_at(ranks, k) for k in (1, 10)}
    found["mrr"] = metrics.mean_reciprocal_rank(ranks)
    if kind == "triplets":
        found["accuracy"] = float((near > _products(units_ED[firsts], units_ED[firsts + 2])).mean())
    return found


def _ranks(units_ED: Any, rows: Sequence[Row], firsts: np.ndarray) -> np.ndarray:
    """The rank [R], from 1, of each row's second text among all that are not first.

    A text that stands in several rows is one candidate, and other texts that are right for the same first text are
    not counted as wrong.
    """
    numbers: dict[str, int] = {}
    places: list[int] = []
    for first, row in zip(firsts.tolist(), rows, strict=True):
        for offset, text in enumerate(texts_of(row)[1:], 1):
            if text not in numbers:
                numbers[text] = len(places)
                places.append(first + offset)
    true = np.array([numbers[row.pair or ""] for row in rows])
    right: dict[str, set[int]] = {}
    for row, number in zip(rows, true.tolist(), strict=True):
        right.setdefault(row.text, set()).add(number)
    candidates = units_ED[np.array(places)].T
    found = []
    for begin in range(0, len(rows), QUERIES):
        part = slice(begin, begin + QUERIES)
        similar = _dense(units_ED[firsts[part]] @ candidates)
        for i, (row, own) in enumerate(zip(rows[part], true[part].tolist(), strict=True)):
            others = right[row.text] - {own}
            similar[i, list(others)] = -np.inf
        found.append(metrics.ranks(similar, true[part]))
    return np.concatenate(found)


def _bags(rows: Sequence[Row], train: Sequence[Row]) -> Any:
    """The texts of rows by TF-IDF [E, words], sparse, of length 1 or 0."""
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]")
    words.fit([text for row in train for text in texts_of(row)])
    return csr_array(words.transform([text for row in rows for text in texts_of(row)]))


def _units(vectors_ND: np.ndarray) -> np.ndarray:
    """Scaled to length 1."""
    return vectors_ND / np.maximum(np.linalg.norm(vectors_ND, axis=1, keepdims=True), 1e-12)


def _products(first: Any, second: Any) -> np.ndarray:
    """The product of each vector with the one beside it."""
    return np.asarray((first * second).sum(axis=1))


def _dense(x: Any) -> np.ndarray:
    return x.toarray() if hasattr(x, "toarray") else x

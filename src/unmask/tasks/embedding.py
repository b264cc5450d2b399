"""Sentence embedding: a vector for a text, so that similar texts lie close to each other (Reimers & Gurevych 2019).

Shapes: B rows, T tokens of a row, S the most sequences of a row, N sequences, D width; R labelled rows, E texts of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import metrics
from unmask.data.labelled import pairs
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.glue import Benchmark
from unmask.data.labelled.rows import Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.huggingface import sentence_transformers
from unmask.kernels.formats import exactly
from unmask.models.model import Model, ModelConfig
from unmask.tasks import vector_scores
from unmask.tasks.batching import sequence_of
from unmask.tasks.lexical import regression
from unmask.tasks.lexical.references import VECTORS, regression_on_words
from unmask.tasks.lexical.references import Vectors as WordVectors
from unmask.tasks.lexical.vectors import Vocabulary, units
from unmask.tasks.reading import with_labels
from unmask.tasks.rows import TaskOptions, TextRows, column
from unmask.tasks.similarity import SAID, Kind, SoftmaxPairs, VectorLoss, Vectors, kind_of, loss_for
from unmask.tasks.task import Encoded, Say, Score, Task
from unmask.tasks.vector_scores import bags, of_similarity
from unmask.tasks.vector_scores import units as unit_vectors
from unmask.types import Batch, Example, Head, Loss

Pooling = Literal["mean", "cls"]

METRICS: dict[Kind, str] = {
    "texts": "spearman",
    "scores": "spearman",
    "classes": "accuracy",
    "positives": "mrr",
    "triplets": "accuracy",
}
"""The metric that chooses the best model, for each kind of rows."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingRows(TextRows):
    """Pairs of texts with a score, a class or nothing, or triplets.

    negative  column of the third text of a triplet
    """

    negative: str | None = column()


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(TaskOptions):
    """Options for the training of sentence vectors.

    pooling    "mean" or "cls"; None: as the model that the run starts from, else "mean"
    normalise  scale vectors to length 1; None: as the model that the run starts from, else no
    loss       cosine, softmax, in-batch or triplet; None: by the kind of rows
    """

    pooling: Pooling | None = None
    normalise: bool | None = None
    loss: str | None = None

    BEFORE: ClassVar[dict[str, Any]] = {"pooling": "mean", "normalise": False}

    def continuing(self, folder: Path | None) -> Self:
        known = self.BEFORE | ({} if folder is None else sentence_transformers.read(folder))
        return self.replace(**{name: known[name] for name in ("pooling", "normalise") if getattr(self, name) is None})


class Embedding(Task):
    """A vector for each text of a row: a single text, a pair, or a triplet, with one sequence for each text.

    loss       the training loss (`similarity.loss_for`); None: no training
    pooling    "mean" over all tokens of a sequence, [CLS] and [SEP] included, or the vector of its [CLS]
    normalise  scale vectors to length 1
    length     longest sequence that the vectors are meant for; the folder keeps it as its default
    metric     the metric that chooses the best model (`metric_for` the dev rows)

    The answer to a row is an array [k, D], for its k texts. The texts of a row must be in one batch, one after the
    other; the target is on the first of them, so that a loss counts rows.
    """

    task_name = name = "embedding"
    also_called = ("sts", "similarity", "sentence-similarity", "sentence-embedding", "sentence-embeddings", "vectors")
    gives_vectors = True
    rows_class = EmbeddingRows
    options_class = EmbeddingOptions
    panel, gives = "similarity", "sentence vectors"
    pipeline = "sentence-similarity"
    rows_are = "pairs or triplets of texts"
    references_are = "cosine of the words of two texts; for classes, logistic regression on them"
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

    @classmethod
    def read_rows(cls, path: Path, rows: EmbeddingRows, *, scoring: bool = False) -> Dataset:
        names = {"text": rows.text, "pair": rows.pair, "label": rows.label, "negative": rows.negative}
        return pairs.read(path, **names, format=rows.format, skip=rows.skip, encoding=rows.encoding)

    @classmethod
    def learns(cls, benchmark: Benchmark) -> bool:
        return benchmark.pair is not None

    @classmethod
    def metric_of(cls, benchmark: Benchmark) -> str | None:
        """None: vectors have other metrics than the task of the data set."""
        return None

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Embedding:
        loss = loss_for(sets["train"], options.loss)
        say(f"Loss: {SAID[type(loss)]}.")
        metric = metric_for(sets["dev"], loss.labels)
        settled = options.continuing(None)  # references need no folder
        return cls(loss, pooling=settled.pooling, normalise=settled.normalise, metric=metric)

    @classmethod
    def for_references(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """As `learned`, but without reporting the loss, which is not used. Raises UnmaskError for an invalid label."""
        task = cls.learned(sets, options, lambda _: None)
        assert task.trained_by is not None
        for row in (row for rows in sets.values() for row in rows):
            task.trained_by.value(row)
        return task

    @classmethod
    def check_model(cls, config: ModelConfig, owner: object) -> None:
        if not config.sentence_encoder:
            raise UnmaskError(
                f"A sentence encoder must open in sentence-transformers, but {owner} would not: start from a BERT."
            )

    @classmethod
    def is_of(cls, heads: Collection[str], settings: Any) -> bool:
        """Decided by the settings, because this task has no head."""
        return isinstance(settings, Mapping) and "pooling" in settings

    @classmethod
    def of_folder(cls, model: Model, labels: tuple[str, ...], settings: dict[str, Any]) -> Self:
        return cls(**settings)

    def save_beside(self, folder: Path, model: Model) -> None:
        from unmask.tasks import pair_classes

        if "pairs" in model.heads:
            pair_classes.save_head(folder, model, self.labels)

    def for_rows(self, rows: Dataset, folder: Path, model: Model | None = None) -> Embedding:
        from unmask.tasks import pair_classes

        assert model is not None
        return pair_classes.for_rows(self, folder, model, rows)

    def named(self, rows: Dataset, owner: str) -> Dataset:
        return with_labels(rows, self.labels, owner) if self.labels else rows

    def check_teachable(self) -> None:
        raise UnmaskError(f"{self.name} cannot be learned from a teacher: vectors have no probabilities to soften.")

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        texts = [row.texts for row in rows]
        owners = [i for i, own in enumerate(texts) for _ in own]
        ids = tokenizer.ids([text for own in texts for text in own])
        begins = np.cumsum([0, *map(len, texts)])
        targets: dict[int, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
        for begin, row in zip(begins.tolist(), rows, strict=False):
            value = np.zeros(1, np.int64) if self.trained_by is None else self.trained_by.value(row)
            targets[begin] = {self.name: (np.zeros(1, np.int64), value)}
        examples = [Example(*tokenizer.join(own, None, length), targets.get(i, {})) for i, own in enumerate(ids)]
        full = (i for i, example in enumerate(examples) if len(example.tokens) == length)
        cut = dict.fromkeys(owners[i] for i in full if len(tokenizer.join(ids[i])[0]) > length)
        return Encoded(examples, np.array(owners, np.int64), rows, length, cut=tuple(cut), together=True)

    def places(self, batch: Batch) -> Tensor:
        """The flat places [N] where the sequences start, in the order of the examples."""
        if batch.starts is None:
            raise UnmaskError("The batch does not say where its sequences start; make it with collate.pack or pad.")
        return batch.starts

    def vectors(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """[N, D] float32, in the order of the examples, however they are packed."""
        with exactly(hidden_BTD):  # a mean in bfloat16 would lose the differences between texts
            vectors_ND = POOLINGS[self.pooling](hidden_BTD.float(), batch, self.places(batch))
            return F.normalize(vectors_ND, dim=-1) if self.normalise else vectors_ND

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        if self.trained_by is None:
            raise UnmaskError("This task has no loss to train vectors with; choose one with tasks.loss_for.")
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
        """Metrics of the cosine of vectors. Pairs with scores: pearson, spearman. Pairs and triplets without labels:
        recall@1, recall@10 and mrr of a row's second text among the second and third texts of all rows. Triplets also:
        accuracy, the share of rows whose second text is nearer than the third.

        Raises UnmaskError for pairs with classes, which `judge` scores if there is a head for them.
        """
        return of_similarity(unit_vectors(np.concatenate(answers)), rows, kind_of(rows, self.labels))

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """The metrics of texts as bags of words, weighted by TF-IDF on `train`; for pairs with classes, those of the
        most frequent class."""
        kind = kind_of(rows, self.labels)
        if kind == "classes" and self.labels:
            true = np.array([self.labels.index(row.label) for row in rows])
            seen = [self.labels.index(row.label) for row in train if row.label in self.labels]
            return metrics.of_classes(np.full(len(true), np.bincount(seen).argmax()), true, self.labels)
        return of_similarity(bags(rows, train), rows, kind)

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"pooling": self.pooling, "normalise": self.normalise}
        return found if self.length is None else {**found, "length": self.length}

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, vectors) for name, vectors in VECTORS.items()}

    def _reference(self, train: Sequence[Row], vectors: WordVectors) -> Score:
        vocabulary = Vocabulary.of([text for row in train for text in row.texts])
        classes: Callable[[Sequence[Row]], list[np.ndarray]] | None = None
        if self.labels:
            true = np.array([self.labels.index(row.label) for row in train])
            count = len(self.labels)
            classes = regression_on_words(train, vectors, lambda found: regression.classes(found, true, count))

        def score(rows: Sequence[Row]) -> Mapping[str, float]:
            kind = kind_of(rows, self.labels)
            if classes is not None and kind == "classes":
                predicted = np.concatenate(classes(rows)).argmax(1)
                return metrics.of_classes(predicted, np.array([self.labels.index(r.label) for r in rows]), self.labels)
            found = units(vectors([text for row in rows for text in row.texts], vocabulary))
            return of_similarity(found, rows, kind)

        return score

    def answer(self, row: Row, found: np.ndarray) -> dict[str, Any]:
        """{"embedding": [numbers]} for one text; for several, the cosine of the first with the others:
        {"similarity"} or {"similarities"}."""
        return vector_scores.answer(found)

    render = staticmethod(vector_scores.render)


def metric_for(rows: Sequence[Row], labels: Sequence[str] = ()) -> str:
    """The metric that chooses the best model on dev rows of this kind; `labels` are the names of classes, if any."""
    return METRICS[kind_of(rows, labels)]


# ------------------------------------------------------------------------------------------------ pooling


def _mean(hidden_BTD: Tensor, batch: Batch, starts_N: Tensor) -> Tensor:
    """The mean over the tokens of each sequence [N, D], special tokens included, padding excluded."""
    rows_N = starts_N // batch.tokens.shape[1]
    if batch.documents is None:
        return hidden_BTD.mean(1)[rows_N]
    numbers_S = torch.arange(1, int(batch.documents.max()) + 1, device=hidden_BTD.device)
    # A product with ones and zeros, not a scattered sum, is deterministic on every device.
    inside_BST = (batch.documents[:, None] == numbers_S[:, None]).to(hidden_BTD.dtype)
    means_BSD = inside_BST @ hidden_BTD / inside_BST.sum(-1, keepdim=True).clamp(min=1)
    return means_BSD[rows_N, batch.documents.flatten()[starts_N] - 1]


def _cls(hidden_BTD: Tensor, batch: Batch, starts_N: Tensor) -> Tensor:
    """The first vector of each sequence [N, D]."""
    return hidden_BTD.flatten(0, 1)[starts_N]


POOLINGS: dict[str, Callable[[Tensor, Batch, Tensor], Tensor]] = {"mean": _mean, "cls": _cls}
assert tuple(POOLINGS) == get_args(Pooling)

"""Tasks: objectives that can also answer. Classification and regression of texts and pairs, tagging of words.

Shapes: N examples, M targets, C outputs, W words of a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from unmask import metrics
from unmask.data import collate
from unmask.data.rows import Row
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives.objective import Objective
from unmask.types import Batch, Example, Loss

TOKENS_AT_ONCE = 8_192  # of a batch that is only answered, padding included


@dataclass(frozen=True)
class Encoded:
    """Rows as sequences of ids, in the order of the rows.

    examples  a long sentence to be tagged has several, one after the other; any other row has one
    owners    [N] the row that each example belongs to
    rows      what was encoded
    cut       numbers of the rows that lost tokens at their end
    split     rows that were split into windows, in which every word keeps its place
    """

    examples: list[Example]
    owners: np.ndarray
    rows: Sequence[Row]
    length: int
    cut: tuple[int, ...] = ()
    split: int = 0

    @property
    def notice(self) -> str:
        """One sentence on rows that did not fit; empty where all did."""
        if self.cut:
            share = f"{len(self.cut):,} of {len(self.rows):,} rows ({len(self.cut) / len(self.rows):.1%})"
            return f"{share} are longer than {self.length} tokens and were cut at their end."
        if self.split:
            return (
                f"{self.split:,} of {len(self.rows):,} sentences are longer than {self.length} tokens and were split."
            )
        return ""


class Task(Objective):
    """An objective with labelled rows: it encodes them, answers them, and scores the answers.

    name    of the head, the loss term and the target
    labels  class names in the order of the outputs; none for regression
    metric  the one that decides which model is best, where nobody says otherwise; higher is better
    """

    labels: tuple[str, ...] = ()
    metric: str

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        """Sequences of at most `length` tokens. A row without a label has a target too: a place to answer at."""
        firsts = tokenizer.ids([row.text for row in rows])
        paired = [i for i, row in enumerate(rows) if row.pair is not None]
        seconds = dict(zip(paired, tokenizer.ids([rows[i].pair or "" for i in paired]), strict=True))
        examples: list[Example] = []
        cut: list[int] = []
        for i, (row, first) in enumerate(zip(rows, firsts, strict=True)):
            tokens, segments = tokenizer.join(first, seconds.get(i), length)
            if len(tokens) == length < len(tokenizer.join(first, seconds.get(i))[0]):
                cut.append(i)
            target = (np.zeros(1, np.int64), self.value(row))
            examples.append(Example(tokens, segments, {self.name: target}))
        return Encoded(examples, np.arange(len(rows)), rows, length, cut=tuple(cut))

    def value(self, row: Row) -> np.ndarray:
        """The label of a row as the value [1] of a target; 0 where it has none."""
        raise NotImplementedError

    def squash(self, logits: Tensor) -> Tensor:
        """What a head says [M, C] -> what is answered [M, C]: probabilities, or scores as they are."""
        return logits.softmax(-1)

    def answers(self, model: Model, batch: Batch) -> list[np.ndarray]:
        """Answers [M, C] of each example, in the order of the examples, wherever packing put them."""
        target = batch.targets[self.name]
        answers = self.squash(model.answer(self.name, model(batch), target.places).float()).detach().cpu().numpy()
        assert batch.starts is not None
        starts = batch.starts.cpu().numpy()
        order = np.argsort(starts)
        owners = order[np.searchsorted(starts[order], target.places.cpu().numpy(), side="right") - 1]
        return [answers[owners == i] for i in range(len(starts))]

    def answer_all(self, model: Model, encoded: Encoded, pad: int) -> list[np.ndarray]:
        """Answers [1, C], or for words [W, C], of each row; computed without gradients, in evaluation mode."""
        lengths = np.array([len(example.tokens) for example in encoded.examples])
        found: list[np.ndarray] = [np.empty(0)] * len(lengths)
        with evaluating(model):
            for places in by_length(lengths):
                batch = collate.pad([encoded.examples[i] for i in places], pad, multiple=1)
                for i, answer in zip(places, self.answers(model, batch.to(model.device)), strict=True):
                    found[i] = answer
        ends = np.searchsorted(encoded.owners, np.arange(len(encoded.rows) + 1))
        return [np.concatenate(found[a:b]) for a, b in pairwise(ends)]

    def evaluate(self, model: Model, encoded: Encoded, pad: int) -> dict[str, float]:
        """The metrics of what the model answers to rows that have labels."""
        return self.metrics(self.answer_all(model, encoded, pad), encoded.rows)

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        """Name -> value over all rows; `loss` is the mean one, in nats for classes."""
        raise NotImplementedError

    def report(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        """Class -> precision, recall, f1, support; empty for regression."""
        return {}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """The metrics of one answer to everything: the most frequent label of `train`, or its mean score."""
        raise NotImplementedError


class Classification(Task):
    """Which of the labels a text, or a pair of texts, has: cross-entropy at [CLS] (Devlin et al. 2018, section 4.1)."""

    name = "classification"

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = _labels(labels)
        self.heads: Mapping[str, int] = {self.name: len(self.labels)}
        self.metric = "accuracy"
        self._ids = {label: i for i, label in enumerate(self.labels)}

    def value(self, row: Row) -> np.ndarray:
        return np.array([_id(self._ids, row.label, row) if row.label else 0])

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        probabilities, true = self._arrays(answers, rows)
        return {
            **metrics.of_classes(probabilities.argmax(1), true, self.labels),
            "loss": _cross_entropy(probabilities, true),
        }

    def report(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        probabilities, true = self._arrays(answers, rows)
        return metrics.per_class(probabilities.argmax(1), true, self.labels)

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        commonest = np.bincount(self._true(train), minlength=len(self.labels)).argmax()
        true = self._true(rows)
        return metrics.of_classes(np.full(len(true), commonest), true, self.labels)

    def _true(self, rows: Sequence[Row]) -> np.ndarray:
        return np.array([_id(self._ids, row.label, row) for row in rows])

    def _arrays(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities [N, C] and true class ids [N]."""
        return np.concatenate(answers), self._true(rows)


class Regression(Task):
    """A score for a text or a pair: squared error of one output at [CLS], as BERT does for STS-B."""

    name = "regression"
    heads: Mapping[str, int] = {"regression": 1}
    metric = "pearson"

    def value(self, row: Row) -> np.ndarray:
        return np.array([float(row.label) if row.label else 0.0], np.float32)

    def squash(self, logits: Tensor) -> Tensor:
        return logits

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Sum of squared errors; the metric `error` sums their absolute values."""
        target = batch.targets[self.name]
        errors = model.answer(self.name, hidden_BTD, target.places).float().squeeze(-1) - target.values.float()
        return Loss(errors.square().sum(), errors.numel(), {"error": errors.detach().abs().sum()})

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        true = np.array([float(row.label) for row in rows])
        found = metrics.of_scores(np.concatenate(answers)[:, 0].astype(np.float64), true)
        return {**found, "loss": found["rmse"] ** 2}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        mean = float(np.mean([float(row.label) for row in train]))
        return metrics.of_scores(np.full(len(rows), mean), np.array([float(row.label) for row in rows]))


class Tagging(Task):
    """A tag for every word of a sentence: cross-entropy at the first piece of each (Devlin et al. 2018, section 5.3).

    A sentence that does not fit is split into windows that share some context; each word is answered once, in the
    window where it stands furthest from an edge.
    """

    name = "tagging"

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = _labels(labels)
        self.heads: Mapping[str, int] = {self.name: len(self.labels)}
        self.metric = "f1" if metrics.are_iob(self.labels) or metrics.outside(self.labels) else "accuracy"
        self._ids = {label: i for i, label in enumerate(self.labels)}

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        empty = np.empty(0, np.int64)
        room = length - len(tokenizer.join(empty)[0])
        if room < 1:
            raise UnmaskError(f"A length of {length} leaves no room for words; set --length 16 or more.")
        lead = int(np.flatnonzero(tokenizer.join(np.array([-1]))[0] == -1)[0])
        examples: list[Example] = []
        owners: list[int] = []
        split = 0
        for number, row in enumerate(rows):
            encoding = tokenizer.encode_words(row.words)
            firsts = np.searchsorted(encoding.words, np.arange(len(row.words)))  # place of each word's first piece
            values = np.array([_id(self._ids, tag, row) for tag in row.tags] or [0] * len(row.words), np.int64)
            split += len(encoding.ids) > room
            for begin, low, high in windows(len(encoding.ids), room):
                owned = slice(*np.searchsorted(firsts, [low, high]))
                if owned.start == owned.stop and begin:
                    continue
                tokens, segments = tokenizer.join(encoding.ids[begin : begin + room])
                target = (firsts[owned] - begin + lead, values[owned])
                examples.append(Example(tokens, segments, {self.name: target}))
                owners.append(number)
        return Encoded(examples, np.array(owners, np.int64), rows, length, split=split)

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        true = np.array([_id(self._ids, tag, row) for row in rows for tag in row.tags], np.int64)
        found = metrics.of_tags(self.decode(answers), [row.tags for row in rows], self.labels)
        return {**found, "loss": _cross_entropy(np.concatenate(answers), true)}

    def report(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        return metrics.per_tag(self.decode(answers), [row.tags for row in rows], self.labels)

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        counts = dict.fromkeys(self.labels, 0)
        for row in train:
            for tag in row.tags:
                counts[tag] += 1
        commonest = max(counts, key=lambda label: counts[label])
        return metrics.of_tags([[commonest] * len(row.tags) for row in rows], [row.tags for row in rows], self.labels)

    def decode(self, answers: Sequence[np.ndarray]) -> list[list[str]]:
        """The likeliest tag of each word, by sentence."""
        return [[self.labels[i] for i in answer.argmax(-1)] for answer in answers]


def task_of(model: Model, labels: Sequence[str] = ()) -> Task:
    """The task of a model with a classification, regression or tagging head.

    Raises UnmaskError where it has none of these.
    """
    name = next((name for name in ("classification", "regression", "tagging") if name in model.heads), None)
    if name is None:
        heads = ", ".join(model.heads) or "none"
        raise UnmaskError(f"The model has no head for labelled rows (heads: {heads}); fine-tune it first.")
    if name == "regression":
        return Regression()
    outputs = int(list(model.heads[name].parameters())[-1].shape[0])
    labels = tuple(labels) or tuple(f"LABEL_{i}" for i in range(outputs))
    return Classification(labels) if name == "classification" else Tagging(labels)


def windows(pieces: int, room: int) -> Iterator[tuple[int, int, int]]:
    """(begin, low, high): windows of `room` pieces from `begin` on, each answering for the pieces low … high - 1.

    The answered parts lie end to end and cover all pieces; inside a text, an eighth of the room is context on
    either side.
    """
    context = room // 8
    begin, low = 0, 0
    while begin + room < pieces:
        high = begin + room - context
        yield begin, low, high
        low = high
        begin = min(high - context, pieces - room)
    yield begin, low, pieces


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the mode that the model was in comes back afterwards."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def by_length(lengths: np.ndarray) -> Iterator[list[int]]:
    """Places of examples, short ones first, in batches of at most TOKENS_AT_ONCE once they are padded."""
    batch: list[int] = []
    for i in np.argsort(lengths, kind="stable").tolist():
        if batch and (len(batch) + 1) * lengths[i] > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _labels(labels: Sequence[str]) -> tuple[str, ...]:
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise UnmaskError(f"A task needs two or more different labels, not {', '.join(labels) or 'none'}.")
    return tuple(labels)


def _id(ids: Mapping[str, int], label: str, row: Row) -> int:
    if label not in ids:
        raise UnmaskError(f"{row.place or 'A row'} has the label '{label}', which is not one of {', '.join(ids)}.")
    return ids[label]


def _cross_entropy(probabilities: np.ndarray, true: np.ndarray) -> float:
    return float(-np.log(np.maximum(probabilities[np.arange(len(true)), true], 1e-12)).mean())

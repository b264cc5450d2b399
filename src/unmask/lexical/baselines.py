"""Baselines of a task: what words alone are worth on the rows of a fine-tuning run, scored as the run is.

Shapes: N texts or rows, V words, F features, C outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from unmask import metrics
from unmask.config import Config
from unmask.data.dataset import Dataset
from unmask.data.rows import Choices, Question, Row
from unmask.data.sentences import sentences
from unmask.errors import UnmaskError
from unmask.families import Family, Options, Rows, Say, build, read_sets
from unmask.lexical import regression
from unmask.lexical.tagging import tagger
from unmask.lexical.vectors import Vocabulary, one_hot, products, tf_idf, units
from unmask.tasks import Classification, Embedding, MultiLabel, MultipleChoice, QuestionAnswering, Regression, Tagging
from unmask.tasks.embedding import of_similarity, texts_of
from unmask.tasks.similarity import kind_of
from unmask.tasks.task import Task

Vectors = Callable[[Sequence[str], Vocabulary], Any]
Score = Callable[[Sequence[Row]], Mapping[str, float]]
"""Rows -> metrics."""

VECTORS: Mapping[str, Vectors] = {"one-hot": one_hot, "tf-idf": tf_idf}


@dataclass(frozen=True, kw_only=True)
class Baselines(Config):
    """What is read and scored; as the fields of the same names of a fine-tuning run (`finetune.FineTuning`).

    seed  of the rows that are held out where there are no dev rows: the same as in a run with this seed
    """

    task: Family = "classification"
    rows: Rows = field(default_factory=Rows)
    scheme: Literal["auto", "any"] = "auto"
    characters: bool = False
    seed: int = 0


def baselines(config: Baselines, say: Say) -> dict[str, Any]:
    """Score every baseline on the dev rows, and on the test rows where there are any.

    Returns `task`, `reference` (what the task's own baseline is), `method` (what the others are) and `scores`:
    baseline -> split -> metrics, those that the task's own baseline has, and seconds. Raises UnmaskError
    where `finetune` would, and for texts without words.
    """
    if config.rows.train is None:
        raise UnmaskError("Say which rows: --train FILE.")
    if config.rows.length is not None:
        raise UnmaskError("--length cuts what a model reads; baselines count the words of whole texts: leave it out.")
    sets = read_sets(config.task, config.rows, say, np.random.default_rng(config.seed))
    options = Options(scheme=config.scheme, characters=config.characters)
    held_out = config.rows.dev is None and config.rows.benchmark is None
    silent = config.task == "embedding"  # all that is said of it is what vectors are trained by
    task = build(config.task, sets, options, (lambda _: None) if silent else say, held_out=held_out)
    if isinstance(task, Embedding) and task.trained_by is not None:
        for row in (row for rows in sets.values() for row in rows):
            task.trained_by.value(row)  # raises for a label that is none
    train, others = sets["train"], {name: rows for name, rows in sets.items() if name != "train"}
    scores: dict[str, dict[str, Any]] = {}
    task.baseline(train.rows[:1], train.rows)  # so that libraries are loaded before the clock runs
    for name, learn in _ways(task, train).items():
        begin = time.perf_counter()
        score = learn()
        found = {split: dict(score(rows)) for split, rows in others.items()}
        scores[name] = {**found, "seconds": time.perf_counter() - begin}
    for found in scores.values():
        for split in others:
            found[split] = {metric: found[split][metric] for metric in scores["baseline"][split]}
    return {"task": config.task, "reference": task.reference, "method": _learned(task)[1], "scores": scores}


def render(found: Mapping[str, Any]) -> str:
    """What `baselines` found, as a table of text for each split."""
    lines = [f"baseline: {found['reference']}.", f"{', '.join(list(found['scores'])[1:])}: {found['method']}."]
    for split in (split for split in ("dev", "test") if split in found["scores"]["baseline"]):
        names = list(found["scores"]["baseline"][split])
        lines += ["", f"{split:<10}" + "".join(f"{name:>{_width(name)}}" for name in names) + f"{'seconds':>10}"]
        for name, row in found["scores"].items():
            cells = "".join(f"{row[split][metric]:{_width(metric)}.4f}" for metric in names)
            lines.append(f"{name:<10}{cells}{row['seconds']:10.1f}")
    return "\n".join(lines)


def _width(name: str) -> int:
    return max(11, len(name) + 2)


# ------------------------------------------------------------------------------------------------ of each task


def _ways(task: Task, train: Dataset) -> dict[str, Callable[[], Score]]:
    """Name of a baseline -> what learns it from the training rows; the task's own comes first."""
    learn, _ = _learned(task)
    own = {"baseline": lambda: partial(task.baseline, train=train.rows)}
    if isinstance(task, Tagging):
        return {**own, "lexical": partial(learn, task, train)}
    return {**own, **{name: partial(learn, task, train, vectors) for name, vectors in VECTORS.items()}}


def _tags(task: Tagging, train: Sequence[Row]) -> Score:
    answers = tagger(train, task.labels)
    return lambda rows: task.metrics(answers(rows), rows)


def _texts(task: Classification | MultiLabel | Regression, train: Sequence[Row], vectors: Vectors) -> Score:
    """A regression on the words of a text or a pair."""
    vocabulary = Vocabulary.of([text for row in train for text in texts_of(row)])
    paired = any(row.pair is not None for row in train)  # so that the columns are those of the training rows
    features = partial(_features, vectors, vocabulary, paired)
    found, true = features(train), np.stack([task.value(row) for row in train])
    if isinstance(task, Classification):
        answer = regression.classes(found, true[:, 0], len(task.labels))
    elif isinstance(task, MultiLabel):
        answer = regression.label_sets(found, true)
    else:
        answer = regression.scores(found, true[:, 0])
    return lambda rows: task.metrics(list(answer(features(rows))[:, None]), rows)


def _features(vectors: Vectors, vocabulary: Vocabulary, paired: bool, rows: Sequence[Row]) -> Any:
    """[N, V] of texts; [N, 3 V + 1] of pairs: both texts, the words that they share, and their cosine."""
    from scipy.sparse import csr_array, hstack

    first = vectors([row.text for row in rows], vocabulary)
    if not paired:
        return first
    second = vectors([row.pair or "" for row in rows], vocabulary)
    cosines = products(units(first), units(second))
    return hstack([first, second, first * second, csr_array(cosines[:, None])], format="csr")


def _choices(task: MultipleChoice, train: Sequence[Row], vectors: Vectors) -> Score:
    """The choice that is nearest to the context and the question."""

    def asked(rows: Sequence[Row]) -> list[str]:
        return [f"{row.text} {row.pair or ''}" for row in rows]

    def choices(rows: Sequence[Row]) -> list[tuple[str, ...]]:
        return [row.choices if isinstance(row, Choices) else () for row in rows]

    vocabulary = Vocabulary.of([*asked(train), *(text for own in choices(train) for text in own)])
    near = partial(_cosines, vectors, vocabulary)
    return lambda rows: task.metrics([own[None] for own in near(asked(rows), choices(rows))], rows)


def _similarity(task: Embedding, train: Sequence[Row], vectors: Vectors) -> Score:
    """The cosine of two texts; for pairs with classes, a regression as for --task classification."""
    vocabulary = Vocabulary.of([text for row in train for text in texts_of(row)])
    classes = _texts(Classification(task.labels), train, vectors) if task.labels else None

    def score(rows: Sequence[Row]) -> Mapping[str, float]:
        kind = kind_of(rows, task.labels)
        if classes is not None and kind == "classes":
            return classes(rows)
        return of_similarity(units(vectors([text for row in rows for text in texts_of(row)], vocabulary)), rows, kind)

    return score


def _questions(task: QuestionAnswering, train: Sequence[Row], vectors: Vectors) -> Score:
    """The sentence of the context that is nearest to the question."""
    vocabulary = Vocabulary.of([text for context in {row.pair or "" for row in train} for text in sentences(context)])

    def score(rows: Sequence[Row]) -> Mapping[str, float]:
        questions = [row for row in rows if isinstance(row, Question)]
        cut = [sentences(row.pair or "") for row in questions]
        near = _cosines(vectors, vocabulary, [row.text for row in questions], cut)
        said = {row.id: own[i.argmax()] if own else "" for row, own, i in zip(questions, cut, near, strict=True)}
        return metrics.of_answers(said, questions, unanswerable=task.unanswerable or None, characters=task.characters)

    return score


def _cosines(
    vectors: Vectors, vocabulary: Vocabulary, texts: Sequence[str], others: Sequence[Sequence[str]]
) -> list[np.ndarray]:
    """For each text, its cosine with each of its own others."""
    sizes = [len(own) for own in others]
    first = units(vectors(texts, vocabulary))[np.repeat(np.arange(len(texts)), sizes)]
    second = units(vectors([text for own in others for text in own], vocabulary))
    return np.split(products(first, second), np.cumsum(sizes)[:-1])


_PARTS = "words, and for pairs those that both have and the cosine"
_LEARNED: Mapping[type[Task], tuple[Callable[..., Score], str]] = {
    Classification: (_texts, f"logistic regression on {_PARTS}"),
    MultiLabel: (_texts, f"logistic regression, one for each label, on {_PARTS}"),
    Regression: (_texts, f"ridge regression on {_PARTS}"),
    Tagging: (_tags, "logistic regression on a word, its shape and its neighbours"),
    MultipleChoice: (_choices, "the choice whose words are nearest to those before it, by cosine"),
    Embedding: (_similarity, "cosine of the words of two texts; for classes, logistic regression on them"),
    QuestionAnswering: (_questions, "the sentence whose words are nearest to those of the question, by cosine"),
}
"""Kind of task -> what learns its baselines, and what they are, in words."""


def _learned(task: Task) -> tuple[Callable[..., Score], str]:
    return next(found for kind, found in _LEARNED.items() if isinstance(task, kind))

"""Answers: what a task says of a row, by the names of its labels, as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask import metrics
from unmask.data.rows import Choices, Row
from unmask.serve.inputs import places_of
from unmask.tasks import Embedding, MultiLabel, MultipleChoice, QuestionAnswering, Regression, Tagging, Task
from unmask.tasks.embedding import cosines
from unmask.tasks.question_answering import as_answer
from unmask.tasks.tagging import probabilities

Answer = dict[str, Any]


def answer_of(task: Task, row: Row, found: Any) -> Answer:
    """The answer of a task to a row (`Task.answer_all`), as `Predictor` describes it."""
    if isinstance(task, QuestionAnswering):
        return as_answer(found, task)
    if isinstance(task, Tagging):
        return _tagged(task, row, found)
    if isinstance(task, MultipleChoice):
        assert isinstance(row, Choices)
        best = int(found[0].argmax())
        scores = [float(p) for p in found[0]]
        return {"choice": best, "text": row.choices[best], "probability": scores[best], "scores": scores}
    if isinstance(task, Embedding):
        return _embedded(found)
    if isinstance(task, Regression):
        return {"score": float(found[0, 0])}
    scores_by_label = {label: float(p) for label, p in zip(task.labels, found[0], strict=True)}
    if isinstance(task, MultiLabel):
        return {"labels": [label for label, p in scores_by_label.items() if p > 0.5], "scores": scores_by_label}
    label = task.labels[int(found[0].argmax())]
    return {"label": label, "probability": scores_by_label[label], "scores": scores_by_label}


def _embedded(vectors_KD: np.ndarray) -> Answer:
    """The vector of a text; of several, how similar the first is to the others."""
    if len(vectors_KD) == 1:
        return {"embedding": vectors_KD[0].tolist()}
    similar = cosines(vectors_KD[:1], vectors_KD[1:]).tolist()
    return {"similarity": similar[0]} if len(similar) == 1 else {"similarities": similar}


def _tagged(task: Tagging, row: Row, found: Any) -> Answer:
    ids = {label: i for i, label in enumerate(task.labels)}
    tags = task.decode([found])[0]
    likely = [float(p[ids[tag]]) for p, tag in zip(probabilities(found), tags, strict=True)]
    return tagged(row, task.labels, tags, likely)


def tagged(row: Row, labels: Sequence[str], tags: Sequence[str], likely: Sequence[float]) -> Answer:
    """The words of a row with their tags, each with its probability; and what those mark, if such are the labels."""
    words = [
        {"word": word, "tag": tag, "probability": p, "begin": begin, "end": end}
        for word, tag, p, (begin, end) in zip(row.words, tags, likely, places_of(row), strict=True)
    ]
    if not metrics.are_iob(labels):
        return {"words": words}
    marked = _marked(row.text or " ".join(row.words), words)
    if row.predicate is None:
        return {"words": words, "entities": marked}
    return {"words": words, "predicate": row.predicate, "roles": marked}


def _marked(text: str, words: Sequence[Answer]) -> list[Answer]:
    """What the tags of the words mark; it is as likely as all its tags together, were they independent."""
    found = []
    for first, end, kind in metrics.spans([word["tag"] for word in words]):
        inside = words[first:end]
        begin, stop = inside[0]["begin"], inside[-1]["end"]
        likely = math.prod(word["probability"] for word in inside)
        found.append({"kind": kind, "text": text[begin:stop], "begin": begin, "end": stop, "probability": likely})
    return found

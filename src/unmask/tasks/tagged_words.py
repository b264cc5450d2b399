"""Tagged words: the inputs of a tagger, and its answers: words with their tags, and the spans that the tags mark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask import metrics
from unmask.data.labelled.rows import Row
from unmask.data.labelled.words import split_words
from unmask.errors import UnmaskError, plural
from unmask.models.model import Model
from unmask.tasks.forms import Form, Input, Object, are_texts

CAPITALS = 0.5  # share of marked words with capitals, above which a vocabulary should have them

Answer = dict[str, Any]


class SentenceForm(Form):
    """A text, a list of words, or {"text"} or {"words"}; for semantic roles with "predicate", the index of the word,
    from 0, whose arguments are to be found."""

    known = frozenset({"text", "words"})
    wanted = object = lacking = "an object with words, or with text, and for semantic roles with predicate"

    def by_name(self, parts: Sequence[str], whole: bool, number: int) -> Object:
        return {"text": parts[0]} if whole else {"words": list(parts)}

    def line(self, line: str, number: int, *, single: bool = False) -> str:
        return line

    def item(self, row: Row) -> Input:
        predicate = {} if row.predicate is None else {"predicate": row.predicate}
        return {"words": list(row.words), **predicate}

    def row(self, values: Object, place: str) -> Row:
        if "words" not in values:
            text = self.text(values, "text", place)
            split = tuple(word for word, _ in split_words(text))
            return Row(text, words=split, predicate=_predicate(values, split, place))
        words = values["words"]
        if not are_texts(words) or not words:
            raise UnmaskError(f"{place}: 'words' must be a list of strings that is not empty.")
        text = values.get("text", " ".join(words))
        if not isinstance(text, str):
            raise UnmaskError(f"{place}: 'text' must be a string.")
        return Row(text, words=tuple(words), predicate=_predicate(values, words, place))


def _predicate(values: Object, words: Sequence[str], place: str) -> int | None:
    """The index of the predicate among the words, from 0; None where there is none."""
    number = values.get("predicate")
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(words):
        raise UnmaskError(
            f"{place}: 'predicate' must be the number of a word, from 0 to {len(words) - 1}, not {number!r}."
        )
    return number


def needs_segments(rows: Sequence[Row]) -> bool:
    """Whether a model must have two segments to read the rows, because some have a predicate."""
    return any(row.predicate is not None for row in rows)


def check_segments(model: Model, rows: Sequence[Row]) -> None:
    """Raises UnmaskError for rows with predicates where the model has no second segment, such as a RoBERTa."""
    if needs_segments(rows) and model.config.segments < 2:
        raise UnmaskError(
            "The rows mark a predicate, which needs a model with two segments, but this model has only one, as RoBERTa "
            "has: start from a BERT."
        )


def predicate_of(row: Row) -> int:
    """The index of the predicate among the words, -1 for none. Raises UnmaskError where there is no such word."""
    if row.predicate is None:
        return -1
    if not 0 <= row.predicate < len(row.words):
        raise UnmaskError(
            f"{row.place or 'A row'} has word {row.predicate} as its predicate, but only "
            f"{plural(len(row.words), 'word')}, numbered from 0."
        )
    return row.predicate


def of_capitals(rows: Sequence[Row]) -> str:
    """A sentence for a vocabulary without capitals, if most of the words in spans that the tags mark have them, as
    names do; else empty."""
    tags = [tag for row in rows for tag in row.tags]
    if not metrics.are_iob(sorted(set(tags))):
        return ""
    marked = [word for row in rows for word, tag in zip(row.words, row.tags, strict=True) if tag != "O"]
    share = sum(word[:1].isupper() for word in marked) / len(marked)
    if share < CAPITALS:
        return ""
    return (
        f"Of the words with a tag other than O, {share:.0%} begin with a capital, but the vocabulary has no capitals: "
        "a model whose corpus was built with --cased finds them better."
    )


def tagged(row: Row, labels: Sequence[str], tags: Sequence[str], likely: Sequence[float]) -> Answer:
    """The words of a row with their tags and probabilities; and the spans that the tags mark, if they are IOB tags."""
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


def places_of(row: Row) -> list[tuple[int, int]]:
    """Begin and end of each word of a row in its text, or without a text in its words joined by spaces."""
    if row.text in ("", " ".join(row.words)):
        return locate(row.words)
    found, end = [], 0
    for word in row.words:
        begin = row.text.find(word, end)
        if begin < 0:
            raise UnmaskError(f"{row.place}: the word '{word}' is not in the text after the words before it.")
        end = begin + len(word)
        found.append((begin, end))
    return found


def locate(words: Sequence[str]) -> list[tuple[int, int]]:
    """Begin and end of each word in the text that joins the words with one space."""
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    return [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]


def _marked(text: str, words: Sequence[Answer]) -> list[Answer]:
    """The spans that the tags of the words mark; the probability of a span is the product of those of its tags."""
    found = []
    for first, end, kind in metrics.spans([word["tag"] for word in words]):
        inside = words[first:end]
        begin, stop = inside[0]["begin"], inside[-1]["end"]
        likely = math.prod(word["probability"] for word in inside)
        found.append({"kind": kind, "text": text[begin:stop], "begin": begin, "end": stop, "probability": likely})
    return found

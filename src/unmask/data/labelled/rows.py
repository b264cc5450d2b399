"""Rows: labelled examples from any file: texts, pairs, tagged words, questions, choices, triplets, documents with
clusters of mentions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled text, pair or sentence of tagged words, with its place in a file.

    label        the label as in the file; `dataset.scores` converts scores to numbers
    labels       all labels of a text, if texts may have any number of labels
    words, tags  of equal length; empty if the row is a text
    predicate    index of the word whose arguments the tags mark (semantic role labelling)
    id           the name of the row in the file, for submissions; empty if it has none
    group        what must not be in two splits at once, such as the speaker or the patient; empty if it is not known
    place        "file:line", for messages
    """

    text: str = ""
    pair: str | None = None
    label: str = ""
    labels: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    predicate: int | None = None
    id: str = ""
    group: str = ""
    place: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """The texts, ignoring case and whitespace: rows with equal keys are duplicates, whatever their labels are."""
        return tuple(" ".join(part.split()).casefold() for part in (self.text, self.pair or ""))

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts of the row; tagged words are joined by spaces."""
        return _texts(self)

    @property
    def reads(self) -> tuple[str, ...]:
        """The texts that a model reads for the row, each as often as it is read."""
        return self.texts


@dataclass(frozen=True, slots=True)
class Question(Row):
    """A question (`text`) and the context (`pair`) with its answer.

    answers   (begin in characters of the context, text) of each annotated answer, in the order of the file; the context
              has exactly this text at this position. Empty if the row has no label
    possible  whether the context answers the question; False only in SQuAD 2.0, and then there are no answers
    unplaced  annotated answers that are not in the context: they are not used for training, but scores count them
    """

    answers: tuple[tuple[int, str], ...] = ()
    possible: bool = True
    unplaced: tuple[str, ...] = ()

    @property
    def golds(self) -> tuple[str, ...]:
        """The texts of all annotated answers; the score of a prediction is that of the best match."""
        return (*(text for _, text in self.answers), *self.unplaced)


@dataclass(frozen=True, slots=True)
class Choices(Row):
    """A context (`text`), optionally a question or the start of a sentence (`pair`), and choices.

    choices  two or more texts; `label` is the number of the correct one, from "0", or empty

    The model reads `text` as the first segment, and `pair` followed by one choice as the second; if `pair` is None,
    only the choice.
    """

    choices: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        parts = (self.text, self.pair or "", *self.choices)
        return tuple(" ".join(part.split()).casefold() for part in parts)

    @property
    def texts(self) -> tuple[str, ...]:
        return (*_texts(self), *self.choices)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*_texts(self) * len(self.choices), *self.choices)


@dataclass(frozen=True, slots=True)
class Triplet(Row):
    """An anchor (`text`), a text with the same meaning (`pair`), and one with another meaning (`negative`)."""

    negative: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, self.pair or "", self.negative)


WordSpan = tuple[int, int]
"""[begin, end): numbers of words."""
Clusters = tuple[tuple[WordSpan, ...], ...]
"""The mentions of each person or thing."""


@dataclass(frozen=True, slots=True)
class Discourse(Row):
    """A document of words, whose mentions of one person or thing are a cluster.

    starts    numbers of the words that begin a sentence, ascending from 0
    clusters  the mentions of each cluster, in the order of the text
    """

    starts: tuple[int, ...] = (0,)
    clusters: Clusters = ()


@dataclass(frozen=True, slots=True)
class Ambiguous(Discourse):
    """A document with a pronoun, and two names that it may refer to (GAP).

    pronoun  its words
    names    the words of both names
    meant    whether the pronoun refers to each name
    """

    pronoun: WordSpan = (0, 0)
    names: tuple[WordSpan, WordSpan] = ((0, 0), (0, 0))
    meant: tuple[bool, bool] = (False, False)


def _texts(row: Row) -> tuple[str, ...]:
    first = row.text or " ".join(row.words)
    return (first,) if row.pair is None else (first, row.pair)


def listed(places: Sequence[str], most: int = 3) -> str:
    """The first few of some places, for notes: "a.tsv:3, a.tsv:9, a.tsv:14, …"."""
    return ", ".join(places[:most]) + (", …" if len(places) > most else "")

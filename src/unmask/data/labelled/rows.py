"""Rows: what one labelled example is, whatever file it came from. Texts, pairs, tagged words, questions, choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled text, pair or sentence of tagged words, and the place it came from.

    label        as it stands in the file; scores become numbers where they are asked for (`dataset.scores`)
    labels       where a text may have several at once, or none: all that it has
    words, tags  of equal length; empty where the row is a text
    predicate    number of the word whose arguments the tags name (semantic role labelling)
    id           what the file calls the row, for files that are handed in; empty where it has no name
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
    place: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two rows the same one, apart from capitals and spaces; the label does not count."""
        return tuple(" ".join(part.split()).casefold() for part in (self.text, self.pair or ""))

    @property
    def texts(self) -> tuple[str, ...]:
        """All its texts; of tagged words, the words with spaces between."""
        return _texts(self)

    @property
    def reads(self) -> tuple[str, ...]:
        """What a model reads of it, each text as often as it is read."""
        return self.texts


@dataclass(frozen=True, slots=True)
class Question(Row):
    """A question (`text`) and the context (`pair`) that its answer stands in.

    answers   (begin in characters of the context, text) of each annotated answer, in the order of the file; the
              context holds the text at that place exactly. None where the row has no label.
    possible  whether the context answers the question; False only in SQuAD 2.0, and then there are no answers
    unplaced  annotated answers that do not stand in the context: nothing to learn from, but scores count them
    """

    answers: tuple[tuple[int, str], ...] = ()
    possible: bool = True
    unplaced: tuple[str, ...] = ()

    @property
    def golds(self) -> tuple[str, ...]:
        """The texts of all annotated answers; a prediction is compared with the nearest one."""
        return (*(text for _, text in self.answers), *self.unplaced)


@dataclass(frozen=True, slots=True)
class Choices(Row):
    """A context (`text`), maybe a question or the start of a sentence (`pair`), and what may follow.

    choices  two or more texts; `label` is the number of the right one, from "0", or empty

    The model reads `text` as the first segment and `pair` with one choice behind it as the second; where `pair` is
    None, the choice alone.
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
    """An anchor (`text`), a text of the same meaning (`pair`), and one of another."""

    negative: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, self.pair or "", self.negative)


def _texts(row: Row) -> tuple[str, ...]:
    first = row.text or " ".join(row.words)
    return (first,) if row.pair is None else (first, row.pair)


def listed(places: Sequence[str], most: int = 3) -> str:
    """The first few of some places, for notes: "a.tsv:3, a.tsv:9, a.tsv:14, …"."""
    return ", ".join(places[:most]) + (", …" if len(places) > most else "")

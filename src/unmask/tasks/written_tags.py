"""Written tags: the tags of all words, as a text that a T5 writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from unmask import metrics
from unmask.data.labelled import dataset
from unmask.data.labelled.rows import Row
from unmask.data.text.sentinels import SENTINEL, SENTINELS, sentinel
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.tasks.tagged_words import tagged
from unmask.tasks.written import Written, Wrote, squeezed


class WrittenTags(Written):
    """The written form of tagging: a tag for every word, after the sentinel that precedes the word in the input
    ("Sentinel + Tag", Raman et al. 2022, "Transforming Sequence Tagging Into A Seq2Seq Task", section 3).

    A sentence with more words than there are sentinels is read in parts. A word without an answer is outside of all
    spans, or wrong.
    """

    length = 512
    scoring: ClassVar[dict[str, Any]] = {"scheme": "any"}  # a T5 may write illegal sequences of tags too

    @classmethod
    def check_vocabulary(cls, tokenizer: Tokenizer, folder: Path | str) -> None:
        """Raises UnmaskError for a vocabulary without the sentinels that mark the words."""
        if len(tokenizer.sentinels) < SENTINELS:
            raise UnmaskError(
                f"Tags are written after {sentinel(0)} to {sentinel(SENTINELS - 1)}, which the vocabulary of {folder} "
                "does not have: take a T5 as it was pre-trained."
            )

    def longest(self, lengths: Sequence[int], tokenizer: Tokenizer) -> tuple[int, float | None]:
        """As `Written.longest`: enough for the tags of the longest part, and for each input token those of one tag with
        its sentinel, which is enough because a word has at least two input tokens."""
        tag = 1 + max(map(len, tokenizer.target.ids(self.labels)))
        return SENTINELS * tag + 1, float(tag)

    @classmethod
    def learned(cls, name: str, train: Sequence[Row], labels: Sequence[str] | None = None) -> Self:
        return cls(name, dataset.ordered({tag for row in train for tag in row.tags}) if labels is None else labels)

    def __init__(self, name: str, labels: Sequence[str] = (), mean: float = 0.0) -> None:
        super().__init__(name, labels, mean)
        rest = metrics.outside(self.labels)
        self.metric = "f1" if metrics.are_iob(self.labels) or rest else "accuracy"
        self.rest = rest or ""
        self._tags = {squeezed(label): label for label in reversed(self.labels)} | {tag: tag for tag in self.labels}

    def parts(self, row: Row) -> list[tuple[str, str]]:
        """Input "tagging sentence: <extra_id_0> Ada <extra_id_1> sings", target "<extra_id_0> B-PER <extra_id_1> O". A
        predicate precedes the sentence, with its sentinel."""
        return [(self._read(row, begin), self._written(row.tags, begin)) for begin in self._begins(row)]

    def sources(self, row: Row) -> list[str]:
        return [self._read(row, begin) for begin in self._begins(row)]

    def source(self, row: Row) -> str:
        """The first part of a sentence."""
        return self._read(row, 0)

    def shortened(self, row: Row, ids: np.ndarray, room: int, tokenizer: Tokenizer) -> np.ndarray | None:
        """None: every word has a tag."""
        return None

    def target(self, row: Row) -> str:
        return self._written(row.tags, 0)

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        predicted = self._sentences(answers, rows)
        found = metrics.of_tags(self._filled(predicted), [row.tags for row in rows], self.labels)
        return {**found, "answered": float(np.mean([tag is not None for tags in predicted for tag in tags]))}

    def compared(self, row: Row, texts: Sequence[str]) -> tuple[str, str, float]:
        """The error is the share of words with another tag."""
        (tags,) = self._filled(self._sentences(texts, [row]))
        wrong = sum(ours != theirs for ours, theirs in zip(tags, row.tags, strict=True))
        return " ".join(row.tags), " ".join(tags), wrong / max(1, len(tags))

    def answer(self, row: Row, wrote: Sequence[Wrote]) -> dict[str, Any]:
        """A word without a tag in the output is outside of all spans, or has an empty tag, with the probability 0."""
        tags = self.tags(row, wrote)
        return tagged(row, self.labels, [tag for tag, _ in tags], [p for _, p in tags])

    def tags(self, row: Row, written: Sequence[Wrote]) -> list[tuple[str, float]]:
        """The tag of each word of a row and its probability, from the outputs of its parts; 0 without a tag."""
        likely: list[float] = []
        for one, begin in zip(written, self._begins(row), strict=True):
            likely += self._likely(one, min(SENTINELS, len(row.words) - begin))
        (tags,) = self._filled(self._sentences([one.text for one in written], [row]))
        return list(zip(tags, likely, strict=True))

    def _likely(self, written: Wrote, words: int) -> list[float]:
        """For each word, the probability of the output between its sentinel and the next one, at the first occurrence
        with a valid tag; 0 without one."""
        products: list[float] = []
        for piece, probability in zip(written.pieces, written.probabilities, strict=False):
            if SENTINEL.fullmatch(piece):
                products.append(1.0)
            elif products:
                products[-1] *= probability
        found: dict[str, float] = {}
        for (mark, tag), product in zip(self._marked(written.text), products, strict=False):
            if tag is not None:
                found.setdefault(mark, product)
        return [found.get(sentinel(i), 0.0) for i in range(words)]

    def report(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        predicted = self._filled(self._sentences(answers, rows))
        found = metrics.per_tag(predicted, [row.tags for row in rows], self.labels)
        return {tag: row for tag, row in found.items() if tag}

    def _begins(self, row: Row) -> range:
        return range(0, len(row.words), SENTINELS)

    def _read(self, row: Row, begin: int) -> str:
        marked = [f"{sentinel(i)} {word}" for i, word in enumerate(row.words[begin : begin + SENTINELS])]
        if row.predicate is None:
            return f"{self.name} sentence: {' '.join(marked)}"
        here = row.predicate - begin
        predicate = marked[here] if 0 <= here < len(marked) else row.words[row.predicate]
        return f"{self.name} predicate: {predicate} sentence: {' '.join(marked)}"

    @staticmethod
    def _written(tags: Sequence[str], begin: int) -> str:
        return " ".join(f"{sentinel(i)} {tag}" for i, tag in enumerate(tags[begin : begin + SENTINELS]))

    def _sentences(self, answers: Sequence[str], rows: Sequence[Row]) -> list[list[str | None]]:
        """The tag of each word of each row; None where it has no answer."""
        remaining, sentences = iter(answers), []
        for row in rows:
            tags: list[str | None] = []
            for begin in self._begins(row):
                found = self._answered(next(remaining))
                tags += [found.get(sentinel(i)) for i in range(min(SENTINELS, len(row.words) - begin))]
            sentences.append(tags)
        return sentences

    def _answered(self, answer: str) -> dict[str, str]:
        """Sentinel -> the tag after it, if it is valid; of two answers the first counts."""
        found: dict[str, str] = {}
        for mark, tag in self._marked(answer):
            if tag is not None:
                found.setdefault(mark, tag)
        return found

    def _marked(self, answer: str) -> list[tuple[str, str | None]]:
        """Each sentinel of a text, and the tag after it; None without a valid tag."""
        parts = SENTINEL.split(answer)[1:]  # text before the first sentinel is no answer
        tags = [self._tags.get(text.strip(), self._tags.get(squeezed(text))) for text in parts[1::2]]
        return list(zip(parts[::2], tags, strict=True))

    def _filled(self, sentences: Sequence[Sequence[str | None]]) -> list[list[str]]:
        return [[self.rest if tag is None else tag for tag in tags] for tags in sentences]

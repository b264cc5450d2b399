"""Tagging: a tag for every word of a sentence.

Shapes: M targets, C tags, W words of a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unmask import metrics
from unmask.data.rows import Row
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.tasks.lengths import windows
from unmask.tasks.task import Encoded, Task, different, label_id, mean_cross_entropy
from unmask.types import Example


class Tagging(Task):
    """A tag for every word of a sentence: cross-entropy at the first piece of each (Devlin et al. 2018, section 5.3).

    A sentence that does not fit is split into windows that share some context; each word is answered once, in the
    window where it stands furthest from an edge.
    """

    name = "tagging"

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = different(labels)
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
            values = np.array([label_id(self._ids, tag, row) for tag in row.tags] or [0] * len(row.words), np.int64)
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
        true = np.array([label_id(self._ids, tag, row) for row in rows for tag in row.tags], np.int64)
        found = metrics.of_tags(self.decode(answers), [row.tags for row in rows], self.labels)
        return {**found, "loss": mean_cross_entropy(np.concatenate(answers), true)}

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

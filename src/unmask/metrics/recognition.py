"""Speech recognition: word and character error rates, and alignments of transcripts.

Shapes: R tokens of a reference, H tokens of a hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Errors:
    """Numbers of tokens of some references that are right, replaced or missing, and of tokens that are inserted."""

    hits: int = 0
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0

    @property
    def count(self) -> int:
        """All errors."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def tokens(self) -> int:
        """Tokens of the references."""
        return self.hits + self.substitutions + self.deletions

    @property
    def rate(self) -> float:
        """Errors for each token of the references; above 1 if many are inserted. Of empty references, the number of
        insertions."""
        return self.count / max(1, self.tokens)

    def __add__(self, other: Errors) -> Errors:
        return Errors(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


Pair = tuple[str | None, str | None]
"""A token of the reference and the one of the hypothesis that stands for it; None: there is none."""


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[Pair]:
    """The pairs of an alignment with the fewest errors (Levenshtein 1966): equal tokens, substitutions, deletions
    (token, None) and insertions (None, token). Of several such alignments, errors come as early as possible."""
    numbers = {token: i for i, token in enumerate(dict.fromkeys([*reference, *hypothesis]))}
    reference_R, hypothesis_H = (np.array([numbers[x] for x in side], np.int32) for side in (reference, hypothesis))
    i, j = len(reference), len(hypothesis)
    size = math.isqrt(i) + 1  # rows of a block: kept are the first one of each block, and all of one block
    kept = [np.arange(j + 1, dtype=np.int32)]
    for begin in range(0, i, size):
        kept.append(_distances(kept[-1], reference_R[begin : begin + size], hypothesis_H)[-1].copy())
    found: list[Pair] = []
    for begin in range(max(0, i - 1) // size * size, -1, -size):
        costs = _distances(kept[begin // size], reference_R[begin : begin + size], hypothesis_H)
        while i > begin or (j and not begin):
            row = i - begin
            if row and j and costs[row, j] == costs[row - 1, j - 1] + (reference[i - 1] != hypothesis[j - 1]):
                i, j = i - 1, j - 1
                found.append((reference[i], hypothesis[j]))
            elif row and costs[row, j] == costs[row - 1, j] + 1:
                i -= 1
                found.append((reference[i], None))
            else:
                j -= 1
                found.append((None, hypothesis[j]))
    return found[::-1]


def _distances(first: np.ndarray, reference_R: np.ndarray, hypothesis_H: np.ndarray) -> np.ndarray:
    """[R + 1, H + 1] the edit distance of each beginning of the reference to each beginning of the hypothesis, from the
    distances [H + 1] before these tokens of the reference."""
    R, H = len(reference_R), len(hypothesis_H)
    columns, costs = np.arange(H + 1, dtype=np.int32), np.empty((R + 1, H + 1), np.int32)
    costs[0] = first
    for i in range(1, R + 1):
        costs[i, 0] = costs[i - 1, 0] + 1
        costs[i, 1:] = np.minimum(costs[i - 1, 1:] + 1, costs[i - 1, :-1] + (hypothesis_H != reference_R[i - 1]))
        # An insertion depends on the same row: costs[i, j] = min over k <= j of costs[i, k] + (j - k).
        costs[i] = np.minimum.accumulate(costs[i] - columns) + columns
    return costs


def errors_of(pairs: Iterable[Pair]) -> Errors:
    """The numbers of errors of an alignment."""
    pairs = list(pairs)
    deletions = sum(other is None for _, other in pairs)
    insertions = sum(one is None for one, _ in pairs)
    hits = sum(one == other for one, other in pairs)
    return Errors(hits, len(pairs) - hits - deletions - insertions, deletions, insertions)


def word_errors(reference: str, hypothesis: str) -> Errors:
    """The errors of the words of a transcript, which whitespace separates."""
    return errors_of(align(reference.split(), hypothesis.split()))


def character_errors(reference: str, hypothesis: str) -> Errors:
    """The errors of the characters of a transcript. Spaces between words count as one character each."""
    return errors_of(align(*(" ".join(text.split()) for text in (reference, hypothesis))))


def of_transcripts(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """wer and cer, the errors of all words or characters for each one of the references; the shares of
    `substitutions`, `deletions` and `insertions` in wer; and `correct`, the share of transcripts without an error."""
    pairs = list(zip(references, hypotheses, strict=True))
    each = [word_errors(*pair) for pair in pairs]
    words, characters = sum(each, Errors()), sum((character_errors(*pair) for pair in pairs), Errors())
    names = ("substitutions", "deletions", "insertions")
    shares = {name: getattr(words, name) / max(1, words.tokens) for name in names}
    correct = sum(errors.count == 0 for errors in each) / max(1, len(each))
    return {"wer": words.rate, "cer": characters.rate, **shares, "correct": correct}

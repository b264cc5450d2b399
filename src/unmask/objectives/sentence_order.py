"""Sentence pairs: next-sentence prediction (Devlin et al. 2018) and sentence-order prediction (Lan et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.objectives.language_modeling import runs, target_length
from unmask.objectives.objective import Join, Objective
from unmask.types import Document, Example, Head

NEXT, RANDOM = 0, 1
IN_ORDER, SWAPPED = 0, 1


class SentencePair(Objective):
    """A question about two segments that has two answers, asked at [CLS].

    join   frames two runs of ids with special tokens: `Tokenizer.join`
    short  share of the pairs that aim at a random shorter length
    """

    def __init__(self, join: Join, *, short: float = 0.1) -> None:
        self.heads = {self.name: Head("sequence", 2, pretraining=True)}
        self.join, self.short = join, short
        nothing = np.zeros(0, dtype=np.int64)
        self.frame = len(join(nothing, nothing)[0])  # special tokens of a pair: 3 for BERT, 4 for RoBERTa


class NextSentence(SentencePair):
    """Does segment B follow segment A, or does it come from another document? (BERT, section 3.1 and appendix A.2)

    Pairs are filled to the full length with consecutive sentences; one in ten aims at a random shorter length.
    Half of the second segments are the true continuation (label 0), half are taken from another document
    (label 1), in which case the sentences they displaced are used again for the next pair. A pair of which
    there is only one sentence left always gets a random partner, as published. Where all that is at hand comes
    from one document, in pieces, another piece takes the place of another document.
    """

    name = "nsp"

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        documents = [document for document in documents if any(len(s) for s in document.sentences)]
        if len({document.index for document in documents}) < 2:
            # All are pieces of one long document. Without a partner for them, none of its text would be learned from.
            documents = [Document(document.sentences, piece) for piece, document in enumerate(documents)]
        if len(documents) < 2:
            return []  # nothing to draw a random partner from; `Pretrain` refuses a corpus of one document
        examples: list[Example] = []
        for document in documents:
            examples.extend(self._pairs(document, documents, length - self.frame, rng))
        return examples

    def _pairs(
        self, document: Document, documents: Sequence[Document], room: int, rng: np.random.Generator
    ) -> list[Example]:
        sentences = [s for s in document.sentences if len(s)]
        examples, at = [], 0
        while at < len(sentences):
            target = target_length(room, self.short, rng)
            end = _end(sentences, at, target)
            cut = at + 1 if end - at == 1 else at + int(rng.integers(1, end - at))
            first = np.concatenate(sentences[at:cut])
            if end - at == 1 or rng.random() < 0.5:
                second, label = _elsewhere(document, documents, target - len(first), rng), RANDOM
                at = cut
            else:
                second, label = np.concatenate(sentences[cut:end]), NEXT
                at = end
            examples.append(_pair(self.join, *_truncate(first, second, room, rng), self.name, label))
        return examples


class SentenceOrder(SentencePair):
    """Are two consecutive segments in their order (label 0) or swapped (label 1)? (ALBERT, section 3.1)

    A run of a single sentence cannot be a pair: it is kept as one segment without this target.
    """

    name = "sop"

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        examples: list[Example] = []
        for document in documents:
            sentences, at = [s for s in document.sentences if len(s)], 0
            while at < len(sentences):
                target = target_length(length - self.frame, self.short, rng)
                end = _end(sentences, at, target)
                if end - at == 1:
                    alone = runs(sentences[at:end], length - 2)
                    examples.extend(Example(*self.join(run, None, length)) for run in alone)
                else:
                    cut = at + int(rng.integers(1, end - at))
                    pair = (np.concatenate(sentences[at:cut]), np.concatenate(sentences[cut:end]))
                    first, second = _truncate(*pair, length - self.frame, rng)
                    label = SWAPPED if rng.random() < 0.5 else IN_ORDER
                    if label == SWAPPED:
                        first, second = second, first
                    examples.append(_pair(self.join, first, second, self.name, label))
                at = end
        return examples


def _end(sentences: Sequence[np.ndarray], at: int, target: int) -> int:
    """End of the run of sentences, at least one, from `at` on that reaches `target` tokens or the last sentence."""
    end, total = at + 1, len(sentences[at])
    while end < len(sentences) and total < target:
        total += len(sentences[end])
        end += 1
    return end


def _elsewhere(document: Document, documents: Sequence[Document], length: int, rng: np.random.Generator) -> np.ndarray:
    """About `length` tokens from a random place of a random other document."""
    other = document
    while other.index == document.index:
        other = documents[int(rng.integers(len(documents)))]
    begin = int(rng.integers(len(other.sentences)))
    return np.concatenate(other.sentences[begin : _end(other.sentences, begin, length)])


def _truncate(
    first: np.ndarray, second: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shorten the longer segment, token by token and from a random end each time, until the pair fits."""
    excess = max(0, len(first) + len(second) - room)
    gap = abs(len(first) - len(second))
    # Taking tokens from the longer one until it is no longer, then in turn, has this closed form.
    from_longer = min(excess, gap) + (max(0, excess - gap) + 1) // 2
    cuts = (from_longer, excess - from_longer) if len(first) >= len(second) else (excess - from_longer, from_longer)

    def cut(segment: np.ndarray, tokens: int) -> np.ndarray:
        front = int(rng.binomial(tokens, 0.5)) if tokens else 0
        return segment[front : len(segment) - (tokens - front)]

    return cut(first, cuts[0]), cut(second, cuts[1])


def _pair(join: Join, first: np.ndarray, second: np.ndarray, name: str, label: int) -> Example:
    tokens, segments = join(first, second)
    return Example(tokens, segments, {name: (np.zeros(1, dtype=np.int64), np.array([label], dtype=np.int64))})

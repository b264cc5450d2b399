"""CausalLM: every token of a text from those before it; SequenceAutoencoder: a text again, from what was read of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.objectives.language_modeling import runs
from unmask.objectives.next_token import NextToken
from unmask.types import Document, Example


class CausalLM(NextToken):
    """A language model: p(y1 .. yn, end) = product of p(y_t | start, y1 .. y_t-1).

    A document is read from `start`; where it is longer than a row, the next row goes on with it, but from an empty
    state. Every token is guessed once. What a corpus hands out as pieces, of some thousand tokens, counts as documents.

    start, end  ids before the first token and after the last one: [CLS] and [SEP], as a text is read in fine-tuning
    """

    def __init__(self, start: int, end: int, *, label_smoothing: float = 0.0) -> None:
        super().__init__(label_smoothing=label_smoothing)
        self.start, self.end = start, end

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        examples = []
        for document in documents:
            tokens = np.concatenate([[self.start], *document.sentences, [self.end]]).astype(np.int64)
            for begin in range(0, len(tokens) - 1, length):
                window = tokens[begin : begin + length + 1]
                values = window[1:]
                examples.append(Example(window[:-1], targets={self.name: (np.arange(len(values)), values)}))
        return examples


class SequenceAutoencoder(CausalLM):
    """Read a sequence, then write it again (Dai & Le 2015, section 2): start x1 .. xn end x1 .. xn, of which the second
    half is guessed, with its end.

    One network does both, so what it has read is nothing but its state at the first `end`: the state that sums up a
    text in fine-tuning.

    short  share of the sequences that end at a random shorter length, though not within a sentence
    """

    def __init__(self, start: int, end: int, *, short: float = 0.1, label_smoothing: float = 0.0) -> None:
        super().__init__(start, end, label_smoothing=label_smoothing)
        self.short = short

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        examples = []
        for document in documents:
            for run in runs(document.sentences, (length - 2) // 2, self.short, rng):
                tokens = np.concatenate([[self.start], run, [self.end], run]).astype(np.int64)
                values = np.append(run, self.end).astype(np.int64)
                places = np.arange(len(run) + 1, len(tokens))
                examples.append(Example(tokens, targets={self.name: (places, values)}))
        return examples

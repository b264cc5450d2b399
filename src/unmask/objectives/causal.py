"""CausalLM: predict every token of a text from those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.next_token import NextToken
from unmask.objectives.objective import Objective
from unmask.types import Document, Example


class CausalLM(NextToken):
    """A language model: p(y1 .. yn, end) = product of p(y_t | start, y1 .. y_t-1).

    A document is read from `start`. If it is longer than a row, the next row continues the text, but from an empty
    state. Every token is predicted once. The pieces of a corpus, of some thousand tokens, count as documents.

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

    def expected_counts(self, splits: Sequence[Split], vocabulary: int, length: int) -> np.ndarray:
        """[V] the counts of the tokens, with `end` once for each document."""
        counts = super().expected_counts(splits, vocabulary, length)
        counts[self.end] += sum(split.documents for split in splits)
        return counts


@dataclass(frozen=True, kw_only=True)
class CausalLMConfig(ObjectiveConfig):
    """Predict every token from those before it: a causal language model."""

    kind = "causal"
    learned = "next tokens"
    example = "gpt-tiny"
    objective = CausalLM
    requires = frozenset({"causal"})
    pipeline = "text-generation"
    command = ("generate", '"A text"')
    choices = (("written", "next"),)

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        return CausalLM(tokenizer.cls, tokenizer.sep)

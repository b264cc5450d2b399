"""SequenceAutoencoder: read a text, then reconstruct it (Dai & Le 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.objectives.causal import CausalLM
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.objective import Objective
from unmask.objectives.sequences import runs
from unmask.types import Document, Example


class SequenceAutoencoder(CausalLM):
    """Read a sequence, then write it again (Dai & Le 2015, section 2): start x1 .. xn end x1 .. xn. The targets
    are the second half and its end.

    One network does both, so it reconstructs the text from its state at the first `end` alone. Fine-tuning uses this
    state as the summary of a text.

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


@dataclass(frozen=True, kw_only=True)
class AutoencoderConfig(ObjectiveConfig):
    """Read a sequence, then write it again (a sequence autoencoder, Dai & Le 2015).

    short  share of the sequences that aim at a random shorter length
    """

    short: float = 0.1

    kind = "autoencoder"
    learned = "sequence reconstruction"
    example = "lstm-autoencoder"
    objective = SequenceAutoencoder
    requires = frozenset({"causal"})
    pipeline = "text-generation"
    command = ("generate", '"A text"')
    choices = (("written", "again"),)
    off = (("short", 0.0),)

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        return SequenceAutoencoder(tokenizer.cls, tokenizer.sep, short=self.short)

"""SentenceOrder: are two consecutive segments in their order (Lan et al. 2019, section 3.1)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.objectives.objective import Objective, Term
from unmask.objectives.sentence_pair import PairConfig, SentencePair, end_of, example, truncated
from unmask.objectives.sequences import runs, target_length
from unmask.types import Document, Example

IN_ORDER, SWAPPED = 0, 1


class SentenceOrder(SentencePair):
    """Are two consecutive segments in their order (label 0) or swapped (label 1)? (ALBERT, section 3.1)

    A single sentence cannot be a pair: it is kept as one segment without this target.
    """

    name = "sop"
    terms = (Term(name, "sentence order", classes=True),)
    head_labels = ((name, "sentence-order (sop)"),)

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        examples: list[Example] = []
        for document in documents:
            sentences, at = [s for s in document.sentences if len(s)], 0
            while at < len(sentences):
                target = target_length(length - self.frame, self.short, rng)
                end = end_of(sentences, at, target)
                if end - at == 1:
                    alone = runs(sentences[at:end], length - 2)
                    examples.extend(Example(*self.join(run, None, length)) for run in alone)
                else:
                    cut = at + int(rng.integers(1, end - at))
                    pair = (np.concatenate(sentences[at:cut]), np.concatenate(sentences[cut:end]))
                    first, second = truncated(*pair, length - self.frame, rng)
                    label = SWAPPED if rng.random() < 0.5 else IN_ORDER
                    if label == SWAPPED:
                        first, second = second, first
                    examples.append(example(self.join, first, second, self.name, label))
                at = end
        return examples


@dataclass(frozen=True, kw_only=True)
class SentenceOrderConfig(PairConfig):
    """Sentence-order prediction, as in ALBERT."""

    kind = "sentence-order"
    objective = SentenceOrder
    own_heads = frozenset({SentenceOrder.name})
    choices = (("sentences", "order"),)

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        return SentenceOrder(tokenizer.join, short=self.short)

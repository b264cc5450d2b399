"""NextSentence: does one segment follow another (Devlin et al. 2018, section 3.1)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.objectives.objective import Objective, Term
from unmask.objectives.sentence_pair import PairConfig, SentencePair, end_of, example, truncated
from unmask.objectives.sequences import target_length
from unmask.types import Document, Example

NEXT, RANDOM = 0, 1


class NextSentence(SentencePair):
    """Does segment B follow segment A, or does it come from another document? (BERT, section 3.1 and appendix A.2)

    Pairs are filled to the full length with consecutive sentences; one in ten aims at a random shorter length.
    Half of the second segments are the true continuation (label 0). The other half come from another document
    (label 1); the next pair then uses the sentences that they displaced. A pair with only one sentence left always
    gets a random partner, as published. If all pieces in memory come from one document, the random partner comes
    from another piece.
    """

    name = "nsp"
    terms = (Term(name, "next sentence", classes=True),)
    head_labels = ((name, "next-sentence (nsp)"),)

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        documents = [document for document in documents if any(len(s) for s in document.sentences)]
        if len({document.index for document in documents}) < 2:
            # All are pieces of one long document, whose text could not be used if they were no partners for each other.
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
            end = end_of(sentences, at, target)
            cut = at + 1 if end - at == 1 else at + int(rng.integers(1, end - at))
            first = np.concatenate(sentences[at:cut])
            if end - at == 1 or rng.random() < 0.5:
                second, label = _elsewhere(document, documents, target - len(first), rng), RANDOM
                at = cut
            else:
                second, label = np.concatenate(sentences[cut:end]), NEXT
                at = end
            examples.append(example(self.join, *truncated(first, second, room, rng), self.name, label))
        return examples


def _elsewhere(document: Document, documents: Sequence[Document], length: int, rng: np.random.Generator) -> np.ndarray:
    """About `length` tokens from a random place of a random other document."""
    other = document
    while other.index == document.index:
        other = documents[int(rng.integers(len(documents)))]
    begin = int(rng.integers(len(other.sentences)))
    return np.concatenate(other.sentences[begin : end_of(other.sentences, begin, length)])


@dataclass(frozen=True, kw_only=True)
class NextSentenceConfig(PairConfig):
    """Next-sentence prediction, as in BERT."""

    kind = "next-sentence"
    objective = NextSentence
    own_heads = frozenset({NextSentence.name})
    choices = (("sentences", "next"),)

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        return NextSentence(tokenizer.join, short=self.short)

    def check_data(self, splits: Sequence[Split]) -> list[str]:
        if sum(split.documents for split in splits) < 2:
            raise UnmaskError(
                "Next-sentence prediction needs at least two documents to draw from. "
                "Separate them by blank lines, or learn the masked words alone: --sentences none."
            )
        return super().check_data(splits)

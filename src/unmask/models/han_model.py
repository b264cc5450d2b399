"""The forward pass of a hierarchical attention network (`models/han.py`).

Shapes: B rows, T places of a row, N sentences, S words of the longest, C documents, W sentences of the longest, E width
of a state, M places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from unmask.models.stack_model import StackModel
from unmask.nn import Embedding
from unmask.nn.hierarchy import Hierarchy
from unmask.nn.sequences import Sentences
from unmask.types import Batch

if TYPE_CHECKING:
    from unmask.models.han import Han


@dataclass(frozen=True, slots=True, eq=False)
class WordsAndSentences:
    """Where a model looked: weights of attention at the places of a batch, 0 at separators and padding.

    words      [B, T]: of the word in its sentence      sentences  [B, T]: of the word's sentence in its document
    """

    words: Tensor
    sentences: Tensor


class HanModel(StackModel):
    """Reads documents whose sentences are divided by separators; the hidden state of a word is that of the lower level.
    The summary of a document is the vector that attention to its sentences makes."""

    config: Han
    embedding: Embedding
    stack: Hierarchy

    def __init__(self, config: Han, embedding: Embedding, stack: Hierarchy, heads: Mapping[str, nn.Module]) -> None:
        super().__init__(config, embedding, stack, heads=heads)

    def forward(self, batch: Batch) -> Tensor:
        """[B, T, E]: states of the words, zero at separators and padding."""
        words = self.sentences(batch).words
        return words.pack(self.stack.words(words.unpack(self.embedding(batch.tokens)), words.lengths))

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """[M, E]: the vector of the document at each of these places."""
        assert batch is not None, "where sentences end is read off the batch"
        sentences = self.sentences(batch)
        vectors_CE, _, _ = self._read(hidden_BTD, sentences)
        return sentences.at(places_M, vectors_CE)

    def looked(self, batch: Batch) -> WordsAndSentences:
        sentences = self.sentences(batch)
        _, words_NS, sentences_CW = self._read(self(batch), sentences)
        of_sentences_1N = sentences.documents.pack(sentences_CW[..., None]).squeeze(-1)
        weights_N = of_sentences_1N.new_empty(len(sentences.order)).index_copy(0, sentences.order, of_sentences_1N[0])
        whole_NS = weights_N[:, None].expand_as(words_NS)
        words_BT, whole_BT = (sentences.words.pack(x[..., None]).squeeze(-1) for x in (words_NS, whole_NS))
        return WordsAndSentences(words_BT, whole_BT)

    def sentences(self, batch: Batch) -> Sentences:
        return Sentences.of(batch.tokens, batch.documents, self.config.separator)

    def _read(self, hidden_BTE: Tensor, sentences: Sentences) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors of the documents [C, E], and the weights of words [N, S] and of sentences [C, W]."""
        lower, upper = self.stack.words, self.stack.sentences
        vectors_NE, words_NS = lower.pool(sentences.words.unpack(hidden_BTE), sentences.words.lengths)
        lengths_C = sentences.documents.lengths
        vectors_CE, sentences_CW = upper.pool(upper(sentences.beside(vectors_NE), lengths_C), lengths_C)
        return vectors_CE, words_NS, sentences_CW

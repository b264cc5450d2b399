"""Texts as sparse vectors: the words of a text, counted or weighted by TF-IDF.

Shapes: N texts, V words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.data.labelled.words import split_words
from unmask.errors import UnmaskError

UNSPACED = re.compile(
    "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+"
)
"""A character of Thai, Lao, kana or Han, which are written without spaces between words; or a run of others."""


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation; characters for scripts without spaces."""
    found = [word.lower() for word, _ in split_words(text) if any(c.isalnum() for c in word)]
    return found if text.isascii() else [part for word in found for part in UNSPACED.findall(word)]


@dataclass(frozen=True)
class Vocabulary:
    """The words of some texts.

    columns      word -> its column; words in sorted order
    frequencies  [V] number of texts that have each word
    texts        number of texts
    """

    columns: Mapping[str, int]
    frequencies: np.ndarray
    texts: int

    @classmethod
    def of(cls, texts: Sequence[str]) -> Vocabulary:
        """The vocabulary of these texts. Raises UnmaskError for texts without a single word."""
        found = Counter(word for text in texts for word in set(words(text)))
        if not found:
            raise UnmaskError("No training text has a word of letters or digits: there is nothing to count.")
        known = sorted(found)
        return cls({word: i for i, word in enumerate(known)}, np.array([found[word] for word in known]), len(texts))


def counts(texts: Sequence[str], vocabulary: Vocabulary) -> Any:
    """tf [N, V]: how often each word occurs in each text; words that are not in the vocabulary are left out."""
    from scipy.sparse import csr_array

    columns: list[int] = []
    ends = [0]
    for text in texts:
        columns += [vocabulary.columns[word] for word in words(text) if word in vocabulary.columns]
        ends.append(len(columns))
    indices = np.array(columns, np.int32), np.array(ends, np.int32)
    tf = csr_array((np.ones(len(columns)), *indices), shape=(len(texts), len(vocabulary.columns)))
    tf.sum_duplicates()
    return tf


def one_hot(texts: Sequence[str], vocabulary: Vocabulary) -> Any:
    """[N, V]: 1 where a text has a word, else 0."""
    return (counts(texts, vocabulary) > 0).astype(np.float64)


def tf_idf(texts: Sequence[str], vocabulary: Vocabulary) -> Any:
    """[N, V]: tf * idf, each text scaled to length 1, where idf = ln((1 + N) / (1 + df)) + 1 and df of the N texts of
    the vocabulary have the word (Salton & Buckley 1988; smoothed as scikit-learn does)."""
    from scipy.sparse import diags_array

    idf = np.log((1 + vocabulary.texts) / (1 + vocabulary.frequencies)) + 1
    return units(counts(texts, vocabulary) @ diags_array(idf))


def units(vectors_NV: Any) -> Any:
    """The vectors scaled to length 1; a vector of length 0 stays."""
    from scipy.sparse import diags_array

    lengths = np.sqrt((vectors_NV * vectors_NV).sum(axis=1))
    return diags_array(1 / np.where(lengths > 0, lengths, 1)) @ vectors_NV


def products(first_NV: Any, second_NV: Any) -> np.ndarray:
    """The dot product [N] of vectors in the same row; for vectors of length 1, their cosine."""
    return np.asarray((first_NV * second_NV).sum(axis=1))

"""Functions that plain references of several tasks share: words of texts and pairs as features, cosines of texts.

Shapes: N texts or rows, V words, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from unmask.data.labelled.rows import Row
from unmask.tasks.lexical.regression import Answer
from unmask.tasks.lexical.vectors import Vocabulary, one_hot, products, tf_idf, units

Vectors = Callable[[Sequence[str], Vocabulary], Any]

VECTORS: Mapping[str, Vectors] = {"one-hot": one_hot, "tf-idf": tf_idf}

PARTS = "words, and for pairs those that both have and the cosine"
"""The features of a regression on texts or pairs, in words."""


def regression_on_words(
    train: Sequence[Row], vectors: Vectors, learn: Callable[[Any], Answer]
) -> Callable[[Sequence[Row]], list[np.ndarray]]:
    """A function from rows to answers [1, C], by a regression on the words of a text or a pair; `learn` trains it on
    the features [N, F] of the training rows."""
    vocabulary = Vocabulary.of([text for row in train for text in row.texts])
    paired = any(row.pair is not None for row in train)  # decides the columns, for other rows as well
    features = partial(_features, vectors, vocabulary, paired)
    answer = learn(features(train))
    return lambda rows: list(answer(features(rows))[:, None])


def _features(vectors: Vectors, vocabulary: Vocabulary, paired: bool, rows: Sequence[Row]) -> Any:
    """[N, V] for texts; [N, 3 V + 1] for pairs: both texts, the words that they share, and their cosine."""
    from scipy.sparse import csr_array, hstack

    first = vectors([row.text for row in rows], vocabulary)
    if not paired:
        return first
    second = vectors([row.pair or "" for row in rows], vocabulary)
    cosines = products(units(first), units(second))
    return hstack([first, second, first * second, csr_array(cosines[:, None])], format="csr")


def cosines(
    vectors: Vectors, vocabulary: Vocabulary, texts: Sequence[str], others: Sequence[Sequence[str]]
) -> list[np.ndarray]:
    """For each text, its cosines with the texts in the same place of `others`."""
    sizes = [len(group) for group in others]
    first = units(vectors(texts, vocabulary))[np.repeat(np.arange(len(texts)), sizes)]
    second = units(vectors([text for group in others for text in group], vocabulary))
    return np.split(products(first, second), np.cumsum(sizes)[:-1])

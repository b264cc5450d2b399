"""Plain texts to compare with, without a model: the first sentences of a source, a tree that branches to the right, the
target of the most similar source."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from unmask.data.bitext.pairs import Bitext
from unmask.data.text.sentences import sentences

AT_ONCE = 256  # sources that are compared with all known ones at a time


def lead(source: str, count: int) -> str:
    """The first sentences of a text, a line each: the usual reference of summaries, which are often near the beginning
    (Nallapati et al. 2017, SummaRuNNer)."""
    return "\n".join(sentences(source)[:count])


def right_branching(source: str, label: str = "VP") -> str:
    """The tree of a sentence in which each word opens a constituent with all that follow; a last sign is beside them.

    label  label of all constituents but the first, which is S
    """
    words = source.split()
    sign = words[-1:] if words and _is_sign(words[-1]) else []
    words = words[: len(words) - len(sign)]
    opened = [f"({label} XX" for _ in words[1:-1]]
    last = ["XX"] if len(words) > 1 else []
    return " ".join(["(S", *["XX"][: len(words)], *opened, *last, *[f"){label}"] * len(opened), *sign, ")S"])


def nearest(known: Bitext, sources: Sequence[str]) -> list[str]:
    """The target of the known source with the largest cosine to each source, of equal ones the first. The texts are
    counted by characters, and runs of two and three within a word (TF-IDF), in any script."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    pieces = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 3), sublinear_tf=True, dtype=np.float32)
    of_known = pieces.fit_transform(known.sources).T.tocsr()
    found: list[str] = []
    for begin in range(0, len(sources), AT_ONCE):
        cosines = (pieces.transform(sources[begin : begin + AT_ONCE]) @ of_known).toarray()
        found += [known.targets[i] for i in cosines.argmax(1)]
    return found


def _is_sign(word: str) -> bool:
    return all(unicodedata.category(character)[0] in "PS" for character in word)

"""Diversity: distinct n-grams of written texts (Li et al. 2016, "A Diversity-Promoting Objective Function for Neural
Conversation Models")."""

from __future__ import annotations

from collections.abc import Sequence

from unmask.metrics.hypotheses import References, Texts
from unmask.metrics.ngrams import ngrams, tokens
from unmask.metrics.translation import Score


def distinct(n: int, texts: Sequence[str], references: References) -> Score:
    """The number of different n-grams in all texts [N], divided by the number of their tokens, times 100. References
    have no effect; their own score shows what is usual. Raises UnmaskError if there are no texts."""
    rows = [tokens(text) for text in Texts.of(texts, references).hypotheses]
    total = sum(map(len, rows))
    different = len(set().union(*(ngrams(row, n) for row in rows)))
    details = {"different": different, "tokens": total}
    return Score(f"distinct-{n}", 100 * different / total if total else 0.0, "case:mixed|tok:signs", details)

"""Answers that a model writes to questions without a context: exact match and F1, as the SQuAD scripts count them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unmask.metrics.answers import exact_match, token_f1
from unmask.metrics.hypotheses import References, Texts
from unmask.metrics.translation import Score

SCORES: Mapping[str, Callable[[str, Sequence[str]], float]] = {"f1": token_f1, "em": exact_match}
NAMES = tuple(SCORES)


def answer_score(name: str, texts: Sequence[str], references: References) -> Score:
    """The mean of a score of NAMES over all texts [N], times 100, with the best reference of each. Raises UnmaskError
    if there are no texts."""
    found = Texts.of(texts, references)
    rows = zip(found.hypotheses, found.by_sentence, strict=True)
    values = [SCORES[name](text, [one for one in right if one is not None]) for text, right in rows]
    return Score(name.upper(), 100 * sum(values) / len(values), "case:lower|tok:squad", {"questions": len(values)})

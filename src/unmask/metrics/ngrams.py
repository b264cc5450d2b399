"""BLEU as its paper defines it, over words: n-grams that count once each, and the brevity penalty.

Papineni et al. 2002, section 2. A number to report comes from `unmask.metrics.bleu`, which says how it was made; this
is the page to read beside it, and gives the same number for the same words. `docs/bleu.md` works through examples.

A candidate is the words of one translation, its references are the words of one or several right ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from unmask.errors import UnmaskError

Words = Sequence[str]


def ngrams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    """Every n words that stand side by side, and how often they do."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def naive_matches(candidate: Words, references: Sequence[Words], n: int) -> int:
    """How many n-grams of the candidate stand in a reference at all: the count that "the the the" fools."""
    known = {gram for reference in references for gram in ngrams(reference, n)}
    return sum(count for gram, count in ngrams(candidate, n).items() if gram in known)


def clipped_matches(candidate: Words, references: Sequence[Words], n: int) -> int:
    """The same, where an n-gram counts at most as often as in the one reference that has it most often (2.1)."""
    most: Counter[tuple[str, ...]] = Counter()
    for reference in references:
        most |= ngrams(reference, n)  # the larger of both counts
    return (ngrams(candidate, n) & most).total()  # the smaller of both counts


def closest_length(candidate: Words, references: Sequence[Words]) -> int:
    """The length of the reference whose length is nearest to the candidate's; of two as near, the shorter (2.2.2)."""
    return min((len(reference) for reference in references), key=lambda length: (abs(length - len(candidate)), length))


def brevity_penalty(candidate: int, reference: int) -> float:
    """1 where the candidates are longer than the references, else exp(1 - r/c); lengths in words (2.3).

    Precision alone would be highest for a translation that says only what it is sure of.
    """
    if candidate > reference:
        return 1.0
    return math.exp(1 - reference / candidate) if candidate else 0.0


def unsmoothed(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    """Matches divided by totals, for each n; 0 where there is no n-gram."""
    return [match / total if total else 0.0 for match, total in zip(matches, totals, strict=True)]


def exponential(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    """The same, where the first n with no match counts as 1/2 match, the second as 1/4 and so on.

    The smoothing of NIST's mteval-v13a, method 3 of Chen and Cherry 2014, and what sacrebleu does unless told
    otherwise. Where not even a word matches, everything stays 0.
    """
    if not any(matches):
        return unsmoothed(matches, totals)
    credit = 1.0
    precisions = []
    for match, total in zip(matches, totals, strict=True):
        if not match:
            credit /= 2
        precisions.append((match or credit) / total if total else 0.0)
    return precisions


def textbook_bleu(
    candidates: Sequence[Words],
    references: Sequence[Sequence[Words]],
    order: int = 4,
    precisions: Callable[[Sequence[int], Sequence[int]], list[float]] = unsmoothed,
) -> float:
    """BLEU of a corpus, from 0 to 1: the brevity penalty times the geometric mean of the modified precisions (2.3).

    candidates  N lists of words
    references  N lists of one or several lists of words each
    order       the longest n-gram that counts
    precisions  from the matches and totals [order] of the whole corpus: `unsmoothed`, or `exponential`

    Counts are summed over the corpus before anything is divided: BLEU is no mean over sentences.
    Raises UnmaskError where there is nothing to score, numbers differ or a candidate has no reference.
    """
    if len(candidates) != len(references) or not candidates or not all(references):
        raise UnmaskError(
            f"There are {len(candidates)} candidates and {len(references)} lists of references; "
            "BLEU needs one or more candidates, and for each a list with one reference or more."
        )
    pairs = list(zip(candidates, references, strict=True))
    matches = [sum(clipped_matches(*pair, n) for pair in pairs) for n in range(1, order + 1)]
    totals = [sum(ngrams(candidate, n).total() for candidate in candidates) for n in range(1, order + 1)]
    found = precisions(matches, totals)
    if not all(found):
        return 0.0
    mean = math.exp(sum(math.log(precision) for precision in found) / order)
    return brevity_penalty(sum(map(len, candidates)), sum(closest_length(*pair) for pair in pairs)) * mean

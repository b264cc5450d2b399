"""BLEU by the definition in its paper, over words: clipped n-gram matches and the brevity penalty.

Papineni et al. 2002, section 2. To report a score, use `unmask.metrics.bleu`, which adds a signature; this file shows
how BLEU is computed, and returns the same score for the same words. `docs/bleu.md` works through examples.

A candidate is the words of one translation; its references are the words of one or several correct translations.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

from unmask.errors import UnmaskError

Words = Sequence[str]


def tokens(text: str) -> list[str]:
    """The words of a text, and each of its signs, however they are spaced."""
    return re.findall(r"\w+|[^\w\s]", text)


def ngrams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    """The n-grams of some words, with their counts."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def naive_matches(candidate: Words, references: Sequence[Words], n: int) -> int:
    """The number of n-grams of the candidate that occur in any reference; "the the the" has a high count."""
    known = {gram for reference in references for gram in ngrams(reference, n)}
    return sum(count for gram, count in ngrams(candidate, n).items() if gram in known)


def clipped_matches(candidate: Words, references: Sequence[Words], n: int) -> int:
    """As `naive_matches`, but an n-gram counts at most as often as in the reference that has it most often (2.1)."""
    most: Counter[tuple[str, ...]] = Counter()
    for reference in references:
        most |= ngrams(reference, n)  # the larger of both counts
    return (ngrams(candidate, n) & most).total()  # the smaller of both counts


def closest_length(candidate: Words, references: Sequence[Words]) -> int:
    """The reference length that is closest to that of the candidate; for a tie, the shorter one (2.2.2)."""
    return min((len(reference) for reference in references), key=lambda length: (abs(length - len(candidate)), length))


def brevity_penalty(candidate: int, reference: int) -> float:
    """1 if the candidates are longer than the references, else exp(1 - r/c); lengths in words (2.3).

    Without it, a translation could reach a high precision by leaving out everything uncertain.
    """
    if candidate > reference:
        return 1.0
    return math.exp(1 - reference / candidate) if candidate else 0.0


def unsmoothed(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    """Matches divided by totals, for each n; 0 if there is no n-gram."""
    return [match / total if total else 0.0 for match, total in zip(matches, totals, strict=True)]


def exponential(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    """As `unsmoothed`, but the first n without a match counts as 1/2 match, the second as 1/4 and so on.

    This is the smoothing of NIST's mteval-v13a, method 3 of Chen and Cherry 2014, and the default of sacrebleu. If no
    word matches, all precisions stay 0.
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
    order       length of the longest n-gram that counts
    precisions  `unsmoothed` or `exponential`: computes the precisions from the matches and totals [order] of the corpus

    Counts are summed over the corpus before the division: BLEU is not a mean over sentences. Raises UnmaskError if
    there is nothing to score, numbers differ, or a candidate has no reference.
    """
    if len(candidates) != len(references) or not candidates or not all(references):
        raise UnmaskError(
            f"There are {len(candidates)} candidates and {len(references)} lists of references; "
            "BLEU needs at least one candidate, and a list of at least one reference for each."
        )
    pairs = list(zip(candidates, references, strict=True))
    matches = [sum(clipped_matches(*pair, n) for pair in pairs) for n in range(1, order + 1)]
    totals = [sum(ngrams(candidate, n).total() for candidate in candidates) for n in range(1, order + 1)]
    found = precisions(matches, totals)
    if not all(found):
        return 0.0
    mean = math.exp(sum(math.log(precision) for precision in found) / order)
    return brevity_penalty(sum(map(len, candidates)), sum(closest_length(*pair) for pair in pairs)) * mean

"""ROUGE of summaries: overlaps of words with a reference (Lin 2004).

A text is read as lower-cased runs of letters and digits, without stemming. Texts in ASCII have the scores of Google's
`rouge-score`, which drops all other letters; here they belong to words. Scores are F1 from 0 to 100, the means over
summaries; of several references, the one with the best F1 counts.

Shapes: M words of a reference, N words of a summary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from unmask.metrics.hypotheses import References, Texts
from unmask.metrics.ngrams import ngrams
from unmask.metrics.translation import Score

WORD = re.compile(r"[^\W_]+")
SIGNATURE = "f1|case:lower|stem:no|refs:best"

Words = Sequence[str]


class Overlap(NamedTuple):
    """The share of the summary that is right, and the share of the reference that it has, from 0 to 1."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def words(text: str) -> list[str]:
    """Lower-cased runs of letters and digits."""
    return WORD.findall(text.lower())


def of_ngrams(summary: str, reference: str, n: int) -> Overlap:
    """ROUGE-N (section 2): common n-grams, each as often as the text has it that has it less often."""
    said, true = ngrams(words(summary), n), ngrams(words(reference), n)
    common = (said & true).total()
    return Overlap(common / max(said.total(), 1), common / max(true.total(), 1))


def of_sequences(summary: str, reference: str) -> Overlap:
    """ROUGE-L (section 3.1): the words of a longest common subsequence, which need not be neighbours."""
    said, true = words(summary), words(reference)
    common = len(common_places(true, said))
    return Overlap(common / max(len(said), 1), common / max(len(true), 1))


def of_lines(summary: str, reference: str) -> Overlap:
    """ROUGE-Lsum (section 3.2): each line is a sentence. Of a sentence of the reference count the words that it has in
    common, as a subsequence, with any line of the summary; a word of the summary counts once."""
    said, true = ([words(line) for line in text.split("\n") if line] for text in (summary, reference))
    left, wanted = (Counter(word for line in lines for word in line) for lines in (said, true))
    sizes, common = (left.total(), wanted.total()), 0
    for line in true:
        for place in sorted(set().union(*(common_places(line, other) for other in said))):
            word = line[place]
            if left[word] and wanted[word]:
                left[word] -= 1
                wanted[word] -= 1
                common += 1
    return Overlap(common / max(sizes[0], 1), common / max(sizes[1], 1))


def common_places(reference: Words, summary: Words) -> list[int]:
    """The places of the reference that are in a longest common subsequence, in descending order. Of several such
    subsequences, it is the one that the reference implementation chooses, on which ROUGE-Lsum depends."""
    M, N = len(reference), len(summary)
    length = np.zeros((M + 1, N + 1), np.int64)  # of a longest common subsequence of the first words of both
    for m in range(M):
        for n in range(N):
            same = reference[m] == summary[n]
            length[m + 1, n + 1] = length[m, n] + 1 if same else max(length[m, n + 1], length[m + 1, n])
    places, m, n = [], M, N
    while m and n:
        if reference[m - 1] == summary[n - 1]:
            m, n = m - 1, n - 1
            places.append(m)
        elif length[m, n - 1] > length[m - 1, n]:
            n -= 1
        else:
            m -= 1
    return places


KINDS: dict[str, Callable[[str, str], Overlap]] = {
    "rouge1": lambda summary, reference: of_ngrams(summary, reference, 1),
    "rouge2": lambda summary, reference: of_ngrams(summary, reference, 2),
    "rougeL": of_sequences,
    "rougeLsum": of_lines,
}
"""Name, as in `rouge-score` -> the overlap of a summary with a reference."""


def rouge(kind: str, summaries: Sequence[str], references: References) -> Score:
    """The mean F1 of summaries [N] with their references, times 100.

    kind  one of KINDS

    Raises UnmaskError if there is nothing to score, and if numbers of lines differ.
    """
    texts, overlap = Texts.of(summaries, references), KINDS[kind]
    pairs = zip(texts.hypotheses, texts.by_sentence, strict=True)
    best = [max((overlap(said, true) for true in trues), key=lambda one: one.f1) for said, trues in pairs]
    details = {name: 100 * float(np.mean([getattr(one, name) for one in best])) for name in Overlap._fields}
    value = 100 * float(np.mean([one.f1 for one in best]))
    return Score(f"ROUGE-{kind.removeprefix('rouge')}", value, SIGNATURE, {**texts.counts, **details})

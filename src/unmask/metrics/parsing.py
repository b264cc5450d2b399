"""Parsing: labelled precision, recall and F1 of constituents, as `evalb` counts them with its parameters COLLINS.prm.

A tree is the text that a model writes (Vinyals et al. 2015): `(NP` opens a constituent, `)NP` closes it,
and anything else is the tag of a word: `(S (NP XX )NP (VP XX )VP . )S`. Two constituents are equal if they have the
same label and the same words. Words whose tag in the reference is punctuation are not counted; labels lose what follows
`-` or `=`, and ADVP and PRT are one label (evalb, by Sekine and Collins).

Any text is read as a tree: a closing bracket closes the last open constituent, one too many is ignored, and open
constituents end with the text. Words beyond those of the reference are dropped, and missing ones are in no constituent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from unmask.errors import unknown
from unmask.metrics.hypotheses import References, Texts
from unmask.metrics.translation import Score

UNCOUNTED = frozenset({",", ":", "``", "''", "."})
"""Tags of words that are not counted."""
NOT_LABELS = UNCOUNTED | {"TOP"}
SAME = {"PRT": "ADVP"}
SIGNATURE = "labelled|params:COLLINS"

Constituents = Counter[tuple[str, int, int]]
"""Label, first word and the word after the last -> how often a tree has it."""


class Parse(NamedTuple):
    """A tree: the tags of its words, its constituents (label, begin, end), and whether its brackets are balanced and
    labels agree."""

    tags: list[str]
    constituents: list[tuple[str, int, int]]
    sound: bool


def read(text: str) -> Parse:
    """The tree that a text writes."""
    tags: list[str] = []
    waiting: list[tuple[str, int]] = []
    found: list[tuple[str, int, int]] = []
    sound = True
    for token in text.split():
        if token.startswith("("):
            waiting.append((token[1:], len(tags)))
        elif not token.startswith(")"):
            tags.append(token)
        elif waiting:
            label, begin = waiting.pop()
            found.append((label, begin, len(tags)))
            sound = sound and label == token[1:]
        else:
            sound = False
    ends = [(label, begin, len(tags)) for label, begin in waiting]
    return Parse(tags, found + ends, sound and not waiting)


def counted(tree: Parse, tags: Sequence[str]) -> Constituents:
    """The constituents of a tree that count; `tags` are those of the reference, which decide on the words."""
    places = [0, *accumulate(tag not in UNCOUNTED for tag in tags)]  # of each word among those that count
    found: Constituents = Counter()
    for name, *ends in tree.constituents:
        begin, end = (places[min(place, len(tags))] for place in ends)
        label = re.split("[-=]", name, maxsplit=1)[0]
        if begin < end and label not in NOT_LABELS:
            found[SAME.get(label, label), begin, end] += 1
    return found


class Matches(NamedTuple):
    """Constituents of texts and of their references, and those in both; sentences that are complete, and sound."""

    common: int
    written: int
    true: int
    complete: float
    sound: float

    @property
    def precision(self) -> float:
        return self.common / self.written if self.written else 0.0

    @property
    def recall(self) -> float:
        return self.common / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.common / (self.written + self.true) if self.common else 0.0


def matches(texts: Sequence[str], references: References) -> Matches:
    """The matches of trees [N] with their references, the first one of each; counts are sums over all sentences.

    complete  share of the trees with all constituents of the reference and no other
    sound     share of the texts that needed no repair: brackets that are balanced, as many words as the reference

    Raises UnmaskError if there is nothing to score, and if numbers of lines differ.
    """
    both = Texts.of(texts, references)
    common = written = true = complete = sound = 0
    for text, (reference, *_) in zip(both.hypotheses, both.by_sentence, strict=True):
        said, right = read(text), read(reference)
        found, wanted = counted(said, right.tags), counted(right, right.tags)
        common += (found & wanted).total()
        written, true = written + found.total(), true + wanted.total()
        complete += found == wanted
        sound += said.sound and len(said.tags) == len(right.tags)
    return Matches(common, written, true, complete / len(texts), sound / len(texts))


NAMES = {"f1": "F1", "precision": "precision", "recall": "recall", "complete": "complete", "sound": "sound"}


def parsing(kind: str, texts: Sequence[str], references: References) -> Score:
    """One of NAMES, times 100; for the arguments and errors see `matches`. Raises UnmaskError for another kind."""
    if kind not in NAMES:
        raise unknown("score of parses", kind, NAMES)
    found = matches(texts, references)
    details = {"common": found.common, "written": found.written, "true": found.true}
    return Score(NAMES[kind], 100 * float(getattr(found, kind)), SIGNATURE, details)

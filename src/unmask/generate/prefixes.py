"""Decoding of outputs trained by connectionist temporal classification: the labels of each frame, or the most probable
transcripts, by a search over prefixes with a language model (Graves et al. 2006; Hannun et al. 2014).

Shapes: F frames of a recording, S labels of a transcript, C labels and the blank, L = 2 S + 1 states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from unmask.errors import UnmaskError

LOWEST = -math.inf
LanguageModel = Callable[[tuple[str, ...], bool], float]
"""(words, whether the text ends after them) -> their log probability in nats, as the beginning of a text or as all of
it."""


class Found(NamedTuple):
    """A transcript that a search found.

    labels  [S]
    log_p   log of its probability, by the alignments that the search has kept, in nats
    score   `log_p`, and the share of the language model
    """

    labels: tuple[int, ...]
    log_p: float
    score: float


@dataclass(frozen=True)
class Fusion:
    """A language model over words, which adds weight * log p(words) + bonus * words to log p(labels) (Hannun et al.
    2014, equation 2).

    pieces  text of each label
    space   the label between words
    """

    log_p: LanguageModel
    pieces: Sequence[str]
    space: int
    weight: float = 0.5
    bonus: float = 1.0

    def score(self, words: tuple[str, ...], ends: bool = False) -> float:
        """The share of these words in the score of a transcript."""
        return self.weight * self.log_p(words, ends) + self.bonus * len(words) if words or ends else 0.0


def most_likely(log_p_FC: np.ndarray, blank: int) -> tuple[int, ...]:
    """The labels [S] of the most probable alignment: the most probable label of each frame, without repetitions, then
    without blanks ("best path decoding", Graves et al. 2006, section 3.2)."""
    return tuple(label for label, _ in groupby(log_p_FC.argmax(-1).tolist()) if label != blank)


def stretches(log_p_FC: np.ndarray, blank: int, longest: int) -> Iterator[range]:
    """Ranges of at most `longest` frames, which follow each other and cover all: each ends in the middle of the longest
    pause of its second half, of frames whose most probable label is the blank; without one, after `longest` frames."""
    pauses_F = log_p_FC.argmax(-1) == blank
    begin = 0
    while len(pauses_F) - begin > longest:
        first = begin + longest // 2
        runs = [(is_pause, len(list(run))) for is_pause, run in groupby(pauses_F[first : begin + longest].tolist())]
        ends = first + np.cumsum([size for _, size in runs])
        size, end = max(
            ((size, int(end)) for (is_pause, size), end in zip(runs, ends, strict=True) if is_pause),
            default=(0, begin + longest),
        )
        yield range(begin, end - size // 2)
        begin = end - size // 2
    yield range(begin, len(pauses_F))


def search(
    log_p_FC: np.ndarray, blank: int, beams: int = 16, fusion: Fusion | None = None, *, floor: float = -12.0
) -> list[Found]:
    """The best transcripts, the first the best, by a beam search over prefixes (Hannun et al. 2014, algorithm 1).

    Alignments of one prefix are summed. The language model scores a word when it ends.

    beams  prefixes that are kept after each frame
    floor  log probability below which a label at a frame is not tried; -inf: every label is

    Raises UnmaskError for less than one beam.
    """
    if beams < 1:
        raise UnmaskError(f"The search needs at least 1 beam, not {beams}.")
    prefixes = _Prefixes(fusion)
    # prefix -> log probability of its alignments that end with a blank, and of those that end with its last label
    kept: dict[int, tuple[float, float]] = {0: (0.0, LOWEST)}
    for log_p_C in log_p_FC:
        log_p = log_p_C.tolist()
        tried = [label for label in np.flatnonzero(log_p_C >= floor).tolist() if label != blank]
        found: dict[int, tuple[float, float]] = {}
        for prefix, (with_blank, with_label) in kept.items():
            total, last = _sum(with_blank, with_label), prefixes.last[prefix]
            stays = with_label + log_p[last] if last is not None else LOWEST
            before = found.get(prefix, (LOWEST, LOWEST))
            found[prefix] = (_sum(before[0], total + log_p[blank]), _sum(before[1], stays))
            for label in tried:
                extends = (with_blank if label == last else total) + log_p[label]
                if extends > LOWEST:  # a label is repeated only after a blank
                    longer = prefixes.extended(prefix, label)
                    before = found.get(longer, (LOWEST, LOWEST))
                    found[longer] = (before[0], _sum(before[1], extends))
        if len(found) > beams:
            best = sorted(found, key=lambda prefix: -_sum(*found[prefix]) - prefixes.score[prefix])[:beams]
            found = {prefix: found[prefix] for prefix in best}
        kept = found
    ends = ((prefix, _sum(*parts)) for prefix, parts in kept.items())
    all_found = [Found(prefixes.labels(prefix), p, p + prefixes.ended(prefix)) for prefix, p in ends]
    return sorted(all_found, key=lambda one: -one.score)


class _Prefixes:
    """A tree of prefixes by numbers, with the share of the language model in the score of each; 0 is the empty one."""

    def __init__(self, fusion: Fusion | None) -> None:
        self.fusion = fusion
        self.parent: list[int] = [0]
        self.last: list[int | None] = [None]
        self.score: list[float] = [0.0]
        self._words: list[tuple[tuple[str, ...], str]] = [((), "")]  # complete words, and the beginning of the next one
        self._children: dict[tuple[int, int], int] = {}

    def extended(self, prefix: int, label: int) -> int:
        """The prefix with one more label."""
        number = self._children.setdefault((prefix, label), len(self.parent))
        if number == len(self.parent):
            self.parent.append(prefix)
            self.last.append(label)
            words, score = self._words[prefix], self.score[prefix]
            if self.fusion is not None:
                complete, begun = words
                if label != self.fusion.space:
                    words = (complete, begun + self.fusion.pieces[label])
                elif begun:
                    words = ((*complete, begun), "")
                    score = self.fusion.score(words[0])
            self._words.append(words)
            self.score.append(score)
        return number

    def ended(self, prefix: int) -> float:
        """The share of the language model in the score of a whole transcript."""
        if self.fusion is None:
            return 0.0
        complete, begun = self._words[prefix]
        return self.fusion.score((*complete, begun) if begun else complete, ends=True)

    def labels(self, prefix: int) -> tuple[int, ...]:
        found = []
        while prefix:
            last = self.last[prefix]
            assert last is not None
            found.append(last)
            prefix = self.parent[prefix]
        return tuple(found[::-1])


def _sum(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == LOWEST else a + math.log1p(math.exp(b - a))


def alignment(log_p_FC: np.ndarray, labels: Sequence[int], blank: int) -> list[range]:
    """The frames of each label in the most probable alignment of a transcript (Viterbi 1967).

    Raises UnmaskError for a transcript that needs more frames.
    """
    states_L = np.full(2 * len(labels) + 1, blank)
    states_L[1::2] = labels
    skips_L = (states_L != blank) & (states_L != np.roll(states_L, 2))
    skips_L[:2] = False
    scores_FL = log_p_FC[:, states_L].astype(np.float64)
    best_L = np.full(len(states_L), LOWEST)
    best_L[:2] = scores_FL[0, :2]
    came_FL = np.zeros(scores_FL.shape, np.int64)
    for f in range(1, len(scores_FL)):
        moves_3L = np.full((3, len(states_L)), LOWEST)
        moves_3L[0] = best_L
        moves_3L[1, 1:] = best_L[:-1]
        moves_3L[2, 2:] = best_L[:-2]
        moves_3L[2, ~skips_L] = LOWEST
        came_FL[f] = moves_3L.argmax(0)
        best_L = moves_3L.max(0) + scores_FL[f]
    state = len(states_L) - 1
    if labels and best_L[-2] > best_L[-1]:
        state -= 1
    if best_L[state] == LOWEST:
        raise UnmaskError(f"A transcript of {len(labels)} labels does not fit into {len(scores_FL)} frames.")
    path = [state]
    for f in range(len(scores_FL) - 1, 0, -1):
        path.append(path[-1] - came_FL[f, path[-1]])
    places = np.array(path[::-1])
    begins, ends = (np.searchsorted(places, 2 * np.arange(len(labels)) + 1, side) for side in ("left", "right"))
    return [range(begin, end) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

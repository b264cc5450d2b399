"""Pieces of text for the networks of word2vec: subsampling, and the sets of codes of successive visits, as loops for
numba.

Shapes: V words, N words of a job. The functions are plain Python, and run as such; `compiled.py` compiles them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

MULTIPLIER, INCREMENT, MASK = 25_214_903_917, 11, (1 << 48) - 1
"""The linear congruential generator of POSIX `drand48`: 48 bits of state; the upper 32 are used."""


class Job(NamedTuple):
    """A piece of text, and the settings of its training.

    words_N  [N] int32 ids of whole sentences        ends   [S] int64: end of each sentence in `words_N`
    keep_V   [V] int64, times 2**32: probability that an occurrence of a word is kept
    window   largest window; that of each word is drawn from 1 to it, so that near neighbours count more
    alpha    learning rate                           state  state of the generator, below 2**48
    span     0: words are in order. Otherwise sentences are visits, and the context of a word is all other words of each
             `span` successive visits (`unions`)
    """

    words_N: np.ndarray
    ends: np.ndarray
    keep_V: np.ndarray
    window: int
    alpha: float
    state: int
    span: int = 0


def random(state: int) -> int:
    """The next state of the generator; `state >> 16` has 32 random bits."""
    return (state * MULTIPLIER + INCREMENT) & MASK


def subsample(job: Job) -> tuple[int, Any, Any]:
    """The state of the generator, [N] the words that are kept, and the ends of their sentences."""
    kept_N, kept_ends = np.empty_like(job.words_N), np.empty_like(job.ends)
    state, count, begin = job.state, 0, 0
    for sentence in range(job.ends.shape[0]):
        for i in range(begin, job.ends[sentence]):
            state = random(state)
            if (state >> 16) < job.keep_V[job.words_N[i]]:
                kept_N[count] = job.words_N[i]
                count += 1
        begin = job.ends[sentence]
        kept_ends[sentence] = count
    return state, kept_N, kept_ends


def unions(words_N: Any, ends: Any, span: int) -> tuple[Any, Any]:
    """The different words of each `span` successive sentences, and the ends of these sets. An empty sentence stands
    between two patients; the first and the last sets of a patient have fewer sentences, so that words of sentences at
    distance d are together in `span` - d sets."""
    sets_N, set_ends = np.empty(span * words_N.shape[0], np.int32), np.empty(span * (ends.shape[0] + 1), np.int64)
    count, number, first, total = 0, 0, 0, ends.shape[0]
    while first < total:
        last = first  # the sentences of this patient are first ... last - 1
        while last < total and ends[last] > (ends[last - 1] if last else 0):
            last += 1
        for begin in range(first - span + 1, last):
            opened = count
            low, high = max(begin, first), min(begin + span, last)
            for i in range(ends[low - 1] if low else 0, ends[high - 1] if high else 0):
                known = False
                for j in range(opened, count):
                    known = known or sets_N[j] == words_N[i]
                if not known:
                    sets_N[count] = words_N[i]
                    count += 1
            set_ends[number] = count
            number += 1
        first = last + 1
    return sets_N[:count], set_ends[:number]


def contexts(job: Job) -> tuple[int, Any, Any, int]:
    """The state of the generator, the words that are predicted, the ends of their sentences or sets, and the number of
    words that subsampling kept."""
    state, kept_N, kept_ends = subsample(job)
    left = kept_ends[-1] if kept_ends.shape[0] else 0
    if job.span:
        kept_N, kept_ends = unions(kept_N[:left], kept_ends, job.span)
    return state, kept_N, kept_ends, left

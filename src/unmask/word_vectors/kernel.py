"""The two networks of word2vec and the one update that both make: skip-gram and CBOW as loops that numba compiles.

Shapes: V words, D numbers of a vector, R rows of the output layer (V with negative sampling, V - 1 with a Huffman
tree), N words of a job. The functions are plain Python and run as such; `compiled.py` makes machine code of
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unmask.word_vectors.sampling import Output

MULTIPLIER, INCREMENT, MASK = 25_214_903_917, 11, (1 << 48) - 1
"""The linear congruential generator of POSIX `drand48`: 48 bits of state, of which the upper 32 are used."""

REACH, STEPS = 16.0, 4_096
LOGISTIC = (1 / (1 + np.exp(REACH - np.arange(STEPS + 2) * (2 * REACH / STEPS)))).astype(np.float32)
"""The logistic function at even distances from -REACH to REACH, and one beyond; there it is 0 or 1 to 2e-7."""


def update(h_D: Any, outputs_RD: Any, rows: Any, labels: Any, count: int, alpha: float, error_D: Any) -> None:
    """One step of `count` logistic regressions on the vector h: the gradient of all of word2vec.

    The loss is -sum_k [y_k log s(u_k . h) + (1 - y_k) log s(-u_k . h)], s the logistic function (Mikolov et al. 2013b,
    equation 4 for negative sampling, equation 3 for the hierarchical softmax). With g_k = alpha (y_k - s(u_k . h)):

        error <- sum_k g_k u_k     the step for h, which the caller makes
        u_k   <- u_k + g_k h       made here, one row after the other
    """
    for d in range(h_D.shape[0]):
        error_D[d] = 0.0
    for k in range(count):
        u_D = outputs_RD[rows[k]]
        dot = np.float32(0.0)
        for d in range(h_D.shape[0]):
            dot += u_D[d] * h_D[d]
        g = np.float32(alpha * (labels[k] - sigmoid(dot)))
        for d in range(h_D.shape[0]):
            error_D[d] += g * u_D[d]
            u_D[d] += g * h_D[d]


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) to 1e-6: a straight line between two entries of a table, for exp is a seventh of the time."""
    place = (min(max(x, -REACH), REACH) + REACH) * (STEPS / (2 * REACH))
    left = min(max(int(place), 0), STEPS)  # again, for what is not a number passes by the limits above
    return LOGISTIC[left] + (place - left) * (LOGISTIC[left + 1] - LOGISTIC[left])


def random(state: int) -> int:
    """The next state of the generator; `state >> 16` are 32 random bits."""
    return (state * MULTIPLIER + INCREMENT) & MASK


def questions(word: int, output: Output, state: int, rows: Any, labels: Any) -> tuple[int, int]:
    """Write the rows and labels of one prediction of `word`; returns how many, and the state of the generator.

    Noise that happens to be the word itself is left out.
    """
    count = 0
    for k in range(output.offsets[word], output.offsets[word + 1]):
        rows[count] = output.rows[k]
        labels[count] = output.labels[k]
        count += 1
    for _ in range(output.negative):
        state = random(state)
        column = ((state >> 16) * output.alias.shape[0]) >> 32
        state = random(state)
        drawn = column if (state >> 16) < output.threshold[column] else output.alias[column]
        if drawn != word:
            rows[count] = drawn
            labels[count] = 0.0
            count += 1
    return count, state


def take(outputs_RD: Any, rows: Any, count: int, taken_KD: Any, before_KD: Any) -> None:
    """Copy `count` rows twice, for steps that no other thread sees until `put_back` adds them.

    Near the root of a tree all threads write to the same few rows, and each write takes a row from the caches of the
    other cores: without copies, four threads are no faster than one.
    """
    for k in range(count):
        u_D = outputs_RD[rows[k]]
        for d in range(u_D.shape[0]):
            taken_KD[k, d] = before_KD[k, d] = u_D[d]


def put_back(outputs_RD: Any, rows: Any, count: int, taken_KD: Any, before_KD: Any) -> None:
    """Add the steps that the copies made to the rows, which keep what other threads did to them meanwhile."""
    for k in range(count):
        u_D = outputs_RD[rows[k]]
        for d in range(u_D.shape[0]):
            u_D[d] += taken_KD[k, d] - before_KD[k, d]


def subsample(words_N: Any, ends: Any, keep_V: Any, state: int, kept_N: Any, kept_ends: Any) -> int:
    """Copy the words that stay, and where their sentences then end; returns the state of the generator.

    keep_V  [V] int64, of 2**32: a word stays where 32 random bits are below it
    """
    count = begin = 0
    for sentence in range(ends.shape[0]):
        for i in range(begin, ends[sentence]):
            state = random(state)
            if (state >> 16) < keep_V[words_N[i]]:
                kept_N[count] = words_N[i]
                count += 1
        begin = ends[sentence]
        kept_ends[sentence] = count
    return state


def skip_gram(
    words_N: Any,
    ends: Any,
    keep_V: Any,
    inputs_VD: Any,
    outputs_RD: Any,
    output: Output,
    longest: int,
    window: int,
    alpha: float,
    state: int,
) -> int:
    """Train on one job: each word is predicted from each of its neighbours alone (Mikolov et al. 2013a, figure 1).

    words_N    [N] int32 ids of whole sentences         ends   [S] int64: where each of them ends in `words_N`
    longest    most rows that one prediction asks       alpha  the learning rate
    window     the furthest neighbour; how far a word looks is drawn from 1 to it, so that near ones count more
    state      of the generator, below 2**48

    Changes inputs and outputs in place; returns how many words were left by the subsampling. The paper predicts the
    neighbour from the word; the released code the word from the neighbour, as here: it visits the same pairs.
    """
    kept_N, kept_ends = np.empty(words_N.shape[0], np.int32), np.empty(ends.shape[0], np.int64)
    rows, labels = np.empty(longest, np.int32), np.empty(longest, np.float32)
    dim, fixed = inputs_VD.shape[1], output.negative == 0
    error_D = np.empty(dim, np.float32)
    taken_KD, before_KD = np.empty((longest, dim), np.float32), np.empty((longest, dim), np.float32)
    every = np.arange(longest)  # row of the copies
    state = subsample(words_N, ends, keep_V, state, kept_N, kept_ends)
    begin = 0
    for end in kept_ends:
        for i in range(begin, end):
            state = random(state)
            reach = 1 + (state >> 16) % window
            if fixed:  # all neighbours are asked the same of the word
                count, state = questions(kept_N[i], output, state, rows, labels)
                take(outputs_RD, rows, count, taken_KD, before_KD)
            for j in range(max(begin, i - reach), min(end, i + reach + 1)):
                if j != i:
                    h_D = inputs_VD[kept_N[j]]
                    if fixed:
                        update(h_D, taken_KD, every, labels, count, alpha, error_D)
                    else:
                        count, state = questions(kept_N[i], output, state, rows, labels)
                        update(h_D, outputs_RD, rows, labels, count, alpha, error_D)
                    for d in range(dim):
                        h_D[d] += error_D[d]
            if fixed:
                put_back(outputs_RD, rows, count, taken_KD, before_KD)
        begin = end
    return begin


def cbow(
    words_N: Any,
    ends: Any,
    keep_V: Any,
    inputs_VD: Any,
    outputs_RD: Any,
    output: Output,
    longest: int,
    window: int,
    alpha: float,
    state: int,
) -> int:
    """Train on one job: each word is predicted from the mean of its neighbours (Mikolov et al. 2013a, figure 1).

    Arguments and result are those of `skip_gram`. Each neighbour takes the whole step for the mean, as in the released
    code, and not its share of it.
    """
    kept_N, kept_ends = np.empty(words_N.shape[0], np.int32), np.empty(ends.shape[0], np.int64)
    rows, labels = np.empty(longest, np.int32), np.empty(longest, np.float32)
    dim = inputs_VD.shape[1]
    h_D, error_D = np.empty(dim, np.float32), np.empty(dim, np.float32)
    state = subsample(words_N, ends, keep_V, state, kept_N, kept_ends)
    begin = 0
    for end in kept_ends:
        for i in range(begin, end):
            state = random(state)
            reach = 1 + (state >> 16) % window
            first, last = max(begin, i - reach), min(end, i + reach + 1)
            if last - first == 1:
                continue
            for d in range(dim):
                h_D[d] = 0.0
            share = np.float32(1.0 / (last - first - 1))
            for j in range(first, last):
                if j != i:
                    neighbour_D = inputs_VD[kept_N[j]]
                    for d in range(dim):
                        h_D[d] += share * neighbour_D[d]
            count, state = questions(kept_N[i], output, state, rows, labels)
            update(h_D, outputs_RD, rows, labels, count, alpha, error_D)
            for j in range(first, last):
                if j != i:
                    neighbour_D = inputs_VD[kept_N[j]]
                    for d in range(dim):
                        neighbour_D[d] += error_D[d]
        begin = end
    return begin


NETWORKS: dict[str, Callable[..., int]] = {"skip-gram": skip_gram, "cbow": cbow}
PARTS = (update, sigmoid, random, questions, take, put_back, subsample)
"""What the networks call."""

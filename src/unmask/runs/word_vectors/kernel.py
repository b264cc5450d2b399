"""The two networks of word2vec, skip-gram and CBOW, and their common update, as loops for numba.

Shapes: V words, D numbers of a vector, R rows of the output layer (V with negative sampling, V - 1 with a Huffman
tree), N words of a job. The functions are plain Python, and run as such; `compiled.py` compiles them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unmask.runs.word_vectors.jobs import Job, contexts, random, subsample, unions
from unmask.runs.word_vectors.sampling import Output
from unmask.runs.word_vectors.softmax import choose

REACH, STEPS = 16.0, 4_096
LOGISTIC = (1 / (1 + np.exp(REACH - np.arange(STEPS + 2) * (2 * REACH / STEPS)))).astype(np.float32)
"""The logistic function at equal distances from -REACH to REACH, and one beyond; there it is 0 or 1 up to 2e-7."""


def update(h_D: Any, outputs_RD: Any, rows: Any, labels: Any, count: int, alpha: float, error_D: Any) -> None:
    """One step of `count` logistic regressions on the vector h.

    The loss is -sum_k [y_k log s(u_k . h) + (1 - y_k) log s(-u_k . h)], s the logistic function (Mikolov et al. 2013b,
    equation 4 for negative sampling, equation 3 for the hierarchical softmax). With g_k = alpha (y_k - s(u_k . h)):

        error <- sum_k g_k u_k     the step for h, which the caller adds to h
        u_k   <- u_k + g_k h       done here, one row after the other
    """
    error_D[:] = 0.0
    for k in range(count):
        u_D = outputs_RD[rows[k]]
        dot = np.float32(0.0)
        for d in range(h_D.shape[0]):
            dot += u_D[d] * h_D[d]
        g = np.float32(alpha * (labels[k] - sigmoid(dot)))
        for d in range(h_D.shape[0]):
            error_D[d] += g * u_D[d]
            u_D[d] += g * h_D[d]


def predict(
    h_D: Any, outputs_RD: Any, word: int, alpha: float, output: Output, state: int, rows: Any, labels: Any, error_D: Any
) -> int:
    """One step of a prediction of `word` from h, by the output layer; returns the state of the generator."""
    if output.softmax:
        choose(h_D, outputs_RD, word, alpha, labels, error_D)
        return state
    count, state = questions(word, output, state, rows, labels)
    update(h_D, outputs_RD, rows, labels, count, alpha, error_D)
    return state


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) up to 1e-6, by interpolation in a table, because exp would take a seventh of the time."""
    place = (min(max(x, -REACH), REACH) + REACH) * (STEPS / (2 * REACH))
    left = min(max(int(place), 0), STEPS)  # clipped again, because NaN passes the limits above
    return LOGISTIC[left] + (place - left) * (LOGISTIC[left + 1] - LOGISTIC[left])


def questions(word: int, output: Output, state: int, rows: Any, labels: Any) -> tuple[int, int]:
    """Write the rows and labels of one prediction of `word`; returns their number, and the state of the generator.

    Noise that equals the word itself is left out.
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


def take(outputs_RD: Any, rows: Any, count: int, copies_2KD: Any) -> None:
    """Copy rows twice. The first copies are updated, unseen by other threads until `put_back` adds the updates. All
    threads write to the few rows near the root of a tree, and each write to one clears it from the other caches."""
    for k in range(count):
        copies_2KD[1, k] = outputs_RD[rows[k]]
        copies_2KD[0, k] = copies_2KD[1, k]  # not from the row, which another thread may have changed


def put_back(outputs_RD: Any, rows: Any, count: int, copies_2KD: Any) -> None:
    """Add the updates of the copies to the rows; updates of other threads in the meantime are kept."""
    for k in range(count):
        u_D = outputs_RD[rows[k]]
        for d in range(u_D.shape[0]):
            u_D[d] += copies_2KD[0, k, d] - copies_2KD[1, k, d]


def skip_gram(job: Job, inputs_VD: Any, outputs_RD: Any, output: Output) -> int:
    """Train on one job: each word is predicted from each of its neighbours alone (Mikolov et al. 2013a, figure 1).

    Changes inputs and outputs in place; returns the number of words that subsampling kept. The paper predicts the
    neighbour from the word; the released code predicts the word from the neighbour, as here, which visits the same
    pairs. With a tree, the rows of a word are the same for all its neighbours, and the shared rows are updated after
    the last neighbour.
    """
    rows, labels = np.empty(output.longest, np.int32), np.empty(output.longest, np.float32)
    error_D = np.empty_like(inputs_VD[0])
    tree = output.negative == 0 and not output.softmax
    copies_2KD = np.empty((2, output.longest, inputs_VD.shape[1]), np.float32)
    used = np.arange(output.longest, dtype=np.int32)
    state, kept_N, kept_ends, left = contexts(job)
    begin = 0
    for end in kept_ends:
        for i in range(begin, end):
            first, last = begin, end
            if not job.span:
                state = random(state)
                reach = 1 + (state >> 16) % job.window
                first, last = max(begin, i - reach), min(end, i + reach + 1)
            if last - first == 1:
                continue
            if tree:
                count, state = questions(kept_N[i], output, state, rows, labels)
                take(outputs_RD, rows, count, copies_2KD)
            for j in range(first, last):
                if j != i:
                    h_D = inputs_VD[kept_N[j]]
                    if tree:
                        update(h_D, copies_2KD[0], used, labels, count, job.alpha, error_D)
                    else:
                        state = predict(h_D, outputs_RD, kept_N[i], job.alpha, output, state, rows, labels, error_D)
                    for d in range(h_D.shape[0]):
                        h_D[d] += error_D[d]
            if tree:
                put_back(outputs_RD, rows, count, copies_2KD)
        begin = end
    return left


def cbow(job: Job, inputs_VD: Any, outputs_RD: Any, output: Output) -> int:
    """Train on one job: each word is predicted from the mean of its neighbours (Mikolov et al. 2013a, figure 1).

    The result is as for `skip_gram`. Each neighbour gets the whole step of the mean, as in the released code.
    """
    rows, labels = np.empty(output.longest, np.int32), np.empty(output.longest, np.float32)
    h_D, error_D = np.empty_like(inputs_VD[0]), np.empty_like(inputs_VD[0])
    state, kept_N, kept_ends, left = contexts(job)
    begin = 0
    for end in kept_ends:
        for i in range(begin, end):
            first, last = begin, end
            if not job.span:
                state = random(state)
                reach = 1 + (state >> 16) % job.window
                first, last = max(begin, i - reach), min(end, i + reach + 1)
            if last - first == 1:
                continue
            h_D[:] = 0.0
            share = np.float32(1.0 / (last - first - 1))
            for j in range(first, last):
                if j != i:
                    neighbour_D = inputs_VD[kept_N[j]]
                    for d in range(h_D.shape[0]):
                        h_D[d] += share * neighbour_D[d]
            state = predict(h_D, outputs_RD, kept_N[i], job.alpha, output, state, rows, labels, error_D)
            for j in range(first, last):
                if j != i:
                    neighbour_D = inputs_VD[kept_N[j]]
                    for d in range(h_D.shape[0]):
                        neighbour_D[d] += error_D[d]
        begin = end
    return left


NETWORKS: dict[str, Callable[..., int]] = {"skip-gram": skip_gram, "cbow": cbow}
PARTS = (
    update,
    choose,
    sigmoid,
    random,
    questions,
    predict,
    take,
    put_back,
    subsample,
    unions,
    contexts,
)  # functions that the networks call

"""Sampling by word counts: subsampling of frequent words, negative samples, and the Huffman tree of words."""

from __future__ import annotations

import heapq
from array import array
from typing import NamedTuple

import numpy as np

from unmask.errors import UnmaskError

SOFTMAX = 10_000  # most words of a full softmax
FULL = 1 << 32  # a probability of 1; the kernel compares 32 random bits with it


class Output(NamedTuple):
    """The output layer: the binary classifications for each word, fixed rows and rows drawn as noise, or a softmax.

    offsets    [V + 1] int64: the fixed rows of word w are `rows[offsets[w]:offsets[w + 1]]`
    rows       [.] int32 indices of output vectors: the word itself, or the inner nodes above it in a Huffman tree
    labels     [.] float32: labels of the fixed rows, 1 or 0
    threshold  [V] int64, times 2**32: column i of the alias table gives i below it, else `alias[i]`
    alias      [V] int32
    negative   number of rows drawn from the alias table for every prediction, with the label 0
    longest    most rows of one prediction
    softmax    each prediction is one choice among all rows, not a number of binary ones
    """

    offsets: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    threshold: np.ndarray
    alias: np.ndarray
    negative: int
    longest: int
    softmax: bool = False


def keep_probabilities(counts: np.ndarray, threshold: float) -> np.ndarray:
    """[V] probability that an occurrence of each word is trained on: sqrt(t / f) + t / f, at most 1.

    f is the frequency of the word, t the threshold; 0 keeps all. Mikolov et al. 2013b discard with 1 - sqrt(t / f)
    (equation 5); their released code, and all later ones, keep t / f more, and so does this function.
    """
    if threshold <= 0:
        return np.ones(len(counts))
    ratio = threshold * counts.sum() / counts
    return np.minimum(1.0, np.sqrt(ratio) + ratio)


def noise_probabilities(counts: np.ndarray, power: float = 0.75) -> np.ndarray:
    """[V] the distribution from which negative words are drawn: counts to the 3/4 (Mikolov et al. 2013b, 2.2)."""
    weights = counts.astype(np.float64) ** power
    return weights / weights.sum()


def alias_table(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Threshold [V] int64, of 2**32, and alias [V] int32: draws in constant time (Walker 1977; Vose 1991).

    V columns of equal weight: column i gives i with probability threshold[i] / 2**32, else alias[i].
    """
    size = len(probabilities)
    rest = probabilities * size
    alias = np.arange(size, dtype=np.int32)
    small = [i for i in range(size) if rest[i] < 1]
    large = [i for i in range(size) if rest[i] >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        alias[low] = high
        rest[high] -= 1 - rest[low]
        if rest[high] < 1:
            small.append(large.pop())
    rest[small + large] = 1.0  # what rounding left over
    return np.round(np.minimum(rest, 1.0) * FULL).astype(np.int64), alias


def huffman_tree(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets [V + 1] int64, inner nodes int32 and labels float32 of the path from the root to every word.

    The tree is the binary one with the least mean depth (Huffman 1952), so frequent words ask few questions; the
    label of a node is 1 where the path goes left, as sigma(u . h) is there the probability of going left (Mikolov et
    al. 2013b, equation 3). Nodes are numbered from 0 in the order in which they were made; the root is V - 2.
    """
    size = len(counts)
    parent, side = np.zeros(2 * size - 1, np.int64), np.zeros(2 * size - 1, np.float32)
    heap = [(int(count), word) for word, count in enumerate(counts)]
    heapq.heapify(heap)
    for node in range(size, 2 * size - 1):
        left, right = heapq.heappop(heap), heapq.heappop(heap)
        parent[left[1]] = parent[right[1]] = node
        side[left[1]] = 1.0
        heapq.heappush(heap, (left[0] + right[0], node))
    above, turn = parent.tolist(), side.tolist()
    rows, labels = array("i"), array("f")
    offsets = np.zeros(size + 1, np.int64)
    for word in range(size):
        path, at = [], word
        while at != 2 * size - 2:
            path.append((above[at] - size, turn[at]))
            at = above[at]
        rows.extend(node for node, _ in reversed(path))
        labels.extend(label for _, label in reversed(path))
        offsets[word + 1] = len(rows)
    return offsets, np.array(rows, np.int32), np.array(labels, np.float32)


def negative_sampling(counts: np.ndarray, negative: int, power: float = 0.75) -> Output:
    """Negative sampling: each word is distinguished from `negative` words drawn as noise."""
    size = len(counts)
    threshold, alias = alias_table(noise_probabilities(counts, power))
    own = np.arange(size + 1, dtype=np.int64)
    return Output(own, own[:-1].astype(np.int32), np.ones(size, np.float32), threshold, alias, negative, 1 + negative)


def hierarchical_softmax(counts: np.ndarray) -> Output:
    """Hierarchical softmax: each word is predicted by the turns that lead to it in a Huffman tree, without noise."""
    offsets, rows, labels = huffman_tree(counts)
    nothing = np.full(1, FULL, np.int64), np.zeros(1, np.int32)
    return Output(offsets, rows, labels, *nothing, negative=0, longest=int(np.diff(offsets).max()))


def full_softmax(size: int) -> Output:
    """The full softmax: each word is chosen among all `size` words, with a row for each. Raises UnmaskError for
    more than `SOFTMAX` words."""
    if size > SOFTMAX:
        raise UnmaskError(
            f"A softmax over {size:,} words computes {size:,} products for each pair of words: keep at most "
            f"{SOFTMAX:,} with --most, or set --output to negative or hierarchical."
        )
    nothing = np.full(1, FULL, np.int64), np.zeros(1, np.int32)
    own = np.arange(size + 1, dtype=np.int64)
    rows, labels = own[:-1].astype(np.int32), np.ones(size, np.float32)
    return Output(own, rows, labels, *nothing, negative=0, longest=size, softmax=True)


def output_rows(output: Output) -> int:
    """R, number of output vectors."""
    return int(output.rows.max()) + 1

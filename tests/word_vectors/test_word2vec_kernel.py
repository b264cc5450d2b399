"""The update of word2vec against autograd and plain NumPy; what is drawn against what it is drawn from."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.runs.word_vectors import Word2Vec, kernel, sampling, softmax
from unmask.runs.word_vectors.compiled import compiled
from unmask.runs.word_vectors.kernel import Job

ALPHA = 0.1
COUNTS = np.array([40, 25, 25, 10, 6, 5, 3, 1])
ALL = np.full(len(COUNTS), sampling.FULL, np.int64)


def vectors(rows: int, seed: int, dim: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


def sentences(count: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    ends = np.unique(np.append(rng.integers(0, count, 40), count))
    return rng.choice(len(COUNTS), count, p=COUNTS / COUNTS.sum()).astype(np.int32), ends.astype(np.int64)


def test_one_update_is_a_step_down_the_gradient_of_the_loss():
    h, outputs = vectors(1, 0)[0], vectors(9, 1)
    rows, labels = np.array([3, 0, 7, 5], np.int32), np.array([1, 0, 0, 1], np.float32)
    h_t, u_t = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (h, outputs))
    F.binary_cross_entropy_with_logits(
        u_t[rows.tolist()] @ h_t, torch.tensor(labels, dtype=torch.float64), reduction="sum"
    ).backward()
    updated, error = outputs.copy(), np.empty(6, np.float32)
    kernel.update(h, updated, rows, labels, 4, ALPHA, error)
    np.testing.assert_allclose(error, -ALPHA * h_t.grad.numpy(), atol=1e-6)
    np.testing.assert_allclose(updated - outputs, -ALPHA * u_t.grad.numpy(), atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_a_choice_among_all_words_is_a_step_down_its_cross_entropy(scale):
    h, outputs = vectors(1, 0)[0] * np.float32(scale), vectors(9, 1)
    h_t, u_t = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (h, outputs))
    F.cross_entropy(u_t @ h_t, torch.tensor(4)).backward()
    updated, error = outputs.copy(), np.empty(6, np.float32)
    softmax.choose(h, updated, 4, ALPHA, np.empty(9, np.float32), error)
    np.testing.assert_allclose(error, -ALPHA * h_t.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(updated - outputs, -ALPHA * u_t.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", ["skip-gram", "cbow"])
def test_a_job_with_a_softmax_is_a_run_of_sgd(network):
    """Window 1 leaves nothing to chance: torch's SGD takes the same steps, one after the other."""
    words, ends = sentences(40)
    inputs, outputs = vectors(8, 2), vectors(8, 3)
    v, u = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (inputs, outputs))
    begin = 0
    for end in ends:
        for i in range(begin, end):
            context = [int(words[j]) for j in (i - 1, i + 1) if begin <= j < end]
            for group in [[c] for c in context] if network == "skip-gram" else [context] if context else []:
                h = v[group].mean(0)
                (of_h,) = torch.autograd.grad(F.cross_entropy(u @ h, torch.tensor(int(words[i]))), h)
                (of_u,) = torch.autograd.grad(F.cross_entropy(u @ h, torch.tensor(int(words[i]))), u)
                with torch.no_grad():
                    for word in group:
                        v[word] -= ALPHA * of_h
                    u -= ALPHA * of_u
        begin = end
    kernel.NETWORKS[network](Job(words, ends, ALL, 1, ALPHA, 5), inputs, outputs, sampling.full_softmax(8))
    np.testing.assert_allclose(inputs, v.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(outputs, u.detach().numpy(), atol=1e-4)


def test_a_softmax_over_one_word_has_nothing_to_learn():
    inputs, outputs = vectors(1, 2), vectors(1, 3)
    job = Job(np.zeros(4, np.int32), np.array([4]), ALL[:1], 1, ALPHA, 5)
    for network in kernel.NETWORKS.values():
        network(job, inputs, outputs, sampling.full_softmax(1))
    np.testing.assert_array_equal(inputs, vectors(1, 2))
    np.testing.assert_array_equal(outputs, vectors(1, 3))


def test_a_softmax_over_many_words_is_refused_with_its_cost():
    assert len(sampling.full_softmax(sampling.SOFTMAX).rows) == sampling.SOFTMAX
    with pytest.raises(UnmaskError, match="computes 10,001 products for each pair of words: keep at most 10,000"):
        Word2Vec(output="softmax").questions(np.ones(sampling.SOFTMAX + 1))


def stated(h, outputs, rows, labels):
    """The same in NumPy: the step for h; outputs are changed, one row after the other."""
    error = np.zeros(len(h))
    for row, label in zip(rows, labels, strict=True):
        g = ALPHA * (label - 1 / (1 + np.exp(-outputs[row] @ h)))
        error += g * outputs[row]
        outputs[row] += g * h
    return error


def test_a_row_that_is_drawn_twice_is_updated_twice():
    h, outputs = vectors(1, 0)[0], vectors(4, 1)
    rows, labels = np.array([2, 1, 1], np.int32), np.array([1, 0, 0], np.float32)
    expected = outputs.astype(np.float64)
    error = np.empty(6, np.float32)
    step = stated(h.astype(np.float64), expected, rows, labels)
    kernel.update(h, outputs, rows, labels, 3, ALPHA, error)
    np.testing.assert_allclose(error, step, atol=1e-6)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


@pytest.mark.parametrize("x", [-1e4, -40.0, -7.77, -1.0031, 0.0, 0.3, 3.0, 5.9999, 12.34, 15.9999, 1e4])
def test_the_sigmoid_overflows_nowhere(x):
    assert kernel.sigmoid(x) == pytest.approx(float(torch.tensor(x, dtype=torch.float64).sigmoid()), abs=1e-6)


@pytest.mark.parametrize("network", ["skip-gram", "cbow"])
def test_a_job_visits_the_pairs_that_the_paper_names(network):
    """Window 1 and a tree leave nothing to chance: every step can be written out."""
    words, ends = sentences(60)
    output = sampling.hierarchical_softmax(COUNTS)
    inputs, outputs = vectors(8, 2), vectors(7, 3)
    expected_in, expected_out = inputs.astype(np.float64), outputs.astype(np.float64)
    begin = 0
    for end in ends:
        for i in range(begin, end):
            path = slice(output.offsets[words[i]], output.offsets[words[i] + 1])
            context = [words[j] for j in (i - 1, i + 1) if begin <= j < end]
            for group in [[c] for c in context] if network == "skip-gram" else [context] if context else []:
                step = stated(expected_in[group].mean(0), expected_out, output.rows[path], output.labels[path])
                for word in group:
                    expected_in[word] += step
        begin = end
    run = kernel.NETWORKS[network]
    left = run(Job(words, ends, ALL, 1, ALPHA, 5), inputs, outputs, output)
    assert left == 60
    np.testing.assert_allclose(inputs, expected_in, atol=1e-4)
    np.testing.assert_allclose(outputs, expected_out, atol=1e-4)


@pytest.mark.parametrize("network", ["skip-gram", "cbow"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: sampling.negative_sampling(COUNTS, 3),
        lambda: sampling.hierarchical_softmax(COUNTS),
        lambda: sampling.full_softmax(len(COUNTS)),
    ],
)
def test_machine_code_does_what_the_python_does(network, make):
    pytest.importorskip("numba")
    words, ends = sentences()
    output, keep = make(), np.round(sampling.keep_probabilities(COUNTS, 0.05) * sampling.FULL).astype(np.int64)
    found = []
    for run in (kernel.NETWORKS[network], compiled(network)):
        inputs, outputs = vectors(8, 2), vectors(sampling.output_rows(output), 3)
        left = run(Job(words, ends, keep, 4, ALPHA, 99), inputs, outputs, output)
        found.append((left, inputs, outputs))
    (left, inputs, outputs), (left_c, inputs_c, outputs_c) = found
    assert 0 < left == left_c < 300
    np.testing.assert_allclose(inputs_c, inputs, atol=1e-4)
    np.testing.assert_allclose(outputs_c, outputs, atol=1e-4)
    assert np.abs(inputs - vectors(8, 2)).max() > 0.1


def test_steps_on_copies_are_added_to_what_other_threads_did_meanwhile(monkeypatch):
    inputs, outputs = vectors(8, 2), vectors(7, 3)
    begun = outputs.copy()
    output = sampling.hierarchical_softmax(COUNTS)
    own, others = np.zeros(7), np.zeros(7)

    def steps(h, taken, rows, labels, count, alpha, error):
        assert taken is not outputs
        path = output.rows[output.offsets[4] : output.offsets[5]]  # the word in the middle
        if count == len(path):
            taken[:count] += 1.0
            own[path] += 1
            outputs[path[0]] += 100.0  # another thread
            others[path[0]] += 100
        error[:] = 0.0

    monkeypatch.setattr(kernel, "update", steps)
    words, ends = np.array([0, 4, 0], np.int32), np.array([3])
    kernel.skip_gram(Job(words, ends, ALL, 1, ALPHA, 5), inputs, outputs, output)
    assert own.max() == 2
    np.testing.assert_allclose(outputs - begun, np.repeat((own + others)[:, None], 6, 1), atol=1e-4)


@pytest.mark.parametrize("network", ["skip-gram", "cbow"])
@pytest.mark.parametrize("output", [sampling.negative_sampling(COUNTS, 3), sampling.hierarchical_softmax(COUNTS)])
def test_nothing_and_single_words_teach_nothing(network, output, monkeypatch):
    monkeypatch.delattr(kernel, "questions")  # nothing is asked, and no row touched that other threads write to
    for words, ends in ([], []), ([], [0, 0]), ([1, 2, 3], [1, 2, 3]):
        inputs, outputs = vectors(8, 2), vectors(8, 3)
        job = Job(np.array(words, np.int32), np.array(ends, np.int64), ALL, 5, ALPHA, 1)
        kernel.NETWORKS[network](job, inputs, outputs, output)
        assert (inputs == vectors(8, 2)).all()
        assert (outputs == vectors(8, 3)).all()


def test_near_neighbours_are_seen_more_often(monkeypatch):
    """How far a word looks is drawn evenly from 1 to the window c: distance d is seen with (c - d + 1) / c."""
    seen: list[int] = []

    def note(h, outputs, rows, labels, count, alpha, error):
        seen.append(abs(int(h[0]) - int(rows[0])))
        error[:] = 0

    monkeypatch.setattr(kernel, "update", note)
    words, ends = np.tile(np.arange(4, dtype=np.int32), 1500), np.arange(4, 6001, 4)
    inputs = np.arange(4, dtype=np.float32)[:, None].copy()
    output = sampling.negative_sampling(np.ones(4), 1)
    kernel.skip_gram(Job(words, ends, ALL, 4, ALPHA, 3), inputs, inputs.copy(), output)
    found = np.bincount(seen, minlength=4)[1:] / (1500 * np.array([6, 4, 2]))
    np.testing.assert_allclose(found, [1.0, 0.75, 0.5], atol=0.03)


# ------------------------------------------------------------------------------------------------ sampling


def test_noise_is_drawn_by_counts_to_the_three_quarters():
    output = sampling.negative_sampling(COUNTS, 4)
    rows, labels = np.empty(5, np.int32), np.empty(5, np.float32)
    drawn, state, word = np.zeros(len(COUNTS)), 12345, 2
    for _ in range(8000):
        count, state = kernel.questions(word, output, state, rows, labels)
        assert rows[0] == word
        assert labels[0] == 1
        assert not labels[1:count].any()
        assert word not in rows[1:count]
        drawn += np.bincount(rows[1:count], minlength=len(COUNTS))
    expected = COUNTS**0.75
    expected[word] = 0
    np.testing.assert_allclose(drawn / drawn.sum(), expected / expected.sum(), atol=0.01)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50))
def test_an_alias_table_holds_exactly_its_probabilities(counts):
    wanted = np.array(counts, float) / sum(counts)
    threshold, alias = sampling.alias_table(wanted)
    keep = threshold / sampling.FULL
    assert ((keep >= 0) & (keep <= 1)).all()
    held = keep.copy()
    np.add.at(held, alias, 1 - keep)
    np.testing.assert_allclose(held / len(counts), wanted, atol=1e-9)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=40))
@settings(max_examples=50)
def test_the_tree_is_a_distribution_and_the_shortest_there_is(counts):
    offsets, rows, labels = sampling.huffman_tree(np.array(counts))
    depth = np.diff(offsets)
    heap = list(counts)
    heapq.heapify(heap)
    least = 0
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        least += joined
        heapq.heappush(heap, joined)
    assert (depth * counts).sum() == least
    left = np.random.default_rng(0).random(len(counts) - 1)  # the probability of going left at each node
    turn = np.where(labels == 1, left[rows], 1 - left[rows])
    assert np.multiply.reduceat(turn, offsets[:-1]).sum() == pytest.approx(1.0)
    assert set(rows[offsets[:-1]]) == {len(counts) - 2}  # all begin at the root


def test_frequent_words_are_skipped_by_the_formula():
    counts = np.array([9_000, 990, 10])
    keep = sampling.keep_probabilities(counts, 1e-2)
    share = counts / counts.sum()
    np.testing.assert_allclose(keep, np.minimum(1, np.sqrt(1e-2 / share) + 1e-2 / share))
    assert keep[0] == pytest.approx(0.1165, abs=1e-3)
    assert keep[2] == 1
    assert (sampling.keep_probabilities(counts, 0) == 1).all()
    words = np.repeat([0, 1, 2], 4000).astype(np.int32)
    chances = np.round(keep * sampling.FULL).astype(np.int64)
    _, kept, ends = kernel.subsample(Job(words, np.array([5000, 12_000]), chances, 1, ALPHA, 7))
    found = np.bincount(kept[: ends[1]], minlength=3) / 4000
    np.testing.assert_allclose(found, keep, atol=0.02)
    assert (kept[: ends[0]] < 2).all()
    assert ends[0] == (found[0] * 4000 + (kept[: ends[0]] == 1).sum())


def test_without_numba_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    compiled.cache_clear()
    with pytest.raises(UnmaskError, match=r"pip install 'unmask\[words\]'"):
        compiled("cbow")

"""Ranks of retrieval, counted one by one and beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import label_ranking_average_precision_score, top_k_accuracy_score

from unmask import metrics
from unmask.errors import UnmaskError

FEW = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])  # so that there are ties


@st.composite
def retrieval(draw):
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 14))
    true = draw(st.lists(st.integers(0, m - 1), min_size=n, max_size=n))
    return draw(arrays(np.float32, (n, m), elements=FEW)), np.array(true)


@given(retrieval())
def test_the_right_one_stands_behind_all_that_are_as_similar(case):
    similarities, true = case
    wanted = [1 + sum(row[j] >= row[t] for j in range(len(row)) if j != t) for row, t in zip(*case, strict=True)]
    assert metrics.ranks(similarities, true).tolist() == wanted
    found = metrics.of_ranks(similarities, true)
    assert list(found) == ["recall@1", "recall@5", "recall@10", "mrr"]
    for k in (1, 5, 10):
        assert found[f"recall@{k}"] == pytest.approx(sum(rank <= k for rank in wanted) / len(wanted))
    assert found["mrr"] == pytest.approx(sum(1 / rank for rank in wanted) / len(wanted))


def test_ranks_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(100):
        n, m = rng.integers(2, 30), rng.integers(11, 40)
        true = rng.integers(0, m, n)
        similarities = rng.normal(size=(n, m))
        found = metrics.of_ranks(similarities, true)
        for k in (1, 5, 10):
            wanted = top_k_accuracy_score(true, similarities, k=k, labels=np.arange(m))
            assert found[f"recall@{k}"] == pytest.approx(wanted, rel=0, abs=1e-9)
        right = np.arange(m) == true[:, None]
        for scores in (similarities, similarities.round()):  # the latter with ties, which are pessimistic there too
            wanted = label_ranking_average_precision_score(right, scores)
            assert metrics.of_ranks(scores, true)["mrr"] == pytest.approx(wanted, rel=0, abs=1e-9)


def test_a_model_that_knows_nothing_finds_nothing():
    for broken in (0.0, np.nan, -np.inf):
        assert metrics.ranks(np.full((3, 20), broken), np.array([0, 7, 19])).tolist() == [20, 20, 20]
    row = np.array([[np.nan, 1.0, 0.0]])
    assert metrics.ranks(row, np.array([1])).tolist() == [2]


@pytest.mark.parametrize("true", [-1, 4])
def test_a_right_one_that_is_not_there(true):
    with pytest.raises(UnmaskError, match="from 0 to 3"):
        metrics.of_ranks(np.zeros((2, 4)), np.array([0, true]))

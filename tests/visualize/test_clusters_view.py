"""Clusters beside labels: shares, order and agreement are those of the frames."""

from __future__ import annotations

import numpy as np
import pytest

from unmask.errors import UnmaskError
from unmask.visualize.clusters import SILENCE, clusters, counted, letters_of
from unmask.visualize.numbers import unpacked

SPOKEN = {
    "words": [{"begin": 0.1, "end": 0.3, "word": "no"}, {"begin": 0.5, "end": 0.6, "word": "a"}],
    "letters": [
        {"letter": "n", "time": 0.12, "probability": 1.0},
        {"letter": "o", "time": 0.28, "probability": 1.0},
        {"letter": "a", "time": 0.51, "probability": 1.0},
    ],
}


def test_frames_get_the_nearest_letter_of_their_word():
    middles = np.array([0.05, 0.1, 0.19, 0.21, 0.29, 0.3, 0.45, 0.55])
    assert letters_of(SPOKEN, middles) == [SILENCE, "n", "n", "o", "o", SILENCE, SILENCE, "a"]
    assert letters_of({}, middles) == [SILENCE] * 8
    assert letters_of(SPOKEN, np.empty(0)) == []


def test_counts_are_those_of_the_frames():
    rng = np.random.default_rng(0)
    pairs = [(rng.integers(0, 4, n), rng.choice(["a", "b"], n).tolist()) for n in (5, 0, 30)]
    found = counted(pairs, 4)
    for label in "ab":
        expected = [
            sum(k == own and label == name for ks, ns in pairs for own, name in zip(ks, ns, strict=True))
            for k in range(4)
        ]
        assert found[label].tolist() == expected


def test_columns_are_shares_in_the_order_of_labels():
    counts = {"a": np.array([1, 0, 8, 0]), "b": np.array([3, 5, 2, 0])}
    found = clusters(counts, "letters")
    assert found["columns"] == ["3", "2", "1"]  # a: cluster 3; b: all of 2, most of 1; cluster 4 has no frames
    np.testing.assert_allclose(unpacked(found["values"]), [[0.8, 0, 0.25], [0.2, 1, 0.75]], atol=1e-3)
    assert found["frames"] == [10, 5, 4]
    assert "Purity 0.842" in found["lead"]  # (8 + 5 + 3) / 19


def test_clusters_that_are_the_labels_know_all_of_them():
    found = clusters({"a": np.array([4, 0]), "b": np.array([0, 9])}, "words")
    assert "Purity 1.000" in found["lead"]
    assert "100 % of the information" in found["lead"]


def test_one_label_is_refused():
    with pytest.raises(UnmaskError, match="at least two letters"):
        clusters({"a": np.array([1])}, "letters")

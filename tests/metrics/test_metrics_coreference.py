"""Scores of clusters beside two ports of the scorer of CoNLL-2012, and worked out by hand; GAP's scores."""

from __future__ import annotations

import json
import random
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask import metrics
from unmask.metrics.coreference import Agreement

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "coreference.json"


def document(seed):
    """The annotated and the found clusters of a random document of at most 12 mentions."""
    rng = random.Random(seed)

    def clusters():
        found: dict[int, list[int]] = {}
        for mention in range(rng.randint(1, 12)):
            if mention == 0 or rng.random() < 0.8:
                found.setdefault(rng.randint(0, 4), []).append(mention)
        return list(found.values())

    return clusters(), clusters()


def test_a_thousand_random_documents_beside_scorch():
    wanted = np.array(json.loads(FIXTURE.read_text(encoding="utf-8"))["documents"]) / 1e6
    found = [metrics.of_coreference([document(seed)]) for seed in range(len(wanted))]
    names = ("muc_f1", "b_cubed_f1", "ceaf_f1")
    assert len(wanted) == 1_000
    np.testing.assert_allclose([[one[name] for name in names] for one in found], wanted, atol=5.1e-7)
    np.testing.assert_allclose([one["conll_f1"] for one in found], wanted.mean(1), atol=5.1e-7)


def test_sums_over_documents_beside_coreference_eval():
    wanted = json.loads(FIXTURE.read_text(encoding="utf-8"))["all"]
    pairs = [[[c for c in side if len(c) > 1] for side in document(seed)] for seed in range(1_000)]
    found = list(metrics.of_clusters([(gold, other) for gold, other in pairs]).values())[:3]
    np.testing.assert_allclose([(one.recall, one.precision) for one in found], wanted, rtol=1e-12)


def test_the_example_of_pradhan_et_al():
    """The example of the paper: {a, b, c} and {d, e, f, g}, and of the system {a, b}, {c, d}, {f, g, h, i}."""
    found = metrics.of_clusters([(["abc", "defg"], ["ab", "cd", "fghi"])])
    assert found["muc"] == Agreement(2, 5, 2, 5)
    assert found["b_cubed"].recall == pytest.approx((2 * 2 / 3 + 1 / 3 + 1 / 4 + 2 * 2 / 4) / 7)
    assert found["b_cubed"].precision == pytest.approx((2 + 1 / 2 + 1 / 2 + 2 * 2 / 4) / 8)
    assert found["ceaf"] == Agreement(pytest.approx(0.8 + 0.5), 2, pytest.approx(0.8 + 0.5), 3)
    assert found["mention"] == Agreement(6, 7, 6, 8)


CLUSTERS = st.lists(st.integers(0, 3), min_size=1, max_size=7).map(
    lambda of: [{m for m, c in enumerate(of) if c == k} for k in sorted(set(of))]
)


@given(CLUSTERS, CLUSTERS)
def test_the_alignment_is_the_best_of_all(gold, found):
    few, many = sorted((gold, found), key=len)
    phi = [[2 * len(a & b) / (len(a) + len(b)) for b in many] for a in few]
    best = max(sum(phi[i][j] for i, j in enumerate(order)) for order in permutations(range(len(many)), len(few)))
    assert metrics.of_clusters([(gold, found)])["ceaf"].found == pytest.approx(best)


@given(CLUSTERS)
def test_equal_clusters_are_perfect_and_no_clusters_find_nothing(clusters):
    several = any(len(one) > 1 for one in clusters)
    found = metrics.of_coreference([(clusters, [set(one) for one in reversed(clusters)])])
    assert found["b_cubed_f1"] == found["ceaf_f1"] == found["mention_f1"] == pytest.approx(1)
    assert found["muc_f1"] == several
    assert set(metrics.of_coreference([(clusters, [])]).values()) == {0.0}


def test_pronouns_are_scored_by_gender():
    gold, found = [True, False, False, True, True, False], [True, True, False, False, True, False]
    scores = metrics.of_pronouns(["He", "He", "her", "her", "she", "she"], gold, found)
    assert scores == {"f1": 2 / 3, "masculine_f1": 2 / 3, "feminine_f1": 2 / 3, "bias": 1.0}
    assert metrics.of_pronouns(["she"], [True], [True])["bias"] == 0

"""Walks on graphs: they follow edges, with the probabilities of node2vec's equation, and find communities."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.runs.word_vectors import Word2Vec, Words, train, walks

# The graph of figure 2 of the paper, with two more nodes: t - v, and x1 is a neighbour of both.
EDGES = [("t", "v"), ("t", "x1"), ("v", "x1"), ("v", "x2"), ("v", "x3"), ("x2", "x4"), ("x3", "x4"), ("x3", "x3b")]


def test_walks_follow_edges_and_end_where_none_leads_on(tmp_path):
    (tmp_path / "edges").write_text("# a graph\na b\nb\tc\nb d\n\nc a\n")
    edges = walks.edges(tmp_path / "edges")
    assert edges == [("a", "b"), ("b", "c"), ("b", "d"), ("c", "a")]
    found = list(walks.random_walks(edges, np.random.default_rng(0), walks=200, length=5, directed=True))
    assert len(found) == 800
    assert Counter(walk[0] for walk in found) == dict.fromkeys("abcd", 200)
    assert all(step in edges for walk in found for step in pairwise(walk))
    assert all(len(walk) == 5 or walk[-1] == "d" for walk in found)
    after_b = Counter(b for walk in found for a, b in pairwise(walk) if a == "b")
    assert after_b["c"] / after_b.total() == pytest.approx(0.5, abs=0.06)
    both = {*edges, *((b, a) for a, b in edges)}
    found = list(walks.random_walks(edges, np.random.default_rng(0), walks=3, length=7))
    assert all(len(walk) == 7 for walk in found)
    assert all(step in both for walk in found for step in pairwise(walk))
    assert found == list(walks.random_walks(edges, np.random.default_rng(0), walks=3, length=7))


def test_a_graph_that_is_none_is_named(tmp_path):
    (tmp_path / "edges").write_text("a b\na b 0.5\n")
    with pytest.raises(UnmaskError, match=r"edges:2 has 3 fields"):
        walks.edges(tmp_path / "edges")
    (tmp_path / "edges").write_text("# nothing\n")
    with pytest.raises(UnmaskError, match="no edges"):
        walks.edges(tmp_path / "edges")
    with pytest.raises(UnmaskError, match="at least one"):
        list(walks.random_walks([("a", "b")], np.random.default_rng(0), walks=0))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.25, 4), (4, 0.25), (10, 2)])
def test_steps_have_the_probabilities_of_the_equation(p, q, directed):
    """The equation of section 3.2.2, written out for each pair (t, v); the edge from v to x2 has the weight 2."""
    edges = [*EDGES, ("v", "x2")]
    edges += [("x4", "t"), ("v", "t"), ("x3b", "v"), ("x1", "v")] if directed else []
    weight = Counter(edges if directed else edges + [(b, a) for a, b in edges])
    graph, rng = walks.Graph.of(edges, directed=directed), np.random.default_rng(0)
    for t, v in weight:
        after = sorted(x for a, x in weight if a == v)
        if len(after) < 2:
            continue  # nothing is drawn
        bias = [weight[v, x] * (1 / p if x == t else 1 if (t, x) in weight else 1 / q) for x in after]
        found = graph.biased(*(np.full(4_000, graph.names.index(n)) for n in (t, v)), (p, q), rng)
        counts = Counter(graph.names[i] for i in found)
        assert set(counts) <= set(after)
        expected = np.array(bias) / sum(bias) * 4_000
        assert stats.chisquare([counts[x] for x in after], expected).pvalue > 1e-4


def test_a_walk_knows_the_node_before():
    """On a ring, where t and x have no edge, a step goes back with the probability (1 / p) / (1 / p + 1 / q)."""
    ring = [(str(i), str((i + 1) % 8)) for i in range(8)]
    found = list(walks.random_walks(ring, np.random.default_rng(0), walks=50, length=10, p=4, q=0.5))
    back = np.mean([a == c for walk in found for a, c in zip(walk, walk[2:], strict=False)])
    assert back == pytest.approx(0.25 / 2.25, abs=0.02)


@pytest.mark.parametrize(("p", "q"), [(1, 1), (4, 0.5)])
def test_vectors_of_walks_find_the_communities_of_a_block_model(p, q):
    pytest.importorskip("numba", reason="training needs numba")
    rng = np.random.default_rng(0)
    block = np.repeat(np.arange(4), 20)
    chance = np.where(block[:, None] == block, 0.3, 0.02)
    pairs = np.argwhere(np.triu(rng.random((80, 80)) < chance, 1))
    sentences = walks.random_walks([(f"n{a}", f"n{b}") for a, b in pairs], rng, walks=10, length=20, p=p, q=q)
    config = Word2Vec(dim=16, epochs=3, words=Words(min_count=1, subsample=0))
    vectors = train(sentences, config, threads=1).vectors
    found = KMeans(4, n_init=5, random_state=0).fit_predict(vectors.unit())
    true = [block[int(name[1:])] for name in vectors.words]
    assert normalized_mutual_info_score(true, found) > 0.9


def test_the_verb_walks_with_p_and_q(tmp_path, capsys):
    (tmp_path / "edges.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in EDGES))
    command = ["words", "walk", "--edges", str(tmp_path / "edges.tsv"), "--out", str(tmp_path / "walks.txt")]
    main([*command, "--p", "100", "--length", "3"])
    assert "70 walks" in capsys.readouterr().out
    lines = [line.split() for line in (tmp_path / "walks.txt").read_text().splitlines()]
    assert np.mean([line[0] == line[2] for line in lines]) < 0.3  # only from the two ends, which lead nowhere else
    with pytest.raises(SystemExit):
        main([*command, "--q", "0"])
    assert "p and q must lie between 0.01 and 100, not 1.0 and 0.0" in capsys.readouterr().err

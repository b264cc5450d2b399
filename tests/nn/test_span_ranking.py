"""Span ranking beside its equations, one span and one pair at a time."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unmask.nn.coreference import Ranked, SpanRanking, bucket, candidates, gold_antecedents, marginal_loss, pruned

SENTENCES = np.array([1, 1, 1, 1, 2, 2, 2, 3, 3])


@pytest.fixture(scope="module")
def ranking():
    torch.manual_seed(0)
    found = SpanRanking(6, 3, hidden=5, features=4).eval()
    for p in found.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return found


@pytest.fixture(scope="module")
def states():
    return torch.randn(len(SENTENCES), 6, generator=torch.Generator().manual_seed(1))


def vector(ranking, x_WD, begin, end):
    """g(i), word by word."""
    inside = x_WD[begin:end]
    alpha = torch.softmax(torch.stack([ranking.attention(x)[0] for x in inside]), 0)
    head = sum(a * x for a, x in zip(alpha, inside, strict=True))
    return torch.cat([x_WD[begin], x_WD[end - 1], head, ranking.length.weight[end - begin - 1]])


def mention(ranking, g):
    return ranking.mention_score(F.relu(ranking.mention(g)))[0]


def pair(ranking, g, other, distance):
    """a(i, j): one matrix times the concatenation."""
    features = torch.cat([g, other, g * other, ranking.distance.weight[distance]])
    layers = (ranking.anaphor, ranking.antecedent, ranking.product, ranking.apart)
    matrix = torch.cat([layer.weight for layer in layers], 1)
    return ranking.pair_score(F.relu(matrix @ features + ranking.anaphor.bias))[0]


@torch.no_grad()
def test_scores_are_those_of_the_equations(ranking, states):
    ranked = ranking(states, SENTENCES, 0.8, 3)
    spans = [tuple(span) for span in ranked.spans.tolist()]
    g = [vector(ranking, states, *span) for span in spans]
    torch.testing.assert_close(ranked.mentions, torch.stack([mention(ranking, one) for one in g]))
    kept = ranked.kept.tolist()
    assert len(kept) == int(0.8 * len(SENTENCES))
    assert ranked.scores.shape == (len(kept), 4)
    assert (ranked.scores[:, 0] == 0).all()
    for i, own in enumerate(kept):
        coarse = {
            j: ranked.mentions[own] + ranked.mentions[kept[j]] + g[own] @ ranking.coarse.weight.T @ g[kept[j]]
            for j in range(i)
        }
        best = sorted(coarse, key=lambda j: -coarse[j])[:3]
        finite = ranked.scores[i, 1:].isfinite()
        assert ranked.antecedents[i][finite].tolist() == best
        assert int(finite.sum()) == min(i, 3)
        for k, j in enumerate(best):
            wanted = coarse[j] + pair(ranking, g[own], g[kept[j]], int(bucket(torch.tensor(i - j))))
            torch.testing.assert_close(ranked.scores[i, k + 1], wanted)


@torch.no_grad()
def test_words_far_less_attended_than_others_leave_a_span_finite(states):
    """The weights of a document's words are divided by the sum of those of the span."""
    steep = SpanRanking(6, 3, hidden=5, features=4).eval()
    for p in steep.parameters():
        torch.nn.init.normal_(p, std=0.5)
    steep.attention.weight.mul_(400)
    assert steep.attention(states).max() - steep.attention(states).min() > 200
    assert steep(states, SENTENCES, 1.0, 3).mentions.isfinite().all()


def test_candidates_stay_in_their_sentence():
    wanted = {
        (b, e) for b, e in combinations(range(len(SENTENCES) + 1), 2) if e - b <= 3 and len(set(SENTENCES[b:e])) == 1
    }
    found = candidates(SENTENCES, 3).tolist()
    assert {tuple(span) for span in found} == wanted
    assert len(found) == len(wanted)
    assert len(candidates(SENTENCES[:0], 3)) == 0


def crosses(one, other):
    (a, b), (c, d) = sorted((one, other))
    return a < c < b < d


@given(st.lists(st.integers(-9, 9), min_size=27, max_size=27), st.integers(1, 12))
def test_pruning_keeps_the_best_spans_that_cross_no_better_one(scores, most):
    spans = candidates(np.zeros(9, int), 3)[: len(scores)]
    scores = np.array(scores[: len(spans)], float)
    wanted = []
    for i in sorted(range(len(spans)), key=lambda i: -scores[i]):
        if len(wanted) < most and not any(crosses(spans[i].tolist(), spans[j].tolist()) for j in wanted):
            wanted.append(i)
    found = pruned(spans, scores, most).tolist()
    assert sorted(found) == sorted(wanted)
    assert [tuple(spans[i]) for i in found] == sorted(tuple(spans[i]) for i in found)


def test_buckets_of_distances():
    borders = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 7: 5, 8: 6, 15: 6, 16: 7, 31: 7, 32: 8, 63: 8, 64: 9, 5_000: 9}
    assert bucket(torch.tensor(list(borders))).tolist() == list(borders.values())


def test_the_loss_sums_the_probabilities_of_all_correct_antecedents():
    inf = math.inf
    scores = torch.tensor([[0.0, -inf, -inf], [0.0, 1.5, -inf], [0.0, -0.5, 2.0]], requires_grad=True)
    ranked = Ranked(*[torch.empty(0)] * 2, torch.arange(3), torch.tensor([[0, 0], [0, 0], [0, 1]]), scores.detach())
    gold = gold_antecedents(ranked, [4, 4, 4])
    assert gold.tolist() == [[True, False, False], [False, True, False], [False, True, True]]
    wanted = 0 - math.log(math.exp(1.5) / (1 + math.exp(1.5)))
    wanted -= math.log((math.exp(-0.5) + math.exp(2)) / (1 + math.exp(-0.5) + math.exp(2)))
    loss = marginal_loss(scores, gold)
    assert loss.item() == pytest.approx(wanted, rel=1e-6)
    loss.backward()
    assert scores.grad.isfinite().all()
    assert gold_antecedents(ranked, [-1, -1, 4])[:, 0].all()  # in no cluster, or the first of one


def test_gradients_reach_every_parameter(ranking, states):
    ranked = ranking(states, SENTENCES, 0.8, 3)
    loss = marginal_loss(ranked.scores, gold_antecedents(ranked, [0] * len(ranked.kept)))
    grads = torch.autograd.grad(loss, list(ranking.parameters()))
    assert all(g.isfinite().all() and g.abs().sum() > 0 for g in grads)
